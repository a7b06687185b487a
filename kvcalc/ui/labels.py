"""Where a chart's words go. Every label has places it would like, best first; it takes the first one that
touches no line and no other label, then tries again with shorter words, and is left out when nothing is free:
the numbers table has it then.

Placed for several plot widths, since the server does not know which one will be drawn.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Align = Literal["left", "center", "right"]
Point = tuple[float, float]


@dataclass(frozen=True)
class Plot:
    """A plot's nominal size and its scales, to tell pixels from data. Pixels grow right and down."""

    width: float
    height: float
    x_domain: tuple[float, float]
    y_domain: tuple[float, float]
    log: bool
    size: int = 2
    """Size class of ``chart_parts.SIZES``; in the smallest the short words are used."""
    log_x: bool = False
    """Whether the x axis alone is a log axis."""

    @property
    def narrow(self) -> bool:
        """Whether this is the smallest size."""
        return self.size == 0

    def pixels(self, x: float, y: float) -> Point:
        """Where a data point lies. [pixels]"""
        across, up = _share(x, self.x_domain, self.log or self.log_x), _share(y, self.y_domain, self.log)
        return across * self.width, (1 - up) * self.height


def _share(value: float, domain: tuple[float, float], log: bool) -> float:
    """Where a value lies between the ends of an axis. [ratio]"""
    low, high = domain
    if log:
        return math.log(max(value, 1e-9) / low) / math.log(high / low)
    return (value - low) / (high - low)


@dataclass(frozen=True)
class Place:
    """One place a label would take: a data point, an offset in pixels, and how the text hangs on it."""

    x: float
    y: float
    dx: float = 0
    dy: float = 0
    align: Align = "left"


@dataclass(frozen=True)
class Label:
    """Words that belong to a point or a line."""

    wide: str
    narrow: str
    role: str
    places: Sequence[Place]
    bold: bool = False
    halo: bool = True
    required: bool = False
    """Drawn inside the plot even when nothing is free."""
    over_lines: bool = False
    """Drawn over a line when no place is free of lines, but never over other words."""


@dataclass
class _Taken:
    boxes: list[tuple[float, float, float, float]] = field(default_factory=list)
    segments: list[tuple[Point, Point]] = field(default_factory=list)


# Mean advance of the page's font at 12 and at 14 pixels semibold, measured in the browser. [pixels]
_ADVANCE, _ADVANCE_BOLD = 5.9, 7.3
_LINE_HEIGHT = 14.0
_MARGIN = 1.0


def place(labels: Iterable[Label], plot: Plot, lines: Iterable[Sequence[Point]]) -> list[dict[str, Any]]:
    """Rows for the label layer: one per label that found a place, in data coordinates with pixel offsets."""
    taken = _Taken()
    for line in lines:
        points = [plot.pixels(x, y) for x, y in line]
        taken.segments += list(itertools.pairwise(points))
    rows = []
    for label in labels:
        for text in (label.narrow,) if plot.narrow else dict.fromkeys((label.wide, label.narrow)):
            found = _first_free(label, text, plot, taken)
            if found is not None:
                where, box = found
                taken.boxes.append(box)
                rows.append(_row(label, text, where, plot))
                break
    return rows


def _first_free(
    label: Label, text: str, plot: Plot, taken: _Taken
) -> tuple[Place, tuple[float, float, float, float]] | None:
    for where in label.places:
        box = _box(text, where, plot, bold=label.bold)
        if _inside(box, plot) and not _touches(box, taken):
            return where, box
    if label.over_lines:
        bare = _Taken(boxes=taken.boxes)
        for where in label.places:
            box = _box(text, where, plot, bold=label.bold)
            if _inside(box, plot) and not _touches(box, bare):
                return where, box
    if label.required:
        boxes = [(where, _box(text, where, plot, bold=label.bold)) for where in label.places]
        return next((found for found in boxes if _inside(found[1], plot)), boxes[0])
    return None


