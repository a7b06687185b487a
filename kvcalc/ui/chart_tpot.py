"""Time per token as requests are added or conversations grow: what is read per token, and the band servers show."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kvcalc.crossover import Crossover
from kvcalc.curves import TpotCurve, TpotPoint
from kvcalc.report import Report
from kvcalc.speed_curves import ConversationCurve, ConversationPoint
from kvcalc.ui import chart_parts as parts
from kvcalc.ui.labels import Label, Place, Plot, Point, at, pick_ticks, place, round_sig, spread
from kvcalc.units import fmt_count, fmt_ms, fmt_tokens

_MS = 1_000
ROOM_FOR_ENDS = 0.5
"""The x axis goes on past the last value by this share of what is drawn: the end labels stand there."""
_ABOVE, _FAR = 1.2, 2.5
"""Room above the higher of slow end and target; a target beyond the second factor is left out."""
_LINE_PX = 15.0
_STEPS = tuple(digit * 10**power for power in range(7) for digit in (1, 2, 5))
_TOP_ROWS = (8.0, 24.0, 40.0)
"""Heights under the top edge at which the names of upright lines are tried. [pixels]"""


@lru_cache(maxsize=1)
def template() -> parts.Spec:
    """The chart without data."""
    x = "x:Q"
    layers = [
        parts.frame("Requests at once", "Milliseconds per token", log=False),
        parts.source("curve").mark_area(fill=parts.ink("faint"), opacity=1).encode(x=x, y="lo:Q", y2="hi:Q"),
        *(
            parts.source("curve").mark_line(stroke=parts.ink("mid"), strokeWidth=1).encode(x=x, y=f"{end}:Q")
            for end in ("lo", "hi")
        ),
        parts.source("curve").mark_area(fill=parts.ink("soft"), opacity=1).encode(x=x, y="w:Q", y2="z:Q"),
        parts.source("curve").mark_area(fill=parts.ink("accent"), opacity=1).encode(x=x, y="f:Q", y2="w:Q"),
        parts.source("edge")
        .mark_rule(stroke=parts.ink("mid"), strokeWidth=1.25, strokeDash=[2, 3])
        .encode(x=x, y="y:Q", y2="y2:Q"),
        parts.source("curve").mark_line(stroke=parts.ink("ink"), strokeWidth=2).encode(x=x, y="ty:Q"),
        parts.source("target")
        .mark_rule(stroke=parts.ink("warn"), strokeWidth=1.75, strokeDash=[7, 4])
        .encode(x=x, x2="x2:Q", y="y:Q"),
        parts.source("full").mark_rule(stroke=parts.ink("mid"), strokeWidth=1.5).encode(x=x, y="y:Q", y2="y2:Q"),
        *parts.label_layers(),
    ]
    return parts.finish(layers)


@dataclass(frozen=True)
class _Course:
    """Decode steps along one axis: more requests, or longer conversations."""

    points: Sequence[TpotPoint | ConversationPoint]
    xs: Sequence[int]
    x_title: str
    ends: tuple[str, str]
    """Why it ends, in full and in short."""
    target_ms: int | None
    edge: int | None
    """Last place where KV costs no more than the weights."""

    @property
    def floors(self) -> list[float]:
        """Reading weights and KV at each point. [s]"""
        return [point.weights_s + point.kv_s for point in self.points]

    @property
    def left(self) -> float:
        """Where the x axis starts."""
        return self.xs[0] * (0.5 if len(self.xs) == 1 else 1.0)

    @property
    def right(self) -> float:
        """Where it ends."""
        return self.xs[-1] + (self.xs[-1] - self.left) * ROOM_FOR_ENDS

    def target_end(self, top: float) -> float:
        """Where the target's line ends: at the last value when it would strike out a name behind it."""
        ends = (self.points[-1].low_s, self.points[-1].typical_s, self.points[-1].high_s, self.floors[-1])
        near = _LINE_PX / parts.PLOT_HEIGHT * top
        struck = any(abs(seconds * _MS - (self.target_ms or 0)) < near for seconds in ends)
        return self.xs[-1] if struck else self.right

    @property
    def name_places(self) -> list[float]:
        """Where the name of the KV area may end, from where the area is widest."""
        drawn = self.xs[-1] - self.left
        edge = [] if self.marked_edge is None else [float(self.marked_edge)]
        return [self.xs[-1], *edge, *(self.left + drawn * share for share in (0.9, 0.8, 0.7, 0.6))]

    def reads_at(self, x: float) -> tuple[float, float, float]:
        """(x, reading weights, reading KV) there, on the straight lines that are drawn. [x, s, s]"""
        steps = list(zip(self.xs, self.points, strict=True))
        for (x0, one), (x1, two) in itertools.pairwise(steps):
            if x0 <= x <= x1:
                share = (x - x0) / (x1 - x0)
                weights = one.weights_s + share * (two.weights_s - one.weights_s)
                return x, weights, one.kv_s + share * (two.kv_s - one.kv_s)
        return x, self.points[-1].weights_s, self.points[-1].kv_s

    @property
    def marked_edge(self) -> int | None:
        """The edge, where it is inside the curve."""
        return self.edge if self.edge is not None and self.xs[0] <= self.edge < self.xs[-1] else None


