"""What is found in a log before it is weighed: figures, and the lines and patterns they come from."""

from __future__ import annotations

from typing import NamedTuple

from kvcalc.enginelog.facts import LogLine
from kvcalc.enginelog.patterns import Pattern


class Found(NamedTuple):
    """One figure of one line."""

    order: int
    """Place of its pattern in the list: the lower, the better."""
    fact: str
    unit: str
    text: str
    line: LogLine
    rank: int | None
    """Tensor parallel rank that printed it, where the line tells."""


class Match(NamedTuple):
    """What one match of a pattern gives."""

    pattern: Pattern
    found: tuple[Found, ...]
    line: LogLine
