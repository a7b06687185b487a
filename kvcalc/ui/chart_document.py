"""Requests at once against tokens per request, with two points: a request today, and one with the document."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import altair as alt

from kvcalc.document import DocumentAnswer
from kvcalc.request_cost import RequestFigures
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

_STEPS = (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
_ROOM = 1.8
"""Space above the line, as a factor, for the label of the highest point."""
_PAST = 1.4
"""How far the axis goes past the model's limit, as a factor."""
_MIDDLE = (0.5, 0.35, 0.65, 0.2, 0.8)


@lru_cache(maxsize=1)
def template() -> parts.Spec:
    """The chart without data."""
    x, curve = alt.X("x:Q"), parts.source("curve")
    layers = [
        parts.frame("Tokens per request (log scale)", "Requests at once (log scale)", log=True),
        curve.mark_area(fill=parts.ink("wash"), fillOpacity=0.45, clip=True).encode(x=x, y="y:Q", y2=alt.Y2("lo:Q")),
        parts.source("rules").mark_rule(stroke=parts.ink("mid"), strokeWidth=2).encode(x=x, y="y:Q", y2="y2:Q"),
        curve.mark_line(stroke=parts.ink("accent"), strokeWidth=2.75, clip=True).encode(x=x, y="y:Q"),
        parts.source("range")
        .mark_rule(stroke=parts.ink("soft"), strokeWidth=5, strokeCap="round", clip=True)
        .encode(x=x, x2="x2:Q", y="y:Q"),
        parts.disc("points", x),
        *parts.label_layers(),
    ]
    return parts.finish(layers)


class _View:
    """What is drawn, in data coordinates. The line ends where the model reads no further."""

    def __init__(self, found: DocumentAnswer) -> None:
        self.found = found
        today, document, limit = found.today, found.document, found.reach.model_limit
        points = [(float(point.context_tokens), point.requests) for point in found.curve]
        end = points[-1][0]
        if limit is not None and limit < end:
            end = max(_PAST * limit, _PAST * document.context_tokens)
            points = [*(point for point in points if point[0] < limit), (float(limit), _height(points, limit))]
        self.model_limit = None if limit is None or limit >= end else float(limit)
        lowest = min(points[-1][1], today.requests, document.requests)
        floor = max(step for step in _STEPS if step <= max(1.0, lowest))
        self.x = (points[0][0], end)
        self.y = (float(floor), max(10.0, points[0][1] * _ROOM))
        self.line: list[Point] = [(x, max(y, self.y[0] / 2)) for x, y in points]
        self.today, self.document = self._point(today), self._point(document)
        possible = found.reach.is_possible
        self.low = float(found.fewest_tokens.context_tokens) if possible else self.document[0]
        self.high = min(end, float(found.most_tokens.context_tokens)) if possible else self.document[0]

    def _point(self, figures: RequestFigures) -> Point:
        """On the line where that says the same, rounded down; at the foot where nothing runs."""
        context = float(figures.context_tokens)
        drawn = _height(self.line, context)
        own = drawn if int(drawn) == figures.requests else float(figures.requests)
        return context, max(own, self.y[0])

    @property
    def spread(self) -> str:
        """Requests at the most and the fewest tokens; empty where they are the same."""
        least, most = fmt_count(self.found.most_tokens.requests), fmt_count(self.found.fewest_tokens.requests)
        return "" if least == most else f"{least} to {most}"


def _height(line: Sequence[Point], context: float) -> float:
    """Height of the line there: straight between points on log axes, as the browser draws it."""
    for left, right in itertools.pairwise(line):
        if left[0] <= context <= right[0] and min(left[1], right[1]) > 0:
            share = math.log(context / left[0]) / math.log(right[0] / left[0])
            return float(left[1] * (right[1] / left[1]) ** share)
    return 0.0


def spec(found: DocumentAnswer) -> parts.Spec:
    """The chart of this answer."""
    view = _View(found)
    labels = []
    for size, width in parts.SIZES:
        plot = Plot(width=width, height=parts.PLOT_HEIGHT, x_domain=view.x, y_domain=view.y, log=True, size=size)
        labels += place(_labels(view), plot, _lines(view))
    narrow, wide = (_ticks(view, width) for _, width in parts.SIZES[:2])
    filled = parts.set_axes(
        template(),
        x_domain=view.x,
        y_domain=view.y,
        x_ticks=sorted({*narrow, *wide}),
        y_ticks=[step for step in _STEPS if view.y[0] <= step <= view.y[1]],
        narrow_x_ticks=narrow,
    )
    limit = view.model_limit
    data: dict[str, list[dict[str, Any]]] = {
        "frame": [{"x": view.x[0], "y": view.y[0]}],
        "curve": [{"x": x, "y": round_sig(y), "lo": view.y[0]} for x, y in view.line],
        "rules": [] if limit is None else [{"x": limit, "y": view.y[0], "y2": view.y[1]}],
        "range": _range(view),
        "points": [{"x": x, "y": round_sig(y)} for x, y in (view.today, view.document)],
        "labels": labels,
    }
    return parts.fill(filled, data)


def _range(view: _View) -> list[dict[str, Any]]:
    if view.low == view.high:
        return []
    return [{"x": view.low, "x2": view.high, "y": round_sig(view.document[1])}]


def _ticks(view: _View, width: float) -> list[float]:
    low, high = view.x
    span = math.log(high / low)
    wanted = [view.document[0], view.today[0], high, low]
    return pick_ticks(wanted, width, lambda value: math.log(value / low) / span)


def _lines(view: _View) -> list[list[Point]]:
    """Everything a label must not cross."""
    lines = [view.line, [(view.low, view.document[1]), (view.high, view.document[1])]]
    if view.model_limit is not None:
        lines.append([(view.model_limit, view.y[0]), (view.model_limit, view.y[1])])
    return lines


def _labels(view: _View) -> list[Label]:
    today, document = view.found.today.requests, view.found.document.requests
    words = f"Today: {fmt_count(today)}" if today else "Today: none"
    right = [ABOVE_RIGHT, ABOVE_LEFT, BELOW_LEFT, BELOW_RIGHT]
    left = [BELOW_LEFT, ABOVE_RIGHT, ABOVE_LEFT, BELOW_RIGHT]
    sides = [*left, *right]
    further = [Place(0, 0, dx=side.dx, dy=side.dy * away, align=side.align) for away in (1.6, 2.8) for side in sides]
    with_it = f"With the document: {fmt_count(document) if document else 'none'}"
    labels = [
        Label(words, words, "ink", at(*view.today, *right, *further), bold=True, required=True),
        Label(
            with_it, with_it, "ink", at(*view.document, *left, *further), bold=True, required=bool(today or document)
        ),
    ]
    if view.spread and view.low != view.high:
        beside, over = Place(0, 0, dx=8, dy=0, align="left"), Place(0, 0, dx=14, dy=-14, align="left")
        where = [*at(view.high, view.document[1], beside), *at(*view.document, over, ABOVE_RIGHT)]
        labels.append(Label(view.spread, view.spread, "mid", where))
    if view.model_limit is not None:
        sides = [Place(0, 0, dx=-6, dy=8, align="right"), Place(0, 0, dx=6, dy=8, align="left")]
        where = at(view.model_limit, view.y[1], *sides)
        labels.append(Label(f"Model limit {fmt_tokens(int(view.model_limit))}", "Model limit", "mid", where))
    where = along(view.line, _MIDDLE, (BELOW_LEFT, ABOVE_RIGHT))
    labels.append(Label("What KV memory holds", "KV memory", "accent", where, halo=False))
    return labels
