"""Requests at once against tokens per request, on log axes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import altair as alt

from kvcalc.curves import ContextCurve, ContextPoint
from kvcalc.report import Report
from kvcalc.scenario_notes import ENGINE_NAMES
from kvcalc.ui import chart_parts as parts
from kvcalc.ui.labels import (
    ABOVE_LEFT,
    ABOVE_RIGHT,
    BELOW_LEFT,
    BELOW_RIGHT,
    Label,
    Place,
    Plot,
    Point,
    along,
    at,
    pick_ticks,
    place,
    round_sig,
)
from kvcalc.units import fmt_count, fmt_tokens

_STEPS = (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000)
_POWERS = (512, 1_024, 4_096, 16_384, 65_536, 262_144, 1_048_576)
_MIDDLE = (0.5, 0.4, 0.6, 0.3, 0.7, 0.2, 0.8, 0.1, 0.9)
"""Where along a line its name is tried, from the middle outwards. [share of its points]"""
_ROOM = 2.4
"""Space above the highest line, as a factor: the target line and the limits' names need it."""


@lru_cache(maxsize=1)
def template() -> parts.Spec:
    """The chart without data."""
    curve = parts.source("curve")
    inside, beyond = curve.transform_filter("isValid(datum.r)"), curve.transform_filter("isValid(datum.b)")
    ideal, slab = (curve.transform_filter(f"isValid(datum.{name})") for name in ("i", "s"))
    x = alt.X("x:Q")
    layers = [
        parts.frame("Tokens per request, prompt + output (log scale)", "Requests at once (log scale)", log=True),
        inside.mark_area(fill=parts.ink("wash"), fillOpacity=0.45, clip=True).encode(x=x, y="r:Q", y2=alt.Y2("lo:Q")),
        parts.source("rules")
        .mark_rule(
            stroke=parts.ink("mid"),
            strokeDash=alt.ExprRef("datum.d ? [2, 3] : [1, 0]"),
            strokeWidth=alt.ExprRef("datum.k"),
        )
        .encode(x=x, y="y:Q", y2="y2:Q"),
        slab.mark_line(stroke=parts.ink("mid"), strokeWidth=1.5, strokeDash=[2, 3], clip=True).encode(x=x, y="s:Q"),
        parts.source("speed")
        .mark_line(stroke=parts.ink("warn"), strokeWidth=1.75, strokeDash=[7, 4], clip=True)
        .encode(x=x, y="y:Q"),
        ideal.mark_line(stroke=parts.ink("ink"), strokeWidth=1.5, strokeDash=[9, 3, 2, 3], clip=True).encode(
            x=x, y="i:Q"
        ),
        beyond.mark_line(stroke=parts.ink("accent"), strokeWidth=2.75, opacity=0.4, clip=True).encode(x=x, y="b:Q"),
        inside.mark_line(stroke=parts.ink("accent"), strokeWidth=2.75, clip=True).encode(x=x, y="r:Q"),
        parts.source("knees")
        .mark_point(
            shape="diamond", size=70, filled=True, fill=parts.ink("ground"), stroke=parts.ink("ink"), strokeWidth=1.5
        )
        .encode(x=x, y="y:Q"),
        parts.disc("you", x),
        *parts.label_layers(),
    ]
    return parts.finish(layers)


@dataclass(frozen=True)
class _View:
    """What is drawn: the curve, the reader's own point, and the axes' domains."""

    curve: ContextCurve
    context: int
    requests: int
    """Whole requests, for words."""
    height: float
    """Where the reader's point is drawn: on the line when the line, rounded down, is its answer."""
    engine: str
    target_ms: int | None
    x: tuple[float, float]
    y: tuple[float, float]

    def ideal(self, point: ContextPoint) -> float | None:
        """The ideal line's height; None where it would hide under the reserved one."""
        return None if self.curve.ideal_is_reserved else point.ideal_requests

    def slab(self, point: ContextPoint) -> float | None:
        """The slab line's height; None past the engine's limit, and where the cap hides any difference."""
        hidden = self.curve.points[-1].slab_requests >= self.curve.engine_cap
        return None if hidden or not point.within_engine_limit else point.slab_requests

    @property
    def shows_you(self) -> bool:
        return self.x[0] <= self.context <= self.x[1]


