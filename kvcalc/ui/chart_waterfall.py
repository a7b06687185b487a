"""KV of all sessions, lever by lever, on a log axis: a bar's length is a factor, so that it needs no zero."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import altair as alt

from kvcalc.ui import chart_parts as parts
from kvcalc.ui.labels import Label, Place, Plot, Point, pick_ticks, place, round_sig
from kvcalc.units import GIB, fmt_bytes, fmt_divisor, fmt_gib
from kvcalc.waterfall import Waterfall, WaterfallStep

_ROW_PX, _BAR_PX, _TICK_PX = 56, 20, 30
_AXIS_PX = 56
"""What the axis under the plot takes of the chart's height. [pixels]"""
_BAR_OVER_MIDDLE = 12.0
"""A bar stands under the middle of its row and its name above it. [pixels]"""
_LEAST_LEFT, _RIGHT = 3.0, 1.4
"""Room beside the smallest and the largest value, as factors."""
_LETTER_PX, _VALUE_PX = 6.2, 84.0
"""A letter of a row's name, and the figure left of a bar's end. [pixels]"""
_MOST_LEFT = 0.5
"""Names that would take more of the plot than this stand above the bars on every screen. [share]"""
_STEPS = tuple(digit * 10**power for power in range(-3, 7) for digit in (1, 3))


@lru_cache(maxsize=1)
def template() -> parts.Spec:
    """The chart without data."""
    color = alt.Color("role:N", scale=alt.Scale(domain=parts.ROLES), legend=None)
    head = parts.frame("KV of all sessions, GiB (log scale)", "", log=True)
    unseen = alt.Axis(title=None, values=[0], labels=False, ticks=False, grid=False, domain=False)
    head = head.encode(y=alt.Y("y:Q", axis=unseen, scale=alt.Scale(type="linear", domain=[0, 1], nice=False)))
    x = alt.X("x:Q")
    layers = [
        head,
        parts.source("grid").mark_rule(stroke=parts.ink("faint")).encode(x=x, y="y:Q", y2="y2:Q"),
        parts.source("pool")
        .mark_rule(stroke=parts.ink("warn"), strokeWidth=1.75, strokeDash=[7, 4])
        .encode(x=x, y="y:Q", y2="y2:Q"),
        parts.source("bars")
        .mark_rule(strokeWidth=_BAR_PX, strokeCap="butt")
        .encode(x=x, x2="x2:Q", y="y:Q", color=color),
        parts.source("ends").mark_rule(stroke=parts.ink("ink"), strokeWidth=2.5).encode(x=x, y="y:Q", y2="y2:Q"),
        *parts.label_layers(),
    ]
    return parts.finish(layers)


@dataclass(frozen=True)
class _View:
    """What is drawn, in GiB; a row is one unit high, the first at the top."""

    steps: Sequence[WaterfallStep]
    pool: float
    x: tuple[float, float]

    @property
    def rows(self) -> int:
        return len(self.steps)

    @property
    def height(self) -> float:
        """[pixels]"""
        return float(self.rows * _ROW_PX)

    def middle(self, index: int) -> float:
        """Where a row's bar lies."""
        return self.rows - index - 0.5 - _BAR_OVER_MIDDLE / _ROW_PX


def spec(found: Waterfall) -> parts.Spec:
    """The chart of this waterfall."""
    view = _view(found)
    labels = []
    for size, width in parts.SIZES:
        plot = Plot(
            width=width, height=view.height, x_domain=view.x, y_domain=(0, view.rows), log=False, size=size, log_x=True
        )
        labels += place(_labels(view, plot), plot, _lines(view))
    ticks, narrow = (_ticks(view, width) for width in (parts.SIZES[2][1], parts.SIZES[0][1]))
    filled = parts.set_axes(
        template(),
        x_domain=view.x,
        y_domain=(0, view.rows),
        x_ticks=sorted({*ticks, *narrow}),
        y_ticks=[],
        narrow_x_ticks=narrow,
    )
    data = {
        "frame": [{"x": view.x[0], "y": 0}],
        "grid": [{"x": tick, "y": 0, "y2": view.rows} for tick in ticks],
        "pool": [{"x": round_sig(view.pool), "y": 0, "y2": view.rows}] if view.pool else [],
        "bars": _bars(view),
        "ends": _ends(view),
        "labels": labels,
    }
    return {**parts.fill(filled, data), "height": view.height + _AXIS_PX}