def _box(text: str, where: Place, plot: Plot, *, bold: bool) -> tuple[float, float, float, float]:
    x, y = plot.pixels(where.x, where.y)
    width = len(text) * (_ADVANCE_BOLD if bold else _ADVANCE)
    left = x + where.dx - {"left": 0.0, "center": width / 2, "right": width}[where.align]
    middle = y + where.dy
    return left, middle - _LINE_HEIGHT / 2, left + width, middle + _LINE_HEIGHT / 2


def _inside(box: tuple[float, float, float, float], plot: Plot) -> bool:
    left, top, right, bottom = box
    return left >= 0 and top >= -_MARGIN and right <= plot.width and bottom <= plot.height


def _touches(box: tuple[float, float, float, float], taken: _Taken) -> bool:
    left, top, right, bottom = (
        box[0] - _MARGIN,
        box[1] - _MARGIN,
        box[2] + _MARGIN,
        box[3] + _MARGIN,
    )
    if any(left < b[2] and b[0] < right and top < b[3] and b[1] < bottom for b in taken.boxes):
        return True
    return any(_crosses(a, b, (left, top, right, bottom)) for a, b in taken.segments)


def _crosses(start: Point, end: Point, box: tuple[float, float, float, float]) -> bool:
    """Whether a segment enters a box (Liang and Barsky's clipping)."""
    enter, leave = 0.0, 1.0
    for axis in (0, 1):
        step = end[axis] - start[axis]
        low, high = box[axis], box[axis + 2]
        if step == 0:
            if not low < start[axis] < high:
                return False
            continue
        first, second = (low - start[axis]) / step, (high - start[axis]) / step
        enter, leave = max(enter, min(first, second)), min(leave, max(first, second))
        if enter >= leave:
            return False
    return True


def _row(label: Label, text: str, where: Place, plot: Plot) -> dict[str, Any]:
    return {
        "x": round_sig(where.x),
        "y": round_sig(where.y),
        "t": text,
        "dx": where.dx,
        "dy": where.dy,
        "a": where.align,
        "w": 600 if label.bold else 400,
        "s": 14 if label.bold and not plot.narrow else 12,
        "h": 1 if label.halo else 0,
        "role": label.role,
        "n": plot.size,
    }


def along(points: Sequence[Point], fractions: Sequence[float], offsets: Sequence[Place]) -> list[Place]:
    """Places along a line: at each fraction of its points, each of the offsets."""
    if not points:
        return []
    chosen = [points[round(share * (len(points) - 1))] for share in fractions]
    return [Place(x=x, y=y, dx=offset.dx, dy=offset.dy, align=offset.align) for x, y in chosen for offset in offsets]


ABOVE_RIGHT = Place(0, 0, dx=7, dy=-10, align="left")
BELOW_LEFT = Place(0, 0, dx=-6, dy=12, align="right")
ABOVE_LEFT = Place(0, 0, dx=-6, dy=-10, align="right")
BELOW_RIGHT = Place(0, 0, dx=6, dy=12, align="left")


def at(x: float, y: float, *offsets: Place) -> list[Place]:
    """The same point with several offsets."""
    return [Place(x=x, y=y, dx=offset.dx, dy=offset.dy, align=offset.align) for offset in offsets]


def spread(positions: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions moved apart to at least ``gap``, in the same order, kept between low and high where they fit."""
    order = sorted(range(len(positions)), key=lambda index: positions[index])
    moved = list(positions)
    floor = low
    for index in order:
        moved[index] = max(moved[index], floor)
        floor = moved[index] + gap
    ceiling = high
    for index in reversed(order):
        moved[index] = min(moved[index], ceiling)
        ceiling = moved[index] - gap
    return moved


def round_sig(value: float, digits: int = 4) -> float:
    """Four significant digits: more cannot be seen, and each one travels."""
    return float(f"{value:.{digits}g}")


def pick_ticks(
    wanted: Sequence[float], plot_width: float, share: Callable[[float], float], gap: float = 52.0
) -> list[float]:
    """Of the ticks wanted, most wanted first, those at least ``gap`` pixels from every one already kept."""
    kept: list[float] = []
    for value in wanted:
        if all(abs(share(value) - share(other)) * plot_width >= gap for other in kept):
            kept.append(value)
    return sorted(kept)
