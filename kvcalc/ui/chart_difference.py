"""What moves the KV pool: one bar for each line of the log that differs from the prediction, from a common zero."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import altair as alt

from kvcalc.reconcile import Line, Reconciliation
from kvcalc.ui import chart_parts as parts
from kvcalc.ui.labels import round_sig
from kvcalc.units import GIB, fmt_change

_ROW_PX, _BAR_PX = 36, 18
_NAMES_SHARE, _FIGURE_SHARE = 0.34, 0.16
"""Room for the names, and for a figure at either end, as shares of the plot."""
_SHORT = {"request": "Memory it may use", "unlogged": "Not in the log"}
_LEAST_SHOWN_BYTES = GIB // 200


@lru_cache(maxsize=1)
def template() -> parts.Spec:
    """The chart without data."""
    color = alt.Color("role:N", scale=alt.Scale(domain=parts.ROLES), legend=None)
    unseen = alt.Axis(title=None, labels=False, ticks=False, grid=False, domain=False)
    scale = alt.Scale(type="linear", domain=[0, 1], nice=False, zero=False)
    x, y = alt.X("x:Q", axis=unseen, scale=scale), alt.Y("y:Q", axis=unseen, scale=scale)
    layers = [
        parts.source("frame").mark_point(opacity=0).encode(x=x, y=y),
        parts.source("bars")
        .mark_rule(strokeWidth=_BAR_PX, strokeCap="butt")
        .encode(x="x:Q", x2="x2:Q", y="y:Q", color=color),
        parts.source("zero").mark_rule(stroke=parts.ink("mid")).encode(x="x:Q", y="y:Q", y2="y2:Q"),
        *parts.label_layers(),
    ]
    return parts.finish(layers)


def moves(found: Reconciliation) -> tuple[tuple[str, float], ...]:
    """(line, what it gives to the pool or takes from it in GiB); empty where nothing differs."""
    lines = [line for line in found.lines if line.name != "kv_pool" and line.difference_bytes is not None]
    if found.logged is None or all(abs(line.difference_bytes or 0) < _LEAST_SHOWN_BYTES for line in lines):
        return ()
    return tuple((_SHORT.get(line.name, line.label), _given(line) / GIB) for line in lines)


def _given(line: Line) -> int:
    """What the pool gets by it. [bytes]"""
    gap = line.difference_bytes or 0
    return gap if line.name == "request" else -gap


def spec(rows: Sequence[tuple[str, float]]) -> parts.Spec:
    """The chart of these moves."""
    low, high = min(0.0, *(move for _, move in rows)), max(0.0, *(move for _, move in rows))
    right = _FIGURE_SHARE if high > 0 else 0.02
    span = (high - low) / (1 - _NAMES_SHARE - _FIGURE_SHARE - right)
    domain = (low - span * (_NAMES_SHARE + _FIGURE_SHARE), high + span * right)
    height = len(rows) * _ROW_PX
    filled = parts.set_domain(template(), domain)
    filled["layer"][0]["encoding"]["y"]["scale"]["domain"] = [0, len(rows)]
    names_end = domain[0] + span * _NAMES_SHARE
    places = [(len(rows) - index - 0.5, name, move) for index, (name, move) in enumerate(rows)]
    data: dict[str, parts.Rows] = {
        "frame": [{"x": 0, "y": 0}],
        "bars": [{"x": 0, "x2": round_sig(move), "y": y, "role": "accent"} for y, _, move in places],
        "zero": [{"x": 0, "y": 0, "y2": len(rows)}],
        "labels": [
            row
            for size, _ in parts.SIZES
            for y, name, move in places
            for row in (_name(names_end, y, name, size), _figure(y, move, size))
        ],
    }
    return {**parts.fill(filled, data), "height": height}


def _name(x: float, y: float, name: str, size: int) -> dict[str, Any]:
    return _label(x, y, name, size, dx=0, align="right", weight=400)


def _figure(y: float, move: float, size: int) -> dict[str, Any]:
    dx, align = (6, "left") if move > 0 else (-6, "right")
    return _label(move, y, fmt_change(move, 2), size, dx=dx, align=align, weight=600)


def _label(x: float, y: float, words: str, size: int, *, dx: int, align: str, weight: int) -> dict[str, Any]:
    place = {"x": round_sig(x), "y": y, "dx": dx, "dy": 0, "a": align}
    return {**place, "t": words, "w": weight, "s": 12, "h": 0, "role": "ink", "n": size}


def alt_text(rows: Sequence[tuple[str, float]]) -> str:
    """What the chart says."""
    return f"What moves the KV pool, GiB per GPU: {', '.join(f'{name} {fmt_change(move, 2)}' for name, move in rows)}."
