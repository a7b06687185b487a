"""What all readers of files share: limits, the tally of what was read, and how a sample stands for the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from math import sqrt
from typing import Literal, Protocol

from kvcalc.document_size import Counted, DocumentCount, characters_to_tokens, document_tables
from kvcalc.errors import DocumentError, Note, shown
from kvcalc.units import MIB, fmt_count

MOST_FILE_BYTES = 50 * MIB
MOST_PAGES = 100_000
PAGES_READ_WHOLE = 300
"""A longer PDF is sampled: so many pages, evenly spread. [pages]"""
SECONDS = 15.0
"""Time after which the pages read so far stand for all. [s]"""
_LONGEST_NAME = 40
_SPREAD = 2
"""Standard errors of a sample's mean that the range is widened by."""

Clock = Callable[[], float]


class Text(Protocol):
    """What a reader hands its text to."""

    def add(self, text: str) -> None:
        """Count a piece of text: a page, a paragraph, so many characters."""


class Tally:
    """Characters, words and, with a tokenizer, tokens of all text added."""

    def __init__(self, tokenizer: Callable[[str], int] | None = None) -> None:
        self.characters = self.words = self.tokens = 0
        self._tokenizer = tokenizer

    def add(self, text: str) -> None:
        """Count a piece of text."""
        self.characters += len(text)
        self.words += len(text.split())
        if self._tokenizer is not None:
            self.tokens += self._tokenizer(text)


def whole_count(
    kind: Literal["text", "DOCX"], tally: Tally, notes: Iterable[Note], *, counted: Counted
) -> DocumentCount:
    """The count of a file that was read to its end and has no pages."""
    tokens = (tally.tokens,) * 3 if counted == "tokenizer" else characters_to_tokens(tally.characters)
    return DocumentCount(
        kind=kind,
        pages=None,
        pages_read=0,
        scanned_pages=0,
        characters=tally.characters,
        words=tally.words,
        tokens_low=tokens[0],
        tokens_typical=tokens[1],
        tokens_high=tokens[2],
        counted=counted,
        method=method_of(counted),
        notes=tuple(notes),
    )


def method_of(counted: Counted) -> str:
    """How tokens were found, in one sentence."""
    if counted == "tokenizer":
        return "Counted with the model's own tokenizer."
    table = document_tables().characters_per_token
    low, high = float(Fraction(table.dense)), float(Fraction(table.prose))
    return f"Estimated from the characters: {low:g} to {high:g} stand for one token."


def mean_and_error(values: list[int], pages: int) -> tuple[Fraction, float]:
    """(mean, standard error of it) of the pages read; no error when all were.

    >>> mean_and_error([10, 20], 2)
    (Fraction(15, 1), 0.0)
    """
    mean = Fraction(sum(values), len(values))
    if len(values) >= pages:
        return mean, 0.0
    variance = sum(float(value - mean) ** 2 for value in values) / max(1, len(values) - 1)
    return mean, sqrt(variance / len(values))


def sample_range(values: list[int], pages: int) -> tuple[int, int, int]:
    """(low, typical, high) sum over all pages, as far as the pages read tell. [same unit as the values]"""
    mean, error = mean_and_error(values, pages)
    typical = -(-mean.numerator * pages // mean.denominator)
    spread = int(_SPREAD * error * pages)
    return max(0, typical - spread), typical, typical + spread


def short_name(name: str) -> str:
    """A file's name as a message may show it."""
    return shown(name.replace("\\", "/").rsplit("/", 1)[-1][:_LONGEST_NAME])[1:-1]


def page_note(read: int, pages: int, *, out_of_time: bool) -> Note | None:
    """Which pages were read, when not all were."""
    if read >= pages:
        return None
    why = "Time ran out: " if out_of_time else ""
    text = f"{fmt_count(read)} of {fmt_count(pages)} pages, evenly spread, stand for all; the range covers that."
    return Note(field="document", text=f"{why}{text}" if why else text)


def empty_file(name: str) -> DocumentError:
    """The refusal of a file with nothing in it."""
    return DocumentError("document", "a file with text", f"{short_name(name)}, empty", hint="Choose another file.")
