"""The charts' words keep clear of each other, their data say what the report says, and no colour is named."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import altair as alt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc import Scenario, evaluate
from kvcalc.crossover import crossover
from kvcalc.curves import context_curve, tpot_curve
from kvcalc.report import Report
from kvcalc.speed_curves import conversation_curve, throughput_curve
from kvcalc.ui import chart_context, chart_difference, chart_memory, chart_output, chart_parts, chart_tpot
from kvcalc.ui.labels import Label, Place, Plot, at, pick_ticks, place, spread
from kvcalc.units import GIB
from tests.support import ROOT

LLAMA = "meta-llama/Llama-3.3-70B-Instruct"
SCENARIOS: dict[str, dict[str, Any]] = {
    "default": {"model": LLAMA},
    "window": {"model": "google/gemma-3-27b-it"},
    "window without its manager": {"model": "google/gemma-3-27b-it", "hybrid_manager": False},
    "latent": {"model": "deepseek-ai/DeepSeek-V3", "gpu": "h200-sxm", "tp": 8, "pp": 1},
    "one request": {"model": LLAMA, "tp": 2, "pp": 1, "weight_precision": "fp8", "prompt_tokens": 30_000},
    "engine cap": {"model": "meta-llama/Llama-3.2-1B-Instruct", "prompt_tokens": 100, "output_tokens": 100},
    "short model": {"model": "TinyLlama/TinyLlama-1.1B-Chat-v1.0"},
    "too slow": {"model": LLAMA, "target_tpot_ms": 20},
    "no target": {"model": LLAMA, "target_tpot_ms": None},
    "two replicas": {"model": LLAMA, "replicas": 2},
}


@pytest.fixture(params=SCENARIOS, scope="module")
def report(request: pytest.FixtureRequest) -> Report:
    return evaluate(Scenario(**SCENARIOS[request.param]))


def rows(spec: chart_parts.Spec, template: chart_parts.Spec, name: str) -> list[dict[str, Any]]:
    """The rows a chart shows under a name of its template."""
    index = next(i for i, layer in enumerate(template["layer"]) if layer["data"]["name"] == name)
    found: list[dict[str, Any]] = spec["layer"][index]["data"]["values"]
    return found


def boxes(labels: list[dict[str, Any]], plot: Plot) -> list[tuple[float, float, float, float]]:
    """Where labels lie, by a narrower estimate of their text than the one they were placed with."""
    found = []
    for row in labels:
        x, y = plot.pixels(row["x"], row["y"])
        width = len(row["t"]) * 5.0
        left = x + row["dx"] - {"left": 0, "center": width / 2, "right": width}[row["a"]]
        found.append((left, y + row["dy"] - 6, left + width, y + row["dy"] + 6))
    return found


def overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


@pytest.mark.parametrize("size", [size for size, _ in chart_parts.SIZES])
def test_no_two_labels_of_the_context_chart_overlap(report: Report, size: int) -> None:
    spec = chart_context.spec(context_curve(report), report)
    head = spec["layer"][0]["encoding"]
    x, y = (tuple(head[axis]["scale"]["domain"]) for axis in "xy")
    width = dict(chart_parts.SIZES)[size]
    plot = Plot(width=width, height=chart_parts.PLOT_HEIGHT, x_domain=x, y_domain=y, log=True, size=size)
    labels = [row for row in rows(spec, chart_context.template(), "labels") if row["n"] == size]
    assert labels
    assert not any(overlap(a, b) for a, b in itertools.combinations(boxes(labels, plot), 2))


def test_your_point_is_the_report_s(report: Report) -> None:
    curve = context_curve(report)
    spec = chart_context.spec(curve, report)
    (you,) = rows(spec, chart_context.template(), "you")
    assert you["x"] == report.context_tokens
    words = {row["t"] for row in rows(spec, chart_context.template(), "labels") if row["t"].startswith("You")}
    assert words == {f"You: {report.concurrency:,}"}


def test_the_users_context_is_among_the_ticks(report: Report) -> None:
    spec = chart_context.spec(context_curve(report), report)
    assert report.context_tokens in spec["layer"][0]["encoding"]["x"]["axis"]["values"]


def test_the_tpot_chart_ends_at_capacity_with_the_curve_s_figures(report: Report) -> None:
    curve = tpot_curve(report)
    spec = chart_tpot.spec(curve, report)
    last = rows(spec, chart_tpot.template(), "curve")[-1]
    assert last["x"] == curve.capacity_requests
    assert last["ty"] == pytest.approx(curve.points[-1].typical_s * 1000, rel=1e-3)  # four digits travel
    assert last["f"] == pytest.approx(curve.points[-1].floor_s * 1000, rel=1e-3)


def steps_by_length(report: Report) -> chart_parts.Spec:
    curve = conversation_curve(report)
    assert curve is not None
    return chart_tpot.by_length(curve, report, crossover(report))


def steps_by_requests(report: Report) -> chart_parts.Spec:
    return chart_tpot.spec(tpot_curve(report), report, crossover(report))


def output(report: Report) -> chart_parts.Spec:
    curve = throughput_curve(report)
    assert curve is not None
    return chart_output.spec(curve, report)


@pytest.mark.parametrize("size", [size for size, _ in chart_parts.SIZES])
@pytest.mark.parametrize(
    ("chart", "module"), [(steps_by_length, chart_tpot), (steps_by_requests, chart_tpot), (output, chart_output)]
)
def test_no_two_labels_of_the_speed_charts_overlap(
    report: Report, size: int, chart: Callable[[Report], chart_parts.Spec], module: ModuleType
) -> None:
    spec = chart(report)
    head = spec["layer"][0]["encoding"]
    x, y = (tuple(head[axis]["scale"]["domain"]) for axis in "xy")
    width = dict(chart_parts.SIZES)[size]
    plot = Plot(width=width, height=chart_parts.PLOT_HEIGHT, x_domain=x, y_domain=y, log=False, size=size)
    labels = [row for row in rows(spec, module.template(), "labels") if row["n"] == size]
    assert labels
    assert not any(overlap(a, b) for a, b in itertools.combinations(boxes(labels, plot), 2))


def test_the_edge_is_marked_exactly_where_it_lies_inside_the_plot(report: Report) -> None:
    edge, curve = crossover(report), tpot_curve(report)
    assert edge is not None
    marks = rows(steps_by_requests(report), chart_tpot.template(), "edge")
    inside = edge.edge_requests is not None and 1 <= edge.edge_requests < curve.capacity_requests
    assert [mark["x"] for mark in marks] == ([edge.edge_requests] if inside else [])


def test_a_conversation_is_drawn_to_the_last_length_that_fits(report: Report) -> None:
    curve = conversation_curve(report)
    assert curve is not None
    drawn = rows(steps_by_length(report), chart_tpot.template(), "curve")
    assert drawn[-1]["x"] == curve.longest_tokens
    here = next(point for point in curve.points if point.context_tokens == curve.longest_tokens)
    assert drawn[-1]["ty"] == pytest.approx(here.typical_s * 1000, rel=1e-3)  # four digits travel


def test_output_is_drawn_to_where_more_requests_wait(report: Report) -> None:
    curve = throughput_curve(report)
    assert curve is not None
    drawn = rows(output(report), chart_output.template(), "curve")
    assert drawn[-1]["x"] == curve.stops_at_requests
    assert drawn[-1]["ty"] == pytest.approx(curve.points[-1].tokens_per_s, rel=1e-3)
    why = "KV full at" if curve.memory_stops_it else "Engine cap"
    labels = [row["t"] for row in rows(output(report), chart_output.template(), "labels")]
    assert f"{why} {curve.stops_at_requests:,}: more requests wait" in labels


def test_the_target_s_line_ends_before_it_would_strike_out_a_name() -> None:
    near, far = (evaluate(Scenario(model=LLAMA, target_tpot_ms=ms)) for ms in (52, 100))
    assert near.tpot is not None
    assert abs(near.tpot.high_s * 1000 - 52) < 1
    ends = [rows(steps_by_requests(report), chart_tpot.template(), "target")[0]["x2"] for report in (near, far)]
    assert ends[0] == tpot_curve(near).capacity_requests < ends[1]


def test_the_memory_bar_has_no_gap_and_sums_to_the_card(report: Report) -> None:
    spec = chart_memory.spec(report.budget)
    pieces = rows(spec, chart_memory.template(), "segments")
    assert pieces[0]["x"] == 0
    assert all(left["x2"] == right["x"] for left, right in itertools.pairwise(pieces))
    assert pieces[-1]["x2"] == pytest.approx(report.budget.memory_bytes / GIB, rel=1e-5)  # six digits travel


def test_a_bar_that_does_not_fit_marks_the_budget_and_names_the_whole_weights() -> None:
    report = evaluate(Scenario(model=LLAMA, tp=1, pp=1))
    spec = chart_memory.spec(report.budget)
    template = chart_memory.template()
    mark = report.budget.requested_bytes / GIB
    over = rows(spec, template, "segments")[-1]
    assert over["role"] == "warn"
    assert (over["x"], over["x2"] - over["x"]) == pytest.approx((mark, report.shortfall_bytes / GIB), rel=1e-4)
    assert rows(spec, template, "budget")[0]["x"] == pytest.approx(mark, rel=1e-5)
    # 70,553,706,496 parameters x 2 bytes = 131.4 GiB, though the piece drawn ends at the budget
    assert "Weights 131 GiB" in {row["t"] for row in rows(spec, template, "inside")}


@pytest.mark.parametrize("chart", [chart_context, chart_difference, chart_memory, chart_output, chart_tpot])
def test_a_template_is_valid_vega_lite(chart: ModuleType) -> None:
    alt.LayerChart.from_dict(chart.template()).to_dict(validate=True)


def test_a_chart_keeps_its_template_as_it_was(report: Report) -> None:
    before = str(chart_context.template())
    chart_context.spec(context_curve(report), report)
    assert str(chart_context.template()) == before


def test_colours_are_named_in_one_place() -> None:
    found = {
        file.name: re.findall(r"#[0-9A-Fa-f]{6}\b|\brgb\(", file.read_text(encoding="utf-8"))
        for file in (ROOT / "kvcalc" / "ui").glob("*.py")
    }
    assert {name: colours for name, colours in found.items() if colours} == {}


PLOT = Plot(width=400, height=200, x_domain=(0, 400), y_domain=(0, 200), log=False)


def words(label: Label) -> list[str]:
    return [row["t"] for row in place([label], PLOT, [[(0, 100), (400, 100)]])]


def test_a_label_moves_to_the_other_side_of_a_line() -> None:
    onto, under = Place(0, 0, dy=0), Place(0, 0, dy=12)
    label = Label("a long name", "short", "ink", at(10, 100, onto, under))
    (row,) = place([label], PLOT, [[(0, 100), (400, 100)]])
    assert (row["t"], row["dy"]) == ("a long name", 12)


def test_a_label_without_room_says_less_and_then_nothing() -> None:
    edge = at(380, 50, Place(0, 0))  # 20 pixels to the edge: three letters of six pixels fit
    assert words(Label("a long name", "abc", "ink", edge)) == ["abc"]
    assert words(Label("a long name", "another one", "ink", edge)) == []
    assert words(Label("a long name", "another one", "ink", edge, required=True)) == ["a long name"]


@given(st.lists(st.floats(0, 200), min_size=1, max_size=6))
def test_spread_positions_keep_their_order_and_their_distance(wanted: list[float]) -> None:
    moved = spread(wanted, 15, 0, 200)
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    assert all(moved[b] - moved[a] >= 15 - 1e-9 for a, b in itertools.pairwise(order))
    assert all(-1e-9 <= position <= 200 for position in moved)


def test_the_most_wanted_ticks_are_kept() -> None:
    # At 100 pixels, 0.5 is 50 pixels from either end and 0.6 is 10 from it.
    assert pick_ticks([0.0, 1.0, 0.5, 0.6], 100, lambda value: value, gap=50) == [0.0, 0.5, 1.0]
    assert pick_ticks([0.0, 1.0, 0.5, 0.6], 100, lambda value: value, gap=51) == [0.0, 1.0]
