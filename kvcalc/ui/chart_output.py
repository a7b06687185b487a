"""Output per second against requests at once: it stops growing where the KV pool is full."""

from __future__ import annotations

from functools import lru_cache

from kvcalc.report import Report
from kvcalc.speed_curves import ThroughputCurve, ThroughputPoint
from kvcalc.ui import chart_parts as parts
from kvcalc.ui.chart_tpot import ROOM_FOR_ENDS, round_ticks, ticks
from kvcalc.ui.labels import Label, Place, Plot, Point, at, place, round_sig, spread
from kvcalc.units import fmt_count, fmt_percent, fmt_tokens

_ABOVE = 1.2
_LINE_PX = 15.0


@lru_cache(maxsize=1)
def template() -> parts.Spec:
    """The chart without data."""
    curve = parts.source("curve")
    layers = [
        parts.frame("Requests at once", "Output tokens per second", log=False),
        curve.mark_area(fill=parts.ink("wash"), fillOpacity=0.45).encode(x="x:Q", y="ty:Q", y2="z:Q"),
        curve.mark_line(stroke=parts.ink("mid"), strokeWidth=1.5, strokeDash=[2, 3]).encode(x="x:Q", y="fl:Q"),
        curve.mark_line(stroke=parts.ink("accent"), strokeWidth=2.75).encode(x="x:Q", y="ty:Q"),
        parts.source("full").mark_rule(stroke=parts.ink("mid"), strokeWidth=1.5).encode(x="x:Q", y="y:Q", y2="y2:Q"),
        *parts.label_layers(),
    ]
    return parts.finish(layers)


def spec(curve: ThroughputCurve, report: Report) -> parts.Spec:
    """The chart of this curve."""
    first, last = curve.points[0], curve.points[-1]
    left = first.requests * (0.5 if first is last else 1.0)
    top = _ABOVE * last.floor_tokens_per_s
    x_domain = (left, last.requests + (last.requests - left) * ROOM_FOR_ENDS)
    labels = []
    for size, width in parts.SIZES:
        plot = Plot(width=width, height=parts.PLOT_HEIGHT, x_domain=x_domain, y_domain=(0.0, top), log=False, size=size)
        labels += place(_labels(curve, plot), plot, _lines(curve, plot))
    narrow, wide = (round_ticks(first.requests, last.requests, x_domain, width) for _, width in parts.SIZES[:2])
    filled = parts.set_axes(
        template(),
        x_domain=x_domain,
        y_domain=(0.0, top),
        x_ticks=sorted({*narrow, *wide}),
        y_ticks=ticks(top),
        narrow_x_ticks=narrow,
        x_title=f"Requests at once, at {fmt_tokens(report.context_tokens)} tokens each",
        y_title=f"Output tokens per second{' of each replica' if report.scenario.replicas > 1 else ''}",
    )
    rows = [
        {"x": point.requests, "z": 0, "ty": round_sig(point.tokens_per_s), "fl": round_sig(point.floor_tokens_per_s)}
        for point in curve.points
    ]
    data = {
        "frame": [{"x": left, "y": 0}],
        # One point makes no line: the same values from a little before it give it a width.
        "curve": [{**rows[0], "x": left}, *rows] if first is last else rows,
        "full": [{"x": last.requests, "y": 0, "y2": round_sig(top)}],
        "labels": labels,
    }
    return parts.fill(filled, data)


def _lines(curve: ThroughputCurve, plot: Plot) -> list[list[Point]]:
    last = curve.points[-1].requests
    return [
        [(point.requests, point.tokens_per_s) for point in curve.points],
        [(point.requests, point.floor_tokens_per_s) for point in curve.points],
        [(last, plot.y_domain[0]), (last, plot.y_domain[1])],
    ]


def _labels(curve: ThroughputCurve, plot: Plot) -> list[Label]:
    """Names of both lines where they end, and why they do."""
    last, top = curve.points[-1], plot.y_domain[1]
    count = fmt_count(last.requests)
    words = f"{'KV full at' if curve.memory_stops_it else 'Engine cap'} {count}: more requests wait"
    short = f"{'Full at' if curve.memory_stops_it else 'Cap'} {count}"
    rows = [
        ("At the physical floor", "Floor", last.floor_tokens_per_s, "mid", False),
        ("Typical", "Typical", last.tokens_per_s, "accent", True),
    ]
    wanted = [plot.pixels(last.requests, rate)[1] for _, _, rate, _, _ in rows]
    moved = spread(wanted, _LINE_PX, 24.0, plot.height - 24)
    labels = [Label(words, short, "mid", at(last.requests, top, Place(0, 0, 6, 8)), required=True)]
    for (long, brief, rate, role, bold), pixel, old in zip(rows, moved, wanted, strict=True):
        number = fmt_count(round(rate))
        where = at(last.requests, rate, Place(0, 0, 8, pixel - old))
        labels.append(Label(f"{long} {number}", f"{brief} {number}", role, where, bold=bold, required=True))
    return labels + _compute_label(last, moved[-1], plot)


def _compute_label(last: ThroughputPoint, above: float, plot: Plot) -> list[Label]:
    """The share of the compute that decoding uses at the end, under the typical line's name."""
    if last.compute_share is None:
        return []
    share = fmt_percent(last.compute_share)
    at_line = plot.pixels(last.requests, last.tokens_per_s)[1]
    where = at(last.requests, last.tokens_per_s, Place(0, 0, 8, above + _LINE_PX + 2 - at_line))
    return [Label(f"using {share} of the compute", f"{share} compute", "mid", where)]
