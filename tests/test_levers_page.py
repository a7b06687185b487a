"""The Levers and Compare views and the mistakes on Capacity, without a browser."""

from __future__ import annotations

import itertools
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode

import altair as alt
import pytest
from streamlit.testing.v1 import AppTest

from kvcalc import Scenario, evaluate, to_link
from kvcalc.compare_link import read_compared, to_compare_link
from kvcalc.comparison import Comparison, compare
from kvcalc.fragmentation import fragmentation
from kvcalc.levers import levers
from kvcalc.mistakes import mistakes
from kvcalc.ui import chart_compare, chart_parts, chart_waterfall, inputs, state, text
from kvcalc.ui.capacity_tables import mistakes_html
from kvcalc.ui.labels import Plot
from kvcalc.units import GIB, fmt_count, fmt_gib
from kvcalc.waterfall import Waterfall
from tests.test_app import figures, opened, plain, run, typed, verdict
from tests.test_charts import boxes, overlap, rows

LLAMA = "meta-llama/Llama-3.3-70B-Instruct"
A = Scenario.default()
B = A.model_copy(update={"kv_precision": "fp8"})
C = A.model_copy(update={"gpu": "h200-sxm"})
D = Scenario(model="google/gemma-3-27b-it", prompt_tokens=12_000)
LIMIT = {"model": LLAMA, "weight_precision": "fp8", "tp": 2, "pp": 1}


def tables(app: AppTest) -> str:
    return " ".join(element.proto.body for element in app.get("html"))


def address(app: AppTest) -> str:
    """The query string in the address bar."""
    pairs = {name: value[0] if isinstance(value, list) else value for name, value in app.query_params.items()}
    return urlencode(pairs)


# Levers


def sessions(link: str = "", **typed_in: str) -> AppTest:
    app = opened(f"view=levers&{link}".rstrip("&"))
    for name, words in typed_in.items():
        app.text_input(key=f"levers_{name}").set_value(words)
    return run(app)


def test_the_levers_answer_for_the_sessions_in_the_link() -> None:
    app = opened(f"view=levers&{to_link(A)}&sessions=100&active=40")
    found = levers(A, sessions=100, active=40)
    assert verdict(app) == found.waterfall.sentence
    assert figures(app)["KV now"] == fmt_gib(found.waterfall.now_bytes)
    # 100 sessions x 8,000 tokens x 320 KiB = 244 GiB; ÷ 2 for FP8, 40 of 100 stay.
    assert figures(app)["KV now"] == "244 GiB"
    assert figures(app)["KV with these levers"] == "48.8 GiB"


def test_typed_sessions_reach_the_answer_and_the_address() -> None:
    app = sessions(sessions="1,000", active="40")
    assert verdict(app) == levers(A, sessions=1_000, active=40).waterfall.sentence
    pairs = dict(parse_qsl(address(app)))
    assert (pairs["sessions"], pairs["active"]) == ("1000", "40")
    assert pairs["model"] == A.model


def test_sessions_that_are_no_number_are_said_once_and_the_last_answer_stays() -> None:
    app = sessions(sessions="100")
    before = figures(app)
    app.text_input(key="levers_sessions").set_value("many")
    run(app)
    assert [plain(box.value) for box in app.warning] == [
        "sessions: expected a whole number, got 'many'. Type digits only, or leave it empty for the default."
    ]
    assert figures(app) == before
    assert app.text_input(key="levers_sessions").value == "many"


def test_every_lever_that_works_is_a_link_and_every_other_says_why() -> None:
    shown = tables(opened("view=levers"))
    for lever in levers(A).levers:
        assert text.html(lever.title) in shown
        if lever.why_not is not None:
            assert text.html(lever.why_not) in shown
        elif lever.scenario is not None:
            assert f'href="?view=levers&amp;{text.html(to_link(lever.scenario))}"' in shown


def test_families_come_in_the_order_of_their_effect() -> None:
    titles = [element.value for element in opened("view=levers").subheader]
    families = ["Architecture", "Quantisation", "Offload", "Layout", "Engine settings"]
    assert [title for title in titles if title in families] == families


