"""What else would do what a report does: the wish, and that every row keeps what the user typed."""

import pytest

from kvcalc import Scenario, evaluate
from kvcalc.evaluation import answer
from kvcalc.other_deployments import other_deployments

MODEL = "Qwen/Qwen3-8B"


def found(**fields):
    scenario = Scenario(model=MODEL, **fields)
    return scenario, other_deployments(evaluate(scenario))


def test_without_a_target_the_wish_is_what_the_report_runs():
    _, others = found(max_num_seqs=10)
    assert others.wish == "10 requests at once of 8,000 tokens within 50 ms per token"
    assert all(row.requests >= 10 for row in others.rows)
    assert {row.scenario.target_requests for row in others.rows} == {None}


def test_a_wish_that_nothing_runs_yet_is_one_request():
    _, others = found(gpu="t4", tp=1, pp=1)
    assert others.wish == "1 request of 8,000 tokens within 50 ms per token"


def test_targets_are_part_of_the_wish():
    _, others = found(target_requests=20, target_tpot_ms=None, target_ttft_ms=1_500)
    assert others.wish == "20 requests at once of 8,000 tokens within 1.5 s to the first token"


def test_a_row_keeps_everything_but_the_deployment():
    fields = {"cached_prompt_tokens": 512, "requests_per_hour": 100, "price_cents_per_gpu_hour": 250}
    scenario, others = found(target_requests=20, **fields)
    for row in others.rows:
        kept = {name: value for name, value in dict(row.scenario).items() if value != getattr(scenario, name)}
        assert kept.keys() <= {"gpu", "tp", "pp", "weight_precision", "kv_precision"}
        assert answer(row.scenario).verdict == "target_met"


def test_each_gpu_stands_once_and_fewest_gpus_come_first():
    _, others = found(target_requests=20)
    cards = [row.gpu for row in others.rows]
    counts = [row.gpus for row in others.rows]
    assert len(set(cards)) == len(cards) == 20
    assert counts == sorted(counts)
    assert not others.by_price


def test_the_gpu_with_a_price_comes_first():
    _, others = found(gpu="l4", target_requests=4, price_cents_per_gpu_hour=70)
    assert others.by_price
    assert (others.rows[0].gpu, others.rows[0].cents_per_hour) == ("l4", 70 * others.rows[0].gpus)
    assert all(row.cents_per_hour is None for row in others.rows[1:])


@pytest.mark.parametrize("weights", ["checkpoint", "fp8"])
def test_formats_stay_when_asked_to(weights):
    scenario = Scenario(model=MODEL, weight_precision=weights, kv_precision="fp8")
    rows = other_deployments(evaluate(scenario), same_precision=True).rows
    assert {(row.weight_precision, row.kv_precision) for row in rows} == {(weights, "fp8")}
