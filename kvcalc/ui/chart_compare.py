"""Requests at once against tokens per request for two to four scenarios, on the same log axes."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import altair as alt

from kvcalc.comparison import Column, Comparison, CurvePoint
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
    at,
    pick_ticks,
    place,
    round_sig,
)
from kvcalc.units import fmt_count

_LOOKS: dict[str, tuple[str, float, list[int]]] = {
    "A": ("mid", 2.5, [1, 0]),
    "B": ("accent", 2.75, [1, 0]),
    "C": ("ink", 2.0, [6, 4]),
    "D": ("soft", 2.5, [2, 3]),
}
"""Role, width and dash of each line: told apart without colour too."""
_STEPS = (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
_POWERS = (1_000, 4_096, 16_384, 65_536, 262_144, 1_048_576)
_ROOM_RIGHT, _ROOM_ABOVE = 3.2, 1.6
"""Space for the names right of the lines' ends, and above the highest line, as factors."""
_FURTHER = (Place(0, 0, dx=7, dy=16), Place(0, 0, dx=-7, dy=16, align="right"))
"""Where else a figure beside its point is tried."""
_MOST_LETTERS = 26
_ASIDE = (0, -13, 13, -26, 26, -39, 39)
"""How far from its line's end a name is tried. [pixels]"""


@lru_cache(maxsize=1)
def template() -> parts.Spec:
    """The chart without data."""
    x, y = alt.X("x:Q"), alt.Y("y:Q")
    color = alt.Color("role:N", scale=alt.Scale(domain=parts.ROLES), legend=None)
    lines = [
        parts.source(f"line{letter}")
        .mark_line(stroke=parts.ink(role), strokeWidth=width, strokeDash=dash, clip=True)
        .encode(x=x, y=y)
        for letter, (role, width, dash) in _LOOKS.items()
    ]
    layers = [
        parts.frame("Tokens per request, prompt + output (log scale)", "Requests at once (log scale)", log=True),
        parts.source("rules").mark_rule(stroke=parts.ink("mid"), strokeWidth=1).encode(x=x, y=y, y2="y2:Q"),
        *lines,
        parts.source("points")
        .mark_point(shape="circle", size=90, filled=True, opacity=1, stroke=parts.ink("ground"), strokeWidth=2)
        .encode(x=x, y=y, color=color),
        *parts.label_layers(),
    ]
    return parts.finish(layers)


def spec(found: Comparison) -> parts.Spec:
    """The chart of this comparison."""
    curves = [_drawn(curve) for curve in found.curves]
    contexts = [x for curve in curves for x, _ in curve]
    highest = max((y for curve in curves for _, y in curve), default=1.0)
    last = max(contexts)
    x_domain, y_domain = (min(contexts), last * _ROOM_RIGHT), (1.0, max(10.0, highest * _ROOM_ABOVE))
    points = [_own_point(found, index) for index in range(len(found.columns))]
    labels = []
    for size, width in parts.SIZES:
        plot = Plot(width=width, height=parts.PLOT_HEIGHT, x_domain=x_domain, y_domain=y_domain, log=True, size=size)
        labels += place(_labels(found, curves, points), plot, [*curves, *_upright(points, y_domain)])
    narrow, wide = (_ticks(found, x_domain, last, width) for width in (parts.SIZES[0][1], parts.SIZES[1][1]))
    filled = parts.set_axes(
        template(),
        x_domain=x_domain,
        y_domain=y_domain,
        x_ticks=sorted({*wide, *narrow}),
        y_ticks=[tick for tick in _STEPS if tick <= y_domain[1]],
        narrow_x_ticks=narrow,
    )
    letters = [column.letter for column in found.columns]
    data: dict[str, list[dict[str, Any]]] = {
        "frame": [{"x": x_domain[0], "y": 1}],
        "rules": [{"x": x, "y": 1, "y2": y_domain[1]} for x in sorted({x for x, _ in points})],
        "points": [
            {"x": x, "y": round_sig(y), "role": _LOOKS[letter][0]}
            for letter, (x, y) in zip(letters, points, strict=True)
            if y >= 1
        ],
        "labels": labels,
    }
    for letter, curve in zip(letters, curves, strict=True):
        data[f"line{letter}"] = [{"x": x, "y": round_sig(y)} for x, y in curve]
    return parts.fill(filled, data)


def _drawn(curve: tuple[CurvePoint, ...]) -> list[Point]:
    """What lies inside the plot: from one request up."""
    return [(point.context_tokens, point.requests) for point in curve if point.requests >= 1]


def _own_point(found: Comparison, index: int) -> Point:
    """A scenario's own context and requests; on its line when the line, rounded down, is its answer."""
    context, requests = found.context_tokens[index], found.columns[index].report.total_concurrency
    exact = next((p.requests for p in found.curves[index] if p.context_tokens == context), 0.0)
    return context, exact if int(exact) == requests else float(requests)


def _upright(points: list[Point], y_domain: tuple[float, float]) -> list[list[Point]]:
    return [[(x, y_domain[0]), (x, y_domain[1])] for x in sorted({x for x, _ in points})]


def _ticks(found: Comparison, domain: tuple[float, float], last: float, width: float) -> list[float]:
    low, high = domain
    wanted = [*dict.fromkeys(found.context_tokens), last, low, *_POWERS]
    inside = [tick for tick in wanted if low <= tick <= last]
    return pick_ticks(inside, width, lambda value: math.log(value / low) / math.log(high / low))


def _labels(found: Comparison, curves: list[list[Point]], points: list[Point]) -> list[Label]:
    labels = []
    order = sorted(range(len(points)), key=lambda index: -points[index][1])
    for index in order:
        (x, y), column = points[index], found.columns[index]
        if y < 1:
            continue
        sides = (ABOVE_RIGHT, BELOW_LEFT) if index == order[0] else (BELOW_LEFT, ABOVE_RIGHT)
        words = fmt_count(column.report.total_concurrency)
        where = at(x, y, *sides, ABOVE_LEFT, BELOW_RIGHT, *_FURTHER)
        labels.append(Label(words, words, _words_role(column), where, bold=True, over_lines=True))
    for index in order:
        if curves[index]:
            labels.append(_name(found.columns[index], curves[index][-1]))
    return labels


def _name(column: Column, end: Point) -> Label:
    """A line's name at its end; its letter alone where there is little room."""
    words = f"{column.letter}: {column.label}"
    if len(words) > _MOST_LETTERS:
        words = f"{words[: _MOST_LETTERS - 1].rstrip(' ,')}…"
    where = [Place(*end, dx=8, dy=dy) for dy in _ASIDE]
    return Label(words, column.letter, _words_role(column), where, over_lines=True)


def _words_role(column: Column) -> str:
    """The line's role, or a darker one where it is too pale to be read."""
    role = _LOOKS[column.letter][0]
    return "mid" if role == "soft" else role