def test_pasted_lengths_replace_the_scenario_s_own() -> None:
    app = opened("view=levers")
    app.session_state["fold_lengths"] = True
    run(app).text_area(key="lengths_text").set_value("500, 1000\n30000")
    shown = [plain(element.value) for element in run(app).main.markdown]
    assert fragmentation(A, (500, 1_000, 30_000)).sentence in shown
    assert fragmentation(A).sentence not in shown


def test_pasted_lengths_without_a_number_are_refused_and_the_section_stays() -> None:
    app = opened("view=levers")
    app.session_state["fold_lengths"] = True
    run(app).text_area(key="lengths_text").set_value("none at all")
    run(app)
    assert "lengths: expected whole numbers of tokens" in plain(app.warning[0].value)
    assert fragmentation(A).sentence in [plain(element.value) for element in app.main.markdown]


def test_a_model_that_does_not_fit_says_so_first() -> None:
    scenario = Scenario(model="deepseek-ai/DeepSeek-V3", tp=2, pp=1)
    assert verdict(opened(f"view=levers&{to_link(scenario)}")) == evaluate(scenario).sentence


# Compare


def comparison(app: AppTest) -> list[Scenario]:
    """The scenarios beside the first, by the address."""
    found = read_compared(address(app))
    assert found.notes == ()
    return list(found.scenarios.values())


def choose(app: AppTest, letter: str) -> AppTest:
    app.button_group(key="compare_edit").set_value(letter)
    return run(app)


def test_one_scenario_alone_says_what_to_do() -> None:
    app = opened("view=compare")
    assert verdict(app) == "Add B: copy A and change one input."
    assert figures(app) == {"A: now": fmt_count(evaluate(A).total_concurrency)}


def test_a_link_opens_all_its_scenarios() -> None:
    app = opened(f"view=compare&{to_compare_link(A, (B, C, D))}")
    found = compare((A, B, C, D))
    assert verdict(app) == found.sentence
    assert list(figures(app).values()) == [fmt_count(x.report.total_concurrency) for x in found.columns]
    assert comparison(app) == [B, C, D]
    assert not app.info


def test_a_copy_is_edited_and_the_first_stays() -> None:
    app = opened("view=compare")
    app.button(key="compare_copy").click()
    run(app)
    assert comparison(app) == [A]
    app.selectbox(key=inputs.key("kv_precision")).set_value("fp8")
    assert verdict(run(app)) == compare((A, B)).sentence
    assert comparison(app) == [B]
    assert "kv=auto" in address(app), "the address's own scenario is A"
    assert choose(app, "A").selectbox(key=inputs.key("kv_precision")).value == "auto"
    assert choose(app, "B").selectbox(key=inputs.key("kv_precision")).value == "fp8"


def test_a_field_left_by_choosing_another_scenario_is_not_lost() -> None:
    app = opened(f"view=compare&{to_compare_link(A, (B,))}")
    app.text_input(key=inputs.key("prompt_tokens")).set_value("15,000")
    choose(app, "B")
    longer = A.model_copy(update={"prompt_tokens": 15_000})
    assert app.text_input(key=inputs.key("prompt_tokens")).value == "7,000"
    assert verdict(app) == compare((longer, B)).sentence
    assert "prompt=15000" in address(app)


def test_a_bad_input_of_one_scenario_leaves_the_comparison_as_it_was() -> None:
    app = choose(opened(f"view=compare&{to_compare_link(A, (B,))}"), "B")
    before = figures(app)
    typed(app, "prompt_tokens", "seven")
    assert "prompt_tokens: expected a whole number" in plain(app.warning[0].value)
    assert figures(app) == before
    assert comparison(app) == [B]


def paste_link(app: AppTest, words: str) -> AppTest:
    app.session_state["compare_paste_box"] = True
    run(app).text_input(key="compare_pasted").set_value(words)
    return run(app)


