"""How arithmetic is shown: steps with formula, numbers and result, under the figure they lead to."""

from __future__ import annotations

from kvcalc.errors import Record


class Step(Record):
    """One line of arithmetic."""

    title: str
    """What is computed."""
    formula: str
    """In words and symbols."""
    numbers: str
    """The same with the numbers put in, up to the equals sign."""
    value: str
    """The result, with its unit."""
    source: str
    """Where the formula comes from."""


class Section(Record):
    """The steps behind one figure of the page."""

    title: str
    """The figure and its value."""
    steps: tuple[Step, ...]
    """In order."""
