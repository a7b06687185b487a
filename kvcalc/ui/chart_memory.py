"""Where one GPU's memory goes: one bar that sums to the card."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import altair as alt

from kvcalc.budget import Budget
from kvcalc.ui import chart_parts as parts
from kvcalc.ui.labels import round_sig
from kvcalc.ui.wording import memory_name
from kvcalc.units import GIB, fmt_gib

_HEIGHT, _BAR_PX, _BAR_MIDDLE, _BELOW = 64, 36, 20.0, 50.0
_TEXT_PX, _BOLD_PX, _APART_PX = 5.9, 6.6, 10.0
_PLOTS = ((False, 900.0), (True, 330.0))
"""(narrow, nominal width); this bar has no axis. [pixels]"""
_ROLES = {"weights": "mid", "kv_pool": "accent", "kept_free": "faint", "driver": "faint"}
_TEXT_ROLES = {"mid": "ground", "accent": "ground", "soft": "ink", "faint": "ink", "warn": "ground"}
_SHORT = {"kept_free": "Free", "non_torch": "Runtime", "driver": "Driver"}


@dataclass(frozen=True)
class _Segment:
    name: str
    label: str
    role: str
    size_bytes: int
    start: float
    end: float
    """Where it is drawn; what exceeds the budget is cut off and drawn apart. [GiB]"""


@lru_cache(maxsize=1)
def template() -> parts.Spec:
    """The bar without data."""
    x = alt.X("x:Q", axis=None, scale=alt.Scale(domain=[0, 1], nice=False, zero=False))
    plain = alt.X("x:Q", axis=None)
    color = alt.Color("role:N", scale=alt.Scale(domain=parts.ROLES), legend=None)
    shown = alt.ExprRef(f"(width < {parts.NARROW_PX}) == datum.n ? datum.t : ''")
    text: dict[str, Any] = {
        "text": shown,
        "align": alt.ExprRef("datum.a"),
        "baseline": "middle",
        "fontSize": 12,
        "fontWeight": alt.ExprRef("datum.w"),
    }
    middle = alt.value(_BAR_MIDDLE)
    layers = [
        parts.source("frame").mark_point(opacity=0).encode(x=x, y=middle),
        parts.source("segments")
        .mark_bar(
            size=_BAR_PX,
            opacity=1,
            stroke=alt.ExprRef("scale('color', datum.role == 'faint' ? 'soft' : 'ground')"),
            strokeWidth=alt.ExprRef(f"datum.role == 'faint' || width < {parts.NARROW_PX} ? 1 : 2"),
        )
        .encode(x=plain, x2="x2:Q", y=middle, color=color),
        parts.source("ticks")
        .mark_rule(stroke=parts.ink("soft"), strokeWidth=1)
        .encode(x=plain, y=alt.value(_BAR_MIDDLE + _BAR_PX / 2 + 1), y2=alt.value(_BELOW - 8)),
        parts.source("budget")
        .mark_rule(stroke=parts.ink("ink"), strokeWidth=2)
        .encode(x=plain, y=alt.value(0), y2=alt.value(_BELOW - 8)),
        parts.source("inside").mark_text(**text).encode(x=plain, y=middle, color=color),
        parts.source("below").mark_text(**text).encode(x=plain, y=alt.value(_BELOW), color=color),
    ]
    return parts.finish(layers, height=_HEIGHT)


def spec(budget: Budget) -> parts.Spec:
    """The bar of this budget."""
    segments = _segments(budget)
    total = max(budget.memory_bytes / GIB, segments[-1].end)
    filled = parts.set_domain(template(), (0, round_sig(total, 7)))
    over = budget.shortfall_bytes > 0
    inside, below = [], []
    for narrow, width in _PLOTS:
        scale = width / total
        worded = [(part, _inside_words(part, scale, narrow=narrow)) for part in segments]
        big = [part for part, words in worded if words]
        inside += [_text(words, _middle(part), part.role, narrow=narrow) for part, words in worded if words]
        below += (
            _mark_labels(budget, total, narrow=narrow)
            if over
            else _small_labels(segments, big, total, scale, narrow=narrow)
        )
    shown = [part for part in segments if part.end > part.start]
    data: dict[str, list[dict[str, Any]]] = {
        "frame": [{"x": 0}],
        "segments": [
            {"x": round_sig(part.start, 6), "x2": round_sig(part.end, 6), "role": part.role} for part in shown
        ],
        "ticks": [] if over else [{"x": row["tick"]} for row in below if not row["n"] and "tick" in row],
        "budget": [{"x": round_sig(budget.requested_bytes / GIB, 6)}] if over else [],
        "inside": inside,
        "below": below,
    }
    return parts.fill(filled, data)


def _segments(budget: Budget) -> list[_Segment]:
    """Lines from left to right, the driver's share last; what exceeds the budget is cut off as a piece of its own."""
    lines = [line for line in budget.lines if line.bytes > 0 and line.name != "driver"]
    lines += [line for line in budget.lines if line.name == "driver"]
    if budget.shortfall_bytes:
        lines = [line for line in lines if line.name not in ("kept_free", "driver")]
    segments, start = [], 0
    for line in lines:
        role = _ROLES.get(line.name, "soft")
        name, end = memory_name(line.name, line.label), start + line.bytes
        segments.append(_Segment(line.name, name, role, line.bytes, start / GIB, end / GIB))
        start = end
    if not budget.shortfall_bytes:
        return segments
    mark = budget.requested_bytes / GIB
    kept = [replace(part, end=min(part.end, mark)) for part in segments if part.start < mark]
    return [*kept, _Segment("over", "over", "warn", budget.shortfall_bytes, mark, start / GIB)]