def test_a_pasted_link_becomes_the_next_scenario() -> None:
    app = paste_link(opened(f"view=compare&{to_compare_link(A, (B,))}"), f"https://example.org/?{to_link(C)}")
    assert verdict(app) == compare((A, B, C)).sentence
    assert comparison(app) == [B, C]


def test_what_is_no_link_is_refused_near_its_box() -> None:
    app = paste_link(opened("view=compare"), "hello")
    assert [plain(box.value) for box in app.warning] == [
        "link: expected a link of this page, got 'hello'. Copy it from Share."
    ]
    assert comparison(app) == []


def test_a_removed_scenario_leaves_the_others_their_letters() -> None:
    app = choose(opened(f"view=compare&{to_compare_link(A, (B, C))}"), "B")
    next(button for button in app.button if button.label == "Remove B").click()
    assert list(figures(run(app))) == ["A: now", "C: 4 × H200 SXM"]
    assert "b" not in parse_qs(address(app))
    assert comparison(app) == [C]


def test_a_bad_scenario_of_a_link_is_named_and_the_others_are_shown() -> None:
    app = opened(f"view=compare&{to_link(A)}&{urlencode({'b': 'rubbish', 'c': to_link(C)})}")
    assert "B: link: expected a link of this page, got 'rubbish'." in plain(app.info[0].value)
    assert list(figures(app)) == ["A: now", "C: 4 × H200 SXM"]


def test_leaving_compare_shows_its_first_scenario_again() -> None:
    app = choose(opened(f"view=compare&{to_compare_link(A, (B,))}"), "B")
    assert app.selectbox(key=inputs.key("kv_precision")).value == "fp8"
    app.query_params = dict(parse_qsl(to_link(A)))
    assert run(app).selectbox(key=inputs.key("kv_precision")).value == "auto"
    assert verdict(app) == evaluate(A).sentence


def test_a_pinned_scenario_waits_in_compare() -> None:
    app = opened(to_link(A))
    app.session_state["share_box"] = True
    pin = next(button for button in run(app).button if button.label == "Pin to compare")
    pin.click()
    assert "Pinned as B." in " ".join(plain(element.value) for element in run(app).markdown)
    assert app.session_state[state._OWN] == {"b": to_link(A)}
    assert "b" not in parse_qs(address(app)), "Capacity's address is its own scenario"


# Mistakes


def test_a_healthy_scenario_has_no_mistakes_on_its_page() -> None:
    assert mistakes(evaluate(A)) == ()
    assert "Likely mistakes" not in tables(opened())


def test_mistakes_stand_on_capacity_with_their_moves() -> None:
    # 131,072 tokens x 320 KiB = 40 GiB over 2 GPUs: one such request takes nearly the whole pool.
    scenario = Scenario(**LIMIT, max_model_len=131_072)
    found = mistakes(evaluate(scenario))
    assert [row.id for row in found][:1] == ["limit_not_batched"]
    assert mistakes_html(found) in tables(opened(to_link(scenario)))
    for row in found:
        assert row.scenario is None or f'href="?{text.html(to_link(row.scenario))}"' in mistakes_html(found)


# Charts


WATERFALLS: dict[str, dict[str, Any]] = {
    "default": {"scenario": A, "sessions": 100, "active": 40},
    "nothing idle": {"scenario": A},
    "latent, repeated": {"scenario": Scenario(model="deepseek-ai/DeepSeek-V3", gpu="h200-sxm", tp=8, pp=1)},
    "windows": {"scenario": D},
    "does not fit": {"scenario": Scenario(model="deepseek-ai/DeepSeek-V3", tp=2, pp=1)},
}


@pytest.fixture(params=WATERFALLS, scope="module")
def fall(request: pytest.FixtureRequest) -> Waterfall:
    return levers(**WATERFALLS[request.param]).waterfall


def test_bars_join_and_end_at_what_the_levers_leave(fall: Waterfall) -> None:
    bars = rows(chart_waterfall.spec(fall), chart_waterfall.template(), "bars")
    assert all(left["x2"] == right["x"] for left, right in itertools.pairwise(bars))
    assert bars[-1]["x2"] == pytest.approx(fall.end_bytes / GIB, rel=1e-3)  # four digits travel


