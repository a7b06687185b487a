"""The arithmetic of speed, traffic and money, as the page and the exports show it."""

import pytest

from kvcalc import evaluate
from kvcalc.explain import steps
from tests.small_model import scenario


def sections(**fields):
    return {section.title.split(":")[0]: section.steps for section in steps(evaluate(scenario(**fields)))}


def shown(rows):
    return {row.title: (row.numbers, row.value) for row in rows}


def test_a_plain_scenario_explains_time_per_token_and_first_token():
    found = sections()
    assert {"Time per token", "First token"} <= found.keys()
    assert not {"Fleet", "With drafted tokens, as measured elsewhere"} & found.keys()
    assert [row.title for row in found["First token"]] == ["Prefill alone"]


def test_the_crossover_stands_under_time_per_token_with_both_sides():
    numbers, value = shown(sections(max_num_seqs=8)["Time per token"])["Cache against weights"]
    # 8 x 8,000 x 4,096 B = 262,144,000 B = 0.24 GiB against 11,514,880 B = 0.01 GiB; 262.1 / 273.7 = 96 %
    assert numbers == "0.24 GiB against 0.01 GiB"
    assert value == "KV is 96% of what is read"


def test_a_shared_prefix_shows_its_blocks():
    rows = shown(sections(cached_prompt_tokens=1_000)["First token"])
    assert rows["Prompt tokens the prefix cache spares"] == ("1,000 ÷ 16, × 16", "992 tokens")
    assert rows["Prefill alone"][0] == "7,000 prompt tokens, 992 of them cached"


def test_a_busy_replica_shows_its_three_parts():
    found = sections(busy=True, max_num_seqs=4)
    assert "Prompts of others in a step" in shown(found["Time per token"])
    assert [row.title for row in found["First token"]][-3:] == [
        "Decoding others meanwhile",
        "Queue",
        "First token on a busy replica",
    ]


def test_a_fleet_is_explained_from_arrivals_to_dollars():
    rows = shown(sections(requests_per_hour=3_600, price_cents_per_gpu_hour=250, max_num_seqs=40)["Fleet"])
    assert rows["Planned requests of one replica"] == ("40 × 70%", "28")
    assert rows["Cost per hour"] == ("2 × $2.50", "$5.00")
    assert rows["Cost per request"] == ("$5.00 ÷ 3,600", "$0.00139")


def test_input_and_output_tokens_share_the_hour():
    rows = shown(sections(requests_per_hour=3_600, price_cents_per_gpu_hour=250, max_num_seqs=40)["Fleet"])
    into, out = (rows[f"Cost per million {kind} tokens"][0] for kind in ("input", "output"))
    assert into.endswith("÷ (3,600 × 7,000 ÷ 1,000,000)")
    assert out.endswith("÷ (3,600 × 1,000 ÷ 1,000,000)")
    shares = [float(numbers.split(" × ")[1].split("%")[0]) for numbers in (into, out)]
    assert sum(shares) == pytest.approx(100, abs=1)  # each is shown to a whole per cent


def test_a_fleet_without_a_price_shows_no_money():
    assert "Cost per hour" not in shown(sections(requests_per_hour=3_600)["Fleet"])


def test_drafted_tokens_show_the_division():
    rows = sections(speculative_tokens=2, max_num_seqs=1)["With drafted tokens, as measured elsewhere"]
    assert "÷ 2.7 to" in rows[0].numbers
    assert rows[0].numbers.endswith("÷ 1.8")
    assert "github.com/sgl-project/sglang" in rows[0].source
