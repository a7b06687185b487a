"""Horizontal bars of the Document view: requests at once by way of adding it, and one GPU's pool full of each kind."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import altair as alt

from kvcalc.alternatives import DocumentPage
from kvcalc.document import DocumentAnswer, PoolUse
from kvcalc.ui import chart_parts as parts
from kvcalc.ui.document_words import REPLACING, SHORT
from kvcalc.ui.labels import round_sig
from kvcalc.units import GIB, fmt_count, fmt_gib

_ROW_PX, _EDGE_PX = 36, 8
_ROOM = 1.16
"""Space right of the longest bar for its number, as a factor."""
_OFF_SCALE = 2.0
"""A bar so many times longer than every other is cut: drawn whole, it would leave no length to compare."""
_TEXT_ON = {"accent": "ground", "mid": "ground", "faint": "ink"}
_POOLS = ("Today", "With it")
_BOLD_PX = 6.6
_NARROW_PLOT = 190.0
"""Plot width on a phone, beside the names. [pixels]"""
_WIDE_PLOT = 760.0


@lru_cache(maxsize=1)
def template() -> parts.Spec:
    """The bars without data: named rows, segments from x to x2, text inside and at the end."""
    x = alt.X("x:Q", axis=None, scale=alt.Scale(domain=[0, 1], nice=False, zero=False))
    plain = alt.X("x:Q", axis=None)
    names = alt.Axis(
        title=None, ticks=False, domain=False, labelColor=parts.ink("ink"), labelFontSize=12, labelLimit=170, grid=False
    )
    y = alt.Y("name:N", sort=None, axis=names, scale=alt.Scale(paddingInner=0.42, paddingOuter=0.2))
    color = alt.Color("role:N", scale=alt.Scale(domain=parts.ROLES), legend=None)
    words: dict[str, Any] = {"baseline": "middle", "fontSize": 12, "fontWeight": 600}
    layers = [
        parts.source("frame").mark_point(opacity=0).encode(x=x, y=y),
        parts.source("segments")
        .mark_bar(
            opacity=1,
            stroke=alt.ExprRef(
                "scale('color', datum.role == 'wash' ? 'accent' : datum.role == 'faint' ? 'soft' : 'ground')"
            ),
            strokeWidth=1,
        )
        .encode(x=plain, x2="x2:Q", y=y, color=color),
        parts.source("cuts")
        .mark_text(text="//", angle=0, fontSize=26, fontWeight=600, baseline="middle", fill=parts.ink("ground"))
        .encode(x=plain, y=y),
        parts.source("inside")
        .mark_text(**words, align="center", text=alt.ExprRef(f"(width < {parts.NARROW_PX}) == datum.n ? datum.t : ''"))
        .encode(x=plain, y=y, color=color),
        parts.source("ends")
        .mark_text(**words, align="left", dx=6, fill=parts.ink("ink"), text=alt.ExprRef("datum.t"))
        .encode(x=plain, y=y),
    ]
    return parts.finish(layers, height=_ROW_PX)


def rows(page: DocumentPage) -> list[tuple[str, str, int]]:
    """(name, role, requests at once) of every bar: as it is, the whole document, then each way that can work."""
    found = page.answer
    ways = [way for way in page.ways if way.figures is not None and way.id in SHORT]
    ways.sort(key=lambda way: (way.id not in REPLACING, -_requests(way)))
    return [
        ("No document", "soft", found.today.requests),
        ("Whole document", "ink", found.document.requests),
        *((SHORT[way.id], "accent" if way.id in REPLACING else "wash", _requests(way)) for way in ways),
    ]


def _requests(way: Any) -> int:
    return int(way.figures.requests)


def cut_at(bars: Sequence[tuple[str, str, int]]) -> int | None:
    """Where bars off the scale end; None when none is. They are the second-rank ones: ways to shrink the KV."""
    compared = max((count for _, role, count in bars if role != "wash"), default=0)
    longest = max(count for _, _, count in bars)
    return round(compared * 1.25) if compared and longest > _OFF_SCALE * compared else None


def spec(page: DocumentPage) -> parts.Spec:
    """One bar per way of adding the document."""
    bars = rows(page)
    cut = cut_at(bars)
    longest = max(1, *(count if cut is None else min(count, cut) for _, _, count in bars))
    segments, ends, cuts = [], [], []
    for name, role, count in bars:
        end = min(count, longest)
        segments.append({"name": name, "x": 0, "x2": end, "role": role})
        off = count > longest
        ends.append({"name": name, "x": end, "t": fmt_count(count)})
        if off:
            cuts.append({"name": name, "x": round_sig(end * 0.93)})
    data = {
        "frame": [{"name": name, "x": 0} for name, _, _ in bars],
        "segments": segments,
        "ends": ends,
        "cuts": cuts,
    }
    return _filled(data, longest * _ROOM, len(bars))


def pool_spec(found: DocumentAnswer) -> parts.Spec:
    """One GPU's KV pool full of requests of each kind."""
    total = max(1, found.pool_bytes)
    segments: list[dict[str, Any]] = []
    inside: list[dict[str, Any]] = []
    names = [f"{name}: {fmt_count(use.requests)}" for name, use in zip(_POOLS, found.pools, strict=True)]
    for name, use in zip(names, found.pools, strict=True):
        start = 0
        for words, size, role in _pieces(use):
            if size <= 0:
                continue
            end = start + size
            segments.append({"name": name, "x": _gib(start), "x2": _gib(end), "role": role})
            for narrow, width in ((False, _WIDE_PLOT), (True, _NARROW_PLOT)):
                text = _fitting(words, size, size / total * width - 8)
                if text:
                    inside.append(
                        {"name": name, "x": _gib(start + size / 2), "t": text, "role": _TEXT_ON[role], "n": narrow}
                    )
            start = end
    data = {
        "frame": [{"name": name, "x": 0} for name in names],
        "segments": segments,
        "inside": inside,
    }
    return _filled(data, _gib(total), len(found.pools))


def _pieces(use: PoolUse) -> tuple[tuple[str, int, str], ...]:
    return (
        ("Chat", use.chat_bytes, "mid"),
        ("Document", use.document_bytes, "accent"),
        ("Free", use.free_bytes, "faint"),
    )


def _fitting(name: str, size: int, room: float) -> str:
    """Name and size, the name alone, or nothing, as the piece has room."""
    choices = (f"{name} {fmt_gib(size)}", name)
    return next((words for words in choices if len(words) * _BOLD_PX <= room), "")


def _gib(size: float) -> float:
    return round_sig(size / GIB, 6)


def _filled(data: dict[str, list[dict[str, Any]]], end: float, count: int) -> parts.Spec:
    filled = parts.fill(parts.set_domain(template(), (0, end)), data)
    return {**filled, "height": _ROW_PX * count + _EDGE_PX}