@pytest.mark.parametrize("size", [size for size, _ in chart_parts.SIZES])
def test_no_two_labels_of_the_waterfall_overlap(fall: Waterfall, size: int) -> None:
    spec = chart_waterfall.spec(fall)
    x, y = (tuple(spec["layer"][0]["encoding"][axis]["scale"]["domain"]) for axis in "xy")
    height = spec["height"] - 56.0
    plot = Plot(dict(chart_parts.SIZES)[size], height, x, y, log=False, size=size, log_x=True)
    labels = [row for row in rows(spec, chart_waterfall.template(), "labels") if row["n"] == size]
    assert not any(overlap(a, b) for a, b in itertools.combinations(boxes(labels, plot), 2))
    assert {step.title for step in fall.steps} <= {row["t"] for row in labels}


def test_a_step_that_repeats_kv_is_a_factor_upwards() -> None:
    found = levers(WATERFALLS["latent, repeated"]["scenario"]).waterfall
    # One latent cannot be split over 8 ranks: each keeps it whole.
    assert [chart_waterfall.factor(step) for step in found.steps if step.id == "repeats"] == ["× 8"]


COMPARISONS = {"two": (A, B), "three": (A, B, C), "four": (A, B, C, D), "alike": (A, A, A)}


@pytest.fixture(params=COMPARISONS, scope="module")
def compared(request: pytest.FixtureRequest) -> Comparison:
    return compare(COMPARISONS[request.param])


@pytest.mark.parametrize("size", [size for size, _ in chart_parts.SIZES])
def test_no_two_labels_of_a_comparison_overlap(compared: Comparison, size: int) -> None:
    spec = chart_compare.spec(compared)
    x, y = (tuple(spec["layer"][0]["encoding"][axis]["scale"]["domain"]) for axis in "xy")
    plot = Plot(dict(chart_parts.SIZES)[size], chart_parts.PLOT_HEIGHT, x, y, log=True, size=size)
    labels = [row for row in rows(spec, chart_compare.template(), "labels") if row["n"] == size]
    assert not any(overlap(a, b) for a, b in itertools.combinations(boxes(labels, plot), 2))
    names = {row["t"][0] for row in labels if row["t"][0].isalpha()}
    assert names == {column.letter for column in compared.columns}


def test_each_scenario_stands_at_its_own_context(compared: Comparison) -> None:
    spec = chart_compare.spec(compared)
    points = rows(spec, chart_compare.template(), "points")
    assert [point["x"] for point in points] == list(compared.context_tokens)
    assert [int(point["y"]) for point in points] == [column.report.total_concurrency for column in compared.columns]


@pytest.mark.parametrize("chart", [chart_compare, chart_waterfall])
def test_a_template_is_valid_vega_lite(chart: Any) -> None:
    alt.LayerChart.from_dict(chart.template()).to_dict(validate=True)


@pytest.mark.parametrize(("field", "count"), [("sessions", "0"), ("active", "0")])
def test_no_session_at_all_is_refused_by_field(field: str, count: str) -> None:
    for app in (sessions(**{field: count}), sessions(f"{to_link(A)}&{field}={count}")):
        (alert,) = app.warning
        assert plain(alert.value).startswith(f"{field}: expected a whole number from 1, got 0.")


def test_scenarios_that_hold_nothing_are_compared_without_a_chart() -> None:
    small = Scenario(model="deepseek-ai/DeepSeek-V3", tp=1, pp=1)
    app = opened(f"view=compare&{to_compare_link(small, (small.model_copy(update={'kv_precision': 'fp8'}),))}")
    assert app.get("vega_lite_chart") == []
    assert compare((small, small)).curves == ((), ())


def test_one_that_holds_nothing_leaves_the_others_their_lines() -> None:
    small = Scenario(model="deepseek-ai/DeepSeek-V3", tp=1, pp=1)
    spec = chart_compare.spec(compare((small, A)))
    assert "B: " in str(spec)