def _middle(part: _Segment) -> float:
    return (part.start + part.end) / 2


def _words(part: _Segment, *, narrow: bool, unit: bool) -> str:
    size = fmt_gib(part.size_bytes)
    name = _SHORT.get(part.name, part.label) if narrow else part.label
    return f"{name} {size if unit else size.removesuffix(' GiB')}"


def _inside_words(part: _Segment, scale: float, *, narrow: bool) -> str:
    """What the piece itself can hold: name and size, without the unit where that is too long, or nothing."""
    if part.name == "over":
        return ""
    room = (part.end - part.start) * scale - 12
    choices = (_words(part, narrow=narrow, unit=unit) for unit in (True, False))
    return next((words for words in choices if len(words) * _BOLD_PX <= room), "")


def _text(words: str, x: float, role: str, *, narrow: bool) -> dict[str, Any]:
    text_role = _TEXT_ROLES[role]
    return {
        "x": round_sig(x, 6), "t": words, "a": "center", "w": 400 if text_role == "ink" else 600,
        "role": text_role, "n": narrow,
    }  # fmt: skip


def _small_labels(
    segments: Sequence[_Segment], big: Sequence[_Segment], total: float, scale: float, *, narrow: bool
) -> list[dict[str, Any]]:
    """Names of the pieces too small to hold them: side by side, joined where neighbours would touch, and the
    smallest left out where even that is too long: the numbers table has them."""
    left = [part for part in segments if part not in big and (part.end - part.start) * scale >= 1]
    while left:
        groups: list[list[_Segment]] = []
        for part in left:
            alike = bool(groups) and groups[-1][-1].role == part.role
            joins = alike and _touch(_label_of(groups[-1], narrow), _label_of([part], narrow), scale)
            groups = [*groups[:-1], [*groups[-1], part]] if joins else [*groups, [part]]
        rows = _side_by_side([_label_of(group, narrow) for group in groups], total, scale)
        if rows:
            return [{**row, "tick": round_sig(_middle(group[0]), 6)} for group, row in zip(groups, rows, strict=True)]
        left.remove(min(left, key=lambda part: part.end - part.start))
    return []


def _label_of(members: Sequence[_Segment], narrow: bool) -> dict[str, Any]:
    """The label that these pieces share, centred under them."""
    words = _joined([_words(member, narrow=narrow, unit=False) for member in members])
    centre = (members[0].start + members[-1].end) / 2
    return {"x": centre, "t": words, "a": "center", "w": 400, "role": "mid", "n": narrow}


def _side_by_side(rows: Sequence[dict[str, Any]], total: float, scale: float) -> list[dict[str, Any]]:
    """The labels moved as far as they must to lie inside the plot and apart; none when there is no room."""
    halves = [len(row["t"]) * _TEXT_PX / 2 / scale for row in rows]
    apart = _APART_PX / scale
    centres: list[float] = []
    edge = -apart
    for row, half in zip(rows, halves, strict=True):
        centres.append(max(row["x"], edge + apart + half))
        edge = centres[-1] + half
    edge = total + apart
    for index in reversed(range(len(rows))):
        centres[index] = min(centres[index], edge - apart - halves[index])
        edge = centres[index] - halves[index]
    if edge < 0:
        return []
    return [{**row, "x": round_sig(centre, 6)} for row, centre in zip(rows, centres, strict=True)]


def _joined(words: Sequence[str]) -> str:
    """Names in one line: capitals only for the first, and for what is always written so."""
    first, *rest = words
    return ", ".join([first, *(part if part[:2].isupper() else part[0].lower() + part[1:] for part in rest)])


def _touch(left: dict[str, Any], right: dict[str, Any], scale: float) -> bool:
    reach = (len(left["t"]) + len(right["t"])) * _TEXT_PX / 2 + _APART_PX
    return bool((right["x"] - left["x"]) * scale < reach)


def _mark_labels(budget: Budget, total: float, *, narrow: bool) -> list[dict[str, Any]]:
    """Budget and excess, either side of the budget mark."""
    mark = budget.requested_bytes / GIB
    limit = fmt_gib(budget.requested_bytes).removesuffix(" GiB")
    card = fmt_gib(budget.memory_bytes).removesuffix(" GiB")
    over = fmt_gib(budget.shortfall_bytes).removesuffix(" GiB")
    words = f"Budget {limit}" if narrow else f"Budget {limit} of {card}"
    common = {"w": 400, "n": narrow}
    if mark > 0.6 * total:
        merged = f"{words}, {over} over"
        if (total - mark) < 0.08 * total:
            return [{"x": round_sig(total, 6), "t": merged, "a": "right", "role": "warn", **common}]
    return [
        {"x": round_sig(mark - total / 200, 6), "t": words, "a": "right", "role": "ink", **common},
        {
            "x": round_sig(mark + total / 200, 6),
            "t": f"{over} over",
            "a": "left",
            "role": "warn",
            "w": 600,
            "n": narrow,
        },
    ]