def spec(curve: TpotCurve, report: Report, edge: Crossover | None = None) -> parts.Spec:
    """Time per token against requests at once. The curve must have points."""
    last = curve.points[-1].requests
    capped = report.budget.max_num_seqs == last and report.capacities.reserved_requests > last
    count = fmt_count(last)
    return _draw(
        _Course(
            points=curve.points,
            xs=[point.requests for point in curve.points],
            x_title=f"Requests at once, at {fmt_tokens(report.context_tokens)} tokens each",
            ends=(
                f"{'Engine cap' if capped else 'KV full at'} {count}: more requests wait",
                f"{'Cap' if capped else 'Full at'} {count}",
            ),
            target_ms=report.scenario.target_tpot_ms,
            edge=None if edge is None else edge.edge_requests,
        )
    )


def by_length(curve: ConversationCurve, report: Report, edge: Crossover | None = None) -> parts.Spec:
    """Time per token against the length of every conversation, the batch held still; it ends where the pool does."""
    drawn = [point for point in curve.points if point.fits]
    full = curve.longest_tokens < report.scenario.max_model_len
    last = fmt_tokens(drawn[-1].context_tokens)
    same_batch = edge is not None and edge.requests == curve.requests
    held = "1 request" if curve.requests == 1 else f"{fmt_count(curve.requests)} requests"
    return _draw(
        _Course(
            points=drawn,
            xs=[point.context_tokens for point in drawn],
            x_title=f"Tokens in each conversation, {held} throughout",
            ends=(f"KV full at {last}", "KV full") if full else (f"Engine limit {last}", "Limit"),
            target_ms=report.scenario.target_tpot_ms,
            edge=edge.edge_context_tokens if edge is not None and same_batch else None,
        )
    )


def _draw(course: _Course) -> parts.Spec:
    slow, target_ms = course.points[-1].high_s * _MS, course.target_ms
    # A target far above everything else would press the rest flat; its figure has it then.
    top = _ABOVE * max(slow, target_ms if target_ms is not None and target_ms <= _FAR * slow else 0)
    x_domain, y_domain = (course.left, course.right), (0.0, top)
    labels = []
    for size, width in parts.SIZES:
        plot = Plot(width=width, height=parts.PLOT_HEIGHT, x_domain=x_domain, y_domain=y_domain, log=False, size=size)
        labels += place(_labels(course, plot), plot, _lines(course, y_domain))
    narrow_ticks, wide = (_x_ticks(course, x_domain, width) for _, width in parts.SIZES[:2])
    filled = parts.set_axes(
        template(),
        x_domain=x_domain,
        y_domain=y_domain,
        x_ticks=sorted({*wide, *narrow_ticks}),
        y_ticks=ticks(top),
        narrow_x_ticks=narrow_ticks,
        x_title=course.x_title,
    )
    shows_target = target_ms is not None and target_ms <= top
    edge, height = course.marked_edge, round_sig(top)
    data: dict[str, list[dict[str, Any]]] = {
        "frame": [{"x": x_domain[0], "y": 0}],
        "curve": _rows(course),
        "edge": [] if edge is None else [{"x": edge, "y": 0, "y2": height}],
        "target": [{"x": x_domain[0], "x2": course.target_end(top), "y": target_ms}] if shows_target else [],
        "full": [{"x": course.xs[-1], "y": 0, "y2": height}],
        "labels": labels,
    }
    return parts.fill(filled, data)


def _rows(course: _Course) -> list[dict[str, Any]]:
    rows = [_row(x, point) for x, point in zip(course.xs, course.points, strict=True)]
    # One point makes no line: the same values from a little before it give it a width.
    return [{**rows[0], "x": course.left}, *rows] if len(rows) == 1 else rows


def _row(x: int, point: TpotPoint | ConversationPoint) -> dict[str, Any]:
    values = {
        "w": point.weights_s,
        "f": point.weights_s + point.kv_s,
        "lo": point.low_s,
        "ty": point.typical_s,
        "hi": point.high_s,
    }
    return {"x": x, "z": 0, **{name: round_sig(value * _MS) for name, value in values.items()}}


def step(top: float, most: int) -> float:
    """The smallest round step that needs at most this many ticks."""
    return next((size for size in _STEPS if top / size <= most), top)


def ticks(top: float) -> list[float]:
    """Round values from zero up, at most eight of them."""
    size = step(top, 7)
    return [size * index for index in range(int(top / size) + 1)]