def spec(curve: ContextCurve, report: Report) -> parts.Spec:
    """The chart of this curve."""
    view = _view(curve, report)
    labels = []
    for size, width in parts.SIZES:
        plot = Plot(width=width, height=parts.PLOT_HEIGHT, x_domain=view.x, y_domain=view.y, log=True, size=size)
        labels += place(_labels(view, plot), plot, _lines(view))
    narrow_ticks, wide = (_x_ticks(view, width) for _, width in parts.SIZES[:2])
    filled = parts.set_axes(
        template(),
        x_domain=view.x,
        y_domain=view.y,
        x_ticks=sorted({*wide, *narrow_ticks}),
        y_ticks=[tick for tick in _STEPS if view.y[0] <= tick <= view.y[1]],
        y_title=f"Requests at once{' on each replica' if report.scenario.replicas > 1 else ''} (log scale)",
        narrow_x_ticks=narrow_ticks,
    )
    data = {
        "frame": [{"x": view.x[0], "y": view.y[0]}],
        "curve": _rows(view),
        "speed": [{"x": point.context_tokens, "y": round_sig(point.requests)} for point in curve.speed],
        "rules": _rules(view),
        "knees": [{"x": tokens, "y": round_sig(height)} for _, tokens, height in _knees(view)],
        "you": [{"x": view.context, "y": round_sig(max(view.height, view.y[0]))}] if view.shows_you else [],
        "labels": labels,
    }
    return parts.fill(filled, data)


def _view(curve: ContextCurve, report: Report) -> _View:
    contexts = [point.context_tokens for point in curve.points]
    highest = max(point.reserved_requests for point in curve.points)
    if not curve.ideal_is_reserved:
        highest = max(highest, min(curve.points[0].ideal_requests, 3 * highest))
    return _View(
        curve=curve,
        context=report.context_tokens,
        requests=report.concurrency,
        height=_own_height(curve, report),
        engine=ENGINE_NAMES[report.scenario.engine],
        target_ms=report.scenario.target_tpot_ms,
        x=(min(contexts), max(contexts)),
        y=(1.0, max(10.0, highest * _ROOM)),
    )


def _own_height(curve: ContextCurve, report: Report) -> float:
    drawn = {point.context_tokens: point.reserved_requests for point in curve.points}
    exact = drawn.get(report.context_tokens, 0.0)
    return exact if int(exact) == report.concurrency else float(report.concurrency)


def _rows(view: _View) -> list[dict[str, Any]]:
    """One row per point; a value that is not drawn there is left out."""
    last_inside = max((p.context_tokens for p in view.curve.points if p.within_engine_limit), default=0)
    rows = []
    for point in view.curve.points:
        values = {
            "r": point.reserved_requests if point.within_engine_limit else None,
            "b": point.reserved_requests if point.context_tokens >= last_inside else None,
            "i": view.ideal(point),
            "s": view.slab(point),
        }
        drawn = {name: round_sig(value) for name, value in values.items() if value is not None and value > 0}
        rows.append({"x": point.context_tokens, "lo": view.y[0], **drawn})
    return rows


def _rules(view: _View) -> list[dict[str, Any]]:
    """Upright lines: both limits, and the one from the reader's point to its tick."""
    low, high = view.y
    model, engine = view.curve.model_limit, view.curve.engine_limit
    rows: list[dict[str, Any]] = []
    if model is not None and view.x[0] < model <= view.x[1]:
        rows.append({"x": model, "y": low, "y2": high, "d": 0, "k": 2})
    if view.x[0] < engine <= view.x[1] and engine != model:
        rows.append({"x": engine, "y": low, "y2": high, "d": 1, "k": 1.25})
    if view.shows_you and view.height > low:
        rows.append({"x": view.context, "y": low, "y2": round_sig(min(view.height, high)), "d": 1, "k": 1})
    return rows


def _height(view: _View, context: float) -> float:
    """Height of the drawn line at a context: straight between points on log axes, as the browser draws it."""
    points = view.curve.points
    for left, right in itertools.pairwise(points):
        if (
            left.context_tokens <= context <= right.context_tokens
            and min(left.reserved_requests, right.reserved_requests) > 0
        ):
            share = math.log(context / left.context_tokens) / math.log(right.context_tokens / left.context_tokens)
            return float(left.reserved_requests * (right.reserved_requests / left.reserved_requests) ** share)
    return points[-1].reserved_requests


def _knees(view: _View) -> list[tuple[str, int, float]]:
    """(title, tokens, height) of every knee inside the plot."""
    found = [(title, tokens, _height(view, tokens)) for title, tokens in view.curve.knees]
    return [row for row in found if view.x[0] < row[1] < view.x[1] and view.y[0] < row[2] < view.y[1]]


def _x_ticks(view: _View, width: float) -> list[float]:
    low, high = view.x
    span = math.log(high / low)
    wanted = [view.context, high, view.curve.engine_limit, low, *(tokens for _, tokens in view.curve.knees), *_POWERS]
    inside = [tick for tick in wanted if low <= tick <= high]
    return pick_ticks(inside, width, lambda value: math.log(value / low) / span)