def _view(found: Waterfall) -> _View:
    pool = found.pool_bytes / GIB
    values = [step.after_bytes / GIB for step in found.steps] + ([pool] if pool > 0 else [])
    low, high = min(values), max(values) * _RIGHT
    left = (_names_px(found.steps) + _VALUE_PX) / parts.SIZES[-1][1]
    room = (high / low) ** (left / (1 - left)) if left < _MOST_LEFT else 1.0
    return _View(steps=found.steps, pool=pool, x=(low / max(room, _LEAST_LEFT), high))


def _names_px(steps: Sequence[WaterfallStep]) -> float:
    return max(len(step.title) for step in steps) * _LETTER_PX


def _ticks(view: _View, width: float) -> list[float]:
    low, high = view.x
    inside = [tick for tick in _STEPS if low <= tick <= high]
    tens = sorted(inside, key=lambda tick: math.log10(tick) % 1 > 0.1)
    return pick_ticks(tens, width, lambda value: math.log(value / low) / math.log(high / low))


def _bars(view: _View) -> list[dict[str, Any]]:
    return [
        {
            "x": round_sig(step.before_bytes / GIB),
            "x2": round_sig(step.after_bytes / GIB),
            "y": view.middle(index),
            "role": _role(step),
        }
        for index, step in enumerate(view.steps)
        if step.before_bytes
    ]


def _role(step: WaterfallStep) -> str:
    return "mid" if step.is_applied else "accent"


def _ends(view: _View) -> list[dict[str, Any]]:
    half = _TICK_PX / 2 / _ROW_PX
    return [
        {"x": round_sig(step.after_bytes / GIB), "y": view.middle(index) - half, "y2": view.middle(index) + half}
        for index, step in enumerate(view.steps)
    ]


def _lines(view: _View) -> list[list[Point]]:
    lines: list[list[Point]] = [
        [(step.before_bytes / GIB, view.middle(index)), (step.after_bytes / GIB, view.middle(index))]
        for index, step in enumerate(view.steps)
        if step.before_bytes
    ]
    if view.pool:
        lines.append([(view.pool, 0), (view.pool, view.rows)])
    return lines


def _labels(view: _View, plot: Plot) -> list[Label]:
    ends = [plot.pixels(step.after_bytes / GIB, 0)[0] for step in view.steps]
    beside = min(ends) >= _names_px(view.steps) + _VALUE_PX - 1
    labels = []
    for index, step in enumerate(view.steps):
        y, after = view.middle(index), step.after_bytes / GIB
        name = Place(view.x[0], y, dy=0 if beside else -2 * _BAR_OVER_MIDDLE)
        labels.append(Label(step.title, step.title, "ink", (name,), required=True))
        grows = step.before_bytes and step.after_bytes > step.before_bytes
        # To the right of a bar that grows the pool's rule may stand in the way: then above its end.
        right = [Place(after, y, dx=8), Place(after, y, dx=2, dy=-_BAR_PX, align="right")]
        values = right if grows else [Place(after, y, dx=-8, align="right")]
        words = _size(step.after_bytes)
        labels.append(Label(words, words, "ink", values, bold=True, required=True))
        if step.before_bytes:
            labels += _factor(step, y, plot)
    if view.pool:
        words = fmt_gib(view.pool * GIB)
        labels.append(Label(f"These GPUs hold {words}", f"Hold {words}", "warn", _beside_pool(view)))
    return labels


def _beside_pool(view: _View) -> list[Place]:
    """Places for the pool's name: on either side of its rule, from the top row down, between bars first."""
    places = []
    for row in range(view.rows):
        for dy in (8, _ROW_PX / 2 + _BAR_OVER_MIDDLE):
            places.append(Place(view.pool, view.rows - row, dx=6, dy=dy))
            places.append(Place(view.pool, view.rows - row, dx=-6, dy=dy, align="right"))
    return places


def _factor(step: WaterfallStep, y: float, plot: Plot) -> list[Label]:
    """'÷ 8' inside the bar, where it is long enough."""
    left, right = sorted((step.before_bytes / GIB, step.after_bytes / GIB))
    words = factor(step)
    long_enough = abs(plot.pixels(left, y)[0] - plot.pixels(right, y)[0]) > 8 + 7 * len(words)
    middle = Place(math.sqrt(left * right), y, align="center")
    return [Label(words, words, "ground", (middle,), halo=False, required=True)] if long_enough else []


def factor(step: WaterfallStep) -> str:
    """What a step does: '÷ 8', '÷ 2.5', '× 2' where it makes it larger."""
    return fmt_divisor(step.factor)


def _size(count: int) -> str:
    """In GiB wherever that shows a digit."""
    return fmt_gib(count) if count >= GIB // 10 else fmt_bytes(count)