def _x_ticks(course: _Course, x_domain: tuple[float, float], width: float) -> list[float]:
    return round_ticks(course.xs[0], course.xs[-1], x_domain, width)


def round_ticks(first: int, last: int, x_domain: tuple[float, float], width: float) -> list[float]:
    """The last value, the first, and round ones between, where there is room for their figures."""
    low, high = x_domain
    size = int(max(1, step(last, 8)))
    gap = max(34.0, 7.0 * len(fmt_count(last)) + 6)
    return pick_ticks([last, first, *range(size, last, size)], width, lambda x: (x - low) / (high - low), gap=gap)


def _lines(course: _Course, y_domain: tuple[float, float]) -> list[list[Point]]:
    def line(values: Sequence[float]) -> list[Point]:
        return [(x, value * _MS) for x, value in zip(course.xs, values, strict=True)]

    named = ([getattr(point, name) for point in course.points] for name in ("low_s", "typical_s", "high_s"))
    lines = [*map(line, named), line(course.floors)]
    upright = [x for x in (course.xs[-1], course.marked_edge) if x is not None]
    lines += [[(x, y_domain[0]), (x, y_domain[1])] for x in upright]
    if course.target_ms is not None and course.target_ms <= y_domain[1]:
        lines.append([(course.left, course.target_ms), (course.target_end(y_domain[1]), course.target_ms)])
    return lines


def _labels(course: _Course, plot: Plot) -> list[Label]:
    target_ms = course.target_ms
    labels = _end_labels(course, plot)
    if target_ms is not None and target_ms <= plot.y_domain[1]:
        words = f"Speed target {fmt_count(target_ms)} ms"
        left = at(plot.x_domain[0], target_ms, Place(0, 0, 6, -10), Place(0, 0, 6, 10))
        end = course.target_end(plot.y_domain[1])
        right = at(end, target_ms, Place(0, 0, -6, -10, "right"), Place(0, 0, -6, 10, "right"))
        clear = course.points[0].high_s * _MS < target_ms
        labels.append(Label(words, words, "warn", [*left, *right] if clear else right))
    return [*labels, *_edge_labels(course, plot), *_area_labels(course, plot)]


def _end_labels(course: _Course, plot: Plot) -> list[Label]:
    """Names of the lines where they end, moved apart; and why they end."""
    last, x = course.points[-1], course.xs[-1]
    rows = [
        ("Slow end", "Slow", last.high_s, "mid", False),
        ("Typical", "Typical", last.typical_s, "ink", True),
        ("Fast end", "Fast", last.low_s, "mid", False),
        ("Physical floor", "Floor", course.floors[-1], "accent", False),
    ]
    wanted = [plot.pixels(x, seconds * _MS)[1] for _, _, seconds, _, _ in rows]
    moved = spread(wanted, _LINE_PX, 24.0, plot.height - 8)
    ends = at(x, plot.y_domain[1], Place(0, 0, 6, _TOP_ROWS[0]))
    labels = [Label(*course.ends, "mid", ends, required=True)]
    for (long, short, seconds, role, bold), pixel, old in zip(rows, moved, wanted, strict=True):
        where = at(x, seconds * _MS, Place(0, 0, 8, pixel - old))
        time = fmt_ms(seconds)
        labels.append(
            Label(f"{long} {time}", f"{short} {time.removesuffix(' ms')}", role, where, bold=bold, required=True)
        )
    return labels


def _edge_labels(course: _Course, plot: Plot) -> list[Label]:
    """The name of the line where KV overtakes the weights, at its top."""
    edge = course.marked_edge
    if edge is None:
        return []
    places = [Place(0, 0, -6, dy, "right") for dy in _TOP_ROWS] + [Place(0, 0, 6, dy) for dy in _TOP_ROWS]
    count = fmt_tokens(edge)
    where = at(edge, plot.y_domain[1], *places)
    return [Label(f"KV overtakes weights past {count}", f"KV > weights, {count}", "mid", where)]


def _area_labels(course: _Course, plot: Plot) -> list[Label]:
    """Names of the two areas, inside them where they are high enough to hold a line of text."""
    first, last = course.points[0], course.points[-1]
    room = plot.y_domain[1] / plot.height * 18
    labels = []
    if min(first.weights_s, last.weights_s) * _MS > room:
        middle = first.weights_s * _MS / 2
        words = f"Reading weights: {fmt_ms(first.weights_s, 1)}"
        where = at(plot.x_domain[0], middle, Place(0, 0, 6, 0))
        labels.append(Label(words, "Reading weights", "ink", where, halo=False))
    if last.kv_s * _MS > room:
        places = [
            Place(x, (weights + kv / 2) * _MS, -6, 0, "right")
            for x, weights, kv in map(course.reads_at, course.name_places)
            if kv * _MS > room
        ]
        labels.append(Label("Reading KV", "Reading KV", "ground", places, bold=True, halo=False))
    return labels
