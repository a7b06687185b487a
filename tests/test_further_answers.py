"""Speed, traffic, cost and other deployments on the Capacity page, without a browser."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamlit.testing.v1 import AppTest

from kvcalc import Scenario, ScenarioError, evaluate, to_link
from kvcalc.crossover import crossover
from kvcalc.fleet import fleet
from kvcalc.other_deployments import other_deployments
from kvcalc.speed_curves import conversation_curve, throughput_curve
from kvcalc.ui import inputs, text
from kvcalc.units import fmt_cents, fmt_count, fmt_percent
from tests.test_app import address, figures, opened, plain, run, typed

TRAFFIC = {"requests_per_hour": 3_600, "prompt_tokens_p95": 20_000}
PRICED = {**TRAFFIC, "price_cents_per_gpu_hour": 250}


def scenario(**fields: Any) -> Scenario:
    return Scenario(**{**dict(Scenario.default()), **fields})


def unfolded(app: AppTest, *names: str) -> AppTest:
    for name in names:
        app.session_state[f"fold_{name}"] = True
    return run(app)


def html(app: AppTest) -> str:
    return " ".join(element.proto.body for element in app.main.get("html"))


def words(app: AppTest) -> str:
    """Everything written on the page, markup of the tables included."""
    return " ".join([*(plain(element.value) for element in app.main.markdown), html(app)])


def charts(app: AppTest) -> int:
    return len(app.main.get("vega_lite_chart")) + len(app.main.get("arrow_vega_lite_chart"))


def test_traffic_and_price_are_typed_and_the_cost_is_shown() -> None:
    app = unfolded(opened(), "traffic")
    for field, typed_in in (
        ("requests_per_hour", "3600"),
        ("prompt_tokens_p95", "20,000"),
        ("price_cents_per_gpu_hour", "$2.5"),
    ):
        app = typed(app, field, typed_in)
    assert address(app) == scenario(**PRICED)
    assert app.text_input(key=inputs.key("price_cents_per_gpu_hour")).value == "2.50"
    found = fleet(scenario(**PRICED))
    assert found is not None
    assert found.cost is not None
    assert found.cost.cents_per_million_output is not None
    shown = figures(app)
    assert shown["Replicas"] == fmt_count(found.replicas)
    assert shown["In use"] == fmt_percent(found.utilization)
    # 3,600 requests an hour: the cost of an hour, in cents, ÷ 3.6 for a thousand of them
    assert shown["1,000 requests"] == fmt_cents(found.cost.cents_per_hour / 3.6)
    assert shown["Million output tokens"] == fmt_cents(found.cost.cents_per_million_output)
    assert found.sentence in words(app)
    assert "$2.50 per GPU-hour as typed" in words(app)


def test_without_a_price_nothing_is_said_about_money() -> None:
    app = opened(to_link(scenario(**TRAFFIC)))
    assert "Replicas" in figures(app)
    assert "1,000 requests" not in figures(app)
    said = words(app).lower() + " ".join(element.value for element in app.subheader)
    assert not any(word in said for word in ("$", "cost ", "price"))


def test_traffic_that_no_replica_holds_says_why() -> None:
    found = fleet(scenario(**TRAFFIC, tp=1, pp=1))
    assert found is not None
    assert not found.fits
    app = opened(to_link(scenario(**TRAFFIC, tp=1, pp=1)))
    assert found.sentence in words(app)
    assert "Replicas" not in figures(app)


def test_a_bad_price_is_said_once_and_takes_only_the_cost_away() -> None:
    before = opened(to_link(scenario(**PRICED)))
    four = list(figures(before).items())[:4]
    app = typed(unfolded(before, "traffic"), "price_cents_per_gpu_hour", "2,50")
    assert [plain(box.value) for box in app.warning] == [
        "price_cents_per_gpu_hour: expected dollars with at most two decimals, got '2,50'. "
        "Type it with a point, such as 2.50, or leave it empty."
    ]
    assert list(figures(app).items()) == four


@pytest.mark.parametrize(
    ("words_typed", "cents"),
    [("2.50", 250), ("2.5", 250), ("$2", 200), (" 0.05 ", 5), ("1,234.50", 123_450), ("0", 0), ("", None)],
)
def test_dollars_are_read_as_whole_cents(words_typed: str, cents: int | None) -> None:
    assert inputs.read_number("price_cents_per_gpu_hour", words_typed, optional=True) == cents


@pytest.mark.parametrize("words_typed", ["2,50", "2.505", "-1", "1e2", "two", "$", ".5", "2.", "12,34", "٣"])
def test_what_is_no_amount_of_dollars_is_refused_by_name(words_typed: str) -> None:
    with pytest.raises(ScenarioError, match=r"^price_cents_per_gpu_hour: expected dollars"):
        inputs.read_number("price_cents_per_gpu_hour", words_typed, optional=True)


@given(cents=st.integers(0, 10**9))
def test_a_price_reads_back_to_the_cent(cents: int) -> None:
    shown = inputs.typed("price_cents_per_gpu_hour", cents)
    assert inputs.read_number("price_cents_per_gpu_hour", shown, optional=True) == cents


def test_what_is_folded_is_not_made() -> None:
    app = opened()
    assert charts(app) == 3
    opened_up = unfolded(app, "output", "conversations")
    assert charts(opened_up) == 5
    report = evaluate(Scenario.default())
    output, growth = throughput_curve(report), conversation_curve(report)
    assert output is not None
    assert growth is not None
    assert output.sentence in words(opened_up)
    assert growth.sentence in words(opened_up)


def test_without_traffic_the_box_says_what_one_replica_finishes() -> None:
    found = fleet(scenario(requests_per_hour=1))
    assert found is not None
    finishes = f"One replica finishes about {int(found.replica_requests_per_hour):,} requests per hour"
    assert finishes in words(unfolded(opened(), "fleet"))


def test_each_deployment_is_a_link_that_keeps_every_input() -> None:
    asked = scenario(target_requests=100, cached_prompt_tokens=1_000, **PRICED)
    app = unfolded(opened(to_link(asked)), "deployments")
    found = other_deployments(evaluate(asked))
    for row in found.rows:
        assert f'href="?{text.html(to_link(row.scenario))}"' in html(app)
    assert f"{found.considered:,} combinations" in words(app)
    assert f"{found.met:,} run {found.wish}" in words(app)


@pytest.mark.parametrize(
    ("fields", "said"), [({}, True), ({"target_requests": 40}, False), ({"tp": 1, "pp": 1}, False)]
)
def test_the_wish_is_called_this_deployment_s_own_only_where_it_is(fields: dict[str, int], said: bool) -> None:
    app = unfolded(opened(to_link(scenario(**fields))), "deployments")
    assert ("which is what this deployment runs" in words(app)) is said


def test_formats_can_be_kept() -> None:
    app = unfolded(opened(), "deployments")
    app.checkbox(key="deployments_same_precision").check()
    found = other_deployments(evaluate(Scenario.default()), same_precision=True)
    assert f"Of {found.considered:,} combinations" in words(run(app))


def test_a_wish_nobody_meets_says_what_was_tried_and_what_to_do() -> None:
    asked = scenario(target_requests=1_000_000)
    tried = other_deployments(evaluate(asked)).considered
    said = words(unfolded(opened(to_link(asked)), "deployments"))
    assert f"None of {tried:,} combinations" in said
    assert "Ask for fewer requests, a shorter context or a slower target." in said


def test_a_context_past_the_model_s_limit_is_refused_in_the_box_too() -> None:
    app = unfolded(opened(to_link(scenario(prompt_tokens=200_000, max_model_len=300_000))), "deployments")
    assert "prompt_tokens: expected with output_tokens at most 131,072" in words(app)


def test_where_kv_overtakes_the_weights_is_said_under_the_chart() -> None:
    edge = crossover(evaluate(Scenario.default()))
    assert edge is not None
    assert edge.sentence in html(opened())


def test_more_requests_than_run_at_once_wait_and_are_said_once() -> None:
    report = evaluate(scenario(target_requests=100))
    (note,) = (note for note in report.notes if note.field == "target_requests")
    assert html(opened(to_link(report.scenario))).count(text.html(note.text)) == 1


def test_a_first_token_target_that_binds_and_one_that_all_meet_are_rows() -> None:
    busy = html(opened(to_link(scenario(target_ttft_ms=1_500, busy=True))))
    idle = html(opened(to_link(scenario(target_ttft_ms=1_500))))
    assert "First token, 1.5 s" in busy
    assert "met by all" not in busy
    assert "First token, 1.5 s" in idle
    assert "met by all" in idle
    assert "misses your target of 0.1 s" in html(opened(to_link(scenario(target_ttft_ms=100))))


def test_a_prefix_below_one_block_saves_nothing_and_a_longer_one_says_what() -> None:
    below = html(opened(to_link(scenario(cached_prompt_tokens=15))))
    above = html(opened(to_link(scenario(cached_prompt_tokens=1_500))))
    assert "15 shared tokens do not fill one block of 16: nothing is saved." in below
    assert "The prompt alone typically takes" not in below
    assert "1,488 of 1,500 shared tokens are not computed again" in above  # 93 blocks of 16
    assert "The prompt alone typically takes" in above


def test_drafted_tokens_are_a_measured_range_with_its_sources_and_never_a_floor() -> None:
    report = evaluate(scenario(speculative_tokens=2))
    plain_report = evaluate(Scenario.default())
    assert report.drafted is not None
    shown = opened(to_link(report.scenario))
    assert text.html(report.drafted.sentence) in html(shown)
    assert "Measured range, not a floor" in html(shown)
    assert all(text.html(source.split()[0]) in html(shown) for source in report.drafted.sources)
    assert report.tpot is not None
    assert plain_report.tpot is not None
    assert report.tpot.floor_s == plain_report.tpot.floor_s
