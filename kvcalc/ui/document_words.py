"""The Document view's words: figures with their notes, cards, captions, and what its charts say aloud.

They only put an answer's numbers into words; ``units`` writes each number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kvcalc.document import DocumentAnswer, Neighbours, PoolUse
from kvcalc.document_size import DocumentQuestion
from kvcalc.export import scenario_line
from kvcalc.report import Report
from kvcalc.request_cost import RequestFigures
from kvcalc.ui.wording import NONE
from kvcalc.units import (
    MIB,
    fmt_bytes,
    fmt_cents,
    fmt_count,
    fmt_factor,
    fmt_gib,
    fmt_ms_band,
    fmt_seconds_band,
    fmt_tokens,
)
from kvcalc.way import Way

_NOTHING_RUNS = "none runs today"
_PRICED = 1_000
"""Prices are shown for so many requests. [requests]"""
REPLACING = ("share_prefix", "summarise", "retrieve")
"""Ways that do without the whole document in every request; the others keep it."""
SHORT = {
    "share_prefix": "Share the prefix",
    "summarise": "Summarise first",
    "retrieve": "Retrieve passages",
    "quantise_kv": "Fewer KV bits",
    "smaller_model": "Smaller-KV model",
}
"""Ways as the chart names them; the others make no room for a running request."""


class Band(Protocol):
    """A range of times. [s]"""

    @property
    def low_s(self) -> float:
        """Fast end. [s]"""

    @property
    def high_s(self) -> float:
        """Slow end. [s]"""


@dataclass(frozen=True)
class Figure:
    """One of the six figures."""

    label: str
    term: str | None
    value: str
    note: str


def line(report: Report, question: DocumentQuestion) -> str:
    """Today's scenario, then the document and how it is used: a phone hides the sidebar. The ways name the rest."""
    asked, documents = question.questions_per_document, question.documents_at_once
    use = (
        f"{fmt_count(asked)} question{'s' * (asked > 1)} on it, {fmt_count(documents)} document{'s' * (documents > 1)}"
    )
    return f"Today: {scenario_line(report)} · Document: {length(question)}, {use} at once"


def length(question: DocumentQuestion) -> str:
    """'12 pages, 14,400 tokens (8,400 to 28,800)'."""
    pages = "" if question.pages is None else f"{fmt_count(question.pages)} page{'s' if question.pages > 1 else ''}, "
    low, high = fmt_tokens(question.tokens_low), fmt_tokens(question.tokens_high)
    spread = "" if low == high else f" ({low} to {high})"
    return f"{pages}{fmt_tokens(question.tokens_typical)} tokens{spread}"


def figures(found: DocumentAnswer) -> tuple[Figure, ...]:
    """The six figures, each with what it was before."""
    today, document = found.today, found.document
    runs = found.reach.is_possible and today.requests > 0
    return (
        Figure(
            "KV per request",
            "kv_bytes_per_sequence",
            _size(document.kv_bytes),
            f"was {_size(today.kv_bytes)}, {fmt_factor(found.kv_ratio)}",
        ),
        Figure("Requests at once", "concurrency", fmt_count(document.requests), _requests_note(found)),
        Figure("Displaced", "displaced", fmt_count(found.displaced), _displaced_note(found)),
        Figure(
            "First token",
            "ttft",
            seconds(document.ttft) if runs else NONE,
            _was(seconds(today.ttft), found),
        ),
        Figure("Time per token", "tpot", pace(document.tpot), _was(pace(today.tpot), found)),
        _sixth(found),
    )


def _requests_note(found: DocumentAnswer) -> str:
    least, most = fmt_count(found.most_tokens.requests), fmt_count(found.fewest_tokens.requests)
    spread = "" if least == most else f"; {least}–{most} by length"
    return f"was {fmt_count(found.today.requests)}{spread}"


def _was(value: str, found: DocumentAnswer) -> str:
    return f"was {value}" if found.today.requests else _NOTHING_RUNS


def _displaced_note(found: DocumentAnswer) -> str:
    if not found.today.requests:
        return _NOTHING_RUNS
    if not found.displaced:
        return "every request still fits"
    return f"of {fmt_count(found.today.requests)} that run today"