def _lines(view: _View) -> list[list[Point]]:
    """Everything a label must not cross."""
    low, high = view.y
    points = view.curve.points

    def drawn(values: Iterable[tuple[int, float | None]]) -> list[Point]:
        return [(x, min(max(y, low / 2), high * 2)) for x, y in values if y is not None and y > 0]

    lines: list[list[Point]] = [
        drawn((p.context_tokens, p.reserved_requests) for p in points),
        drawn((p.context_tokens, view.ideal(p)) for p in points),
        drawn((p.context_tokens, view.slab(p)) for p in points),
        drawn((p.context_tokens, p.requests) for p in view.curve.speed),
        [(view.context, low), (view.context, max(view.height, low))],
    ]
    limits = (view.curve.engine_limit, view.curve.model_limit)
    lines += [[(limit, low), (limit, high)] for limit in limits if limit is not None]
    return lines


def _labels(view: _View, plot: Plot) -> list[Label]:
    words = f"You: {fmt_count(view.requests)}" if view.requests else "You: none"
    sides = [ABOVE_RIGHT, BELOW_LEFT, ABOVE_LEFT, BELOW_RIGHT]
    if plot.narrow:
        sides = [BELOW_LEFT, ABOVE_RIGHT, ABOVE_LEFT, BELOW_RIGHT]
    further = [Place(0, 0, dx=side.dx * 1.5, dy=side.dy * 1.5, align=side.align) for side in sides]
    labels = []
    if view.shows_you:
        where = at(view.context, max(view.height, view.y[0]), *sides, *further)
        labels.append(Label(words, words, "ink", where, bold=True, required=True))
    labels += [*_limit_labels(view), *_line_labels(view)]
    for title, tokens, height in _knees(view):
        where = at(tokens, height, BELOW_LEFT, ABOVE_RIGHT, ABOVE_LEFT, BELOW_RIGHT)
        number = fmt_tokens(tokens)
        labels.append(Label(f"{title.capitalize()} full, {number}", number, "mid", where))
    return labels


def _limit_labels(view: _View) -> list[Label]:
    left = [Place(0, 0, dx=-6, dy=dy, align="right") for dy in (8, 24, 40)]
    right = [Place(0, 0, dx=6, dy=dy, align="left") for dy in (8, 24)]
    model, engine, top = view.curve.model_limit, view.curve.engine_limit, view.y[1]
    labels = []
    if model is not None and model <= view.x[1]:
        both = model == engine
        words = f"Model and engine limit {fmt_tokens(model)}" if both else f"Model limit {fmt_tokens(model)}"
        labels.append(Label(words, "Both limits" if both else "Model", "mid", at(model, top, *left, *right)))
    if engine != model and view.x[0] < engine <= view.x[1]:
        where = at(engine, top, *left, *right)
        labels.append(Label(f"Engine limit {fmt_tokens(engine)}", "Engine limit", "mid", where))
    return labels


def _line_labels(view: _View) -> list[Label]:
    low, high = view.y
    curve, engine = view.curve, view.engine

    def visible(values: Iterable[tuple[int, float | None]]) -> list[Point]:
        return [(x, y) for x, y in values if y is not None and low * 1.2 < y < high * 0.85]

    inside = [point for point in curve.points if point.within_engine_limit]
    labels = []
    if curve.points[0].reserved_requests >= curve.engine_cap:
        cap = fmt_count(curve.engine_cap)
        where = at(curve.points[0].context_tokens, curve.engine_cap, ABOVE_RIGHT, BELOW_RIGHT)
        labels.append(Label(f"Engine cap {cap}", f"Cap {cap}", "accent", where))
    words = f"{engine} reserves (ideal is within 1%)" if curve.ideal_is_reserved else f"{engine} reserves"
    short = f"{engine}, ideal +1%" if curve.ideal_is_reserved else engine
    where = along(visible((p.context_tokens, p.reserved_requests) for p in inside), _MIDDLE, (BELOW_LEFT, ABOVE_RIGHT))
    labels.append(Label(words, short, "accent", where, halo=False))
    if view.target_ms is not None:
        target = f"{fmt_count(view.target_ms)} ms"
        where = along(visible((p.context_tokens, p.requests) for p in curve.speed), _MIDDLE, (ABOVE_RIGHT, BELOW_LEFT))
        labels.append(Label(f"Speed target {target}", target, "warn", where))
    # Only above its line: below it the name would stand at the reserved one.
    where = along(visible((p.context_tokens, view.ideal(p)) for p in curve.points), _MIDDLE, (ABOVE_RIGHT, ABOVE_LEFT))
    labels.append(Label("Ideal: only what attention needs", "Ideal", "ink", where))
    limit = fmt_tokens(curve.engine_limit)
    slab = visible((p.context_tokens, view.slab(p)) for p in inside)
    where = along(slab, (0, 0.1, 0.25, 0.4), (Place(0, 0, 6, -10), Place(0, 0, 6, 10)))
    labels.append(Label(f"Slab: each request reserves {limit}", f"Slab, {limit} each", "mid", where, halo=False))
    return labels