def _sixth(found: DocumentAnswer) -> Figure:
    """Price where one is given, else the replicas it would take."""
    today, document = found.today.cents, found.document.cents
    if today is not None:
        value = NONE if document is None else fmt_cents(_PRICED * document)
        return Figure("Per 1,000 requests", "price_cents_per_gpu_hour", value, f"was {fmt_cents(_PRICED * today)}")
    wanted = fmt_count(found.wanted_requests)
    if found.replicas_to_keep is None:
        note = f"no number keeps {wanted}" if found.today.requests else _NOTHING_RUNS
        return Figure("GPUs needed", "replicas", NONE, note)
    note = f"to keep {wanted}; now {fmt_count(found.gpus_today)}"
    return Figure("GPUs needed", "replicas", fmt_count(found.gpus_to_keep or 0), note)


def consequences(found: DocumentAnswer) -> str:
    """Under the figures: the context limit, what everyone else feels, replicas beside a price, and the month."""
    near = found.neighbours if found.reach.is_possible else None
    return " ".join(part for part in (found.reach.sentence or "", _felt(near), _fleet(found), _month(found)) if part)


def _felt(near: Neighbours | None) -> str:
    return "" if near is None else near.sentence


def _fleet(found: DocumentAnswer) -> str:
    if found.today.cents is None or found.replicas_to_keep is None:
        return ""
    count, gpus = found.replicas_to_keep, fmt_count(found.gpus_to_keep or 0)
    text = f"Keeping {fmt_count(found.wanted_requests)} requests takes {fmt_count(count)} replica{'s' * (count > 1)}"
    return f"{text}: {gpus} GPUs instead of {fmt_count(found.gpus_today)}."


def _month(found: DocumentAnswer) -> str:
    before, after = found.month_cents_today, found.month_cents_document
    if before is None or after is None:
        return ""
    return f"A month of this traffic costs {fmt_cents(after)} instead of {fmt_cents(before)}."


def _size(size: int) -> str:
    return fmt_gib(size) if size >= 1000 * MIB else fmt_bytes(size)


def seconds(band: Band | None) -> str:
    """A first token's band."""
    return NONE if band is None else fmt_seconds_band(band.low_s, band.high_s)


def pace(band: Band | None) -> str:
    """A time per token's band."""
    return NONE if band is None else fmt_ms_band(band.low_s, band.high_s)


def at_once(figures: RequestFigures | None) -> str:
    """A way's figure."""
    return NONE if figures is None else f"{fmt_count(figures.requests)} at once"


def card(way: Way) -> list[str]:
    """A way's numbers, one to a line."""
    if way.figures is None:
        return []
    lines = [f"{_size(way.figures.kv_bytes)} KV a request"] if way.id != "share_prefix" else []
    if way.per_question_cents is not None:
        lines.append(f"{fmt_cents(_PRICED * way.per_question_cents)} per 1,000 questions")
    if way.figures.ttft is not None:
        once = "" if way.first_ttft is None else f", {seconds(way.first_ttft)} for the first question"
        lines.append(f"{seconds(way.figures.ttft)} to first token{once}")
    if way.figures.tpot is not None:
        lines.append(f"{pace(way.figures.tpot)} per token")
    return [*lines, way.break_even]


def curve_alt(found: DocumentAnswer) -> str:
    """What the first chart says."""
    today, document = found.today, found.document
    question = found.question
    return (
        f"Requests at once against tokens per request. Today: {fmt_count(today.requests)} at "
        f"{fmt_tokens(today.context_tokens)} tokens. With the document: {fmt_count(document.requests)} at "
        f"{fmt_tokens(document.context_tokens)}, between {fmt_count(found.most_tokens.requests)} and "
        f"{fmt_count(found.fewest_tokens.requests)} as it may be {fmt_tokens(question.tokens_low)} to "
        f"{fmt_tokens(question.tokens_high)} tokens."
    )


def ways_alt(rows: list[tuple[str, int]]) -> str:
    """What the bars say."""
    return f"Requests at once: {', '.join(f'{name} {fmt_count(count)}' for name, count in rows)}."


def pool_alt(found: DocumentAnswer) -> str:
    """What the pool's bars say."""
    return f"KV pool of one GPU, {fmt_gib(found.pool_bytes)}. " + " ".join(_pool_words(use) for use in found.pools)


def _pool_words(use: PoolUse) -> str:
    document = f", {fmt_gib(use.document_bytes)} document" if use.document_bytes else ""
    return (
        f"{use.label}: {fmt_count(use.requests)} requests, {fmt_gib(use.chat_bytes)} chat{document}, "
        f"{fmt_gib(use.free_bytes)} free."
    )
