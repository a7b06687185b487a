"""One cheaper way of answering from a document: its record, and where it breaks even."""

from __future__ import annotations

from math import floor
from typing import Literal

from kvcalc.document import DocumentAnswer
from kvcalc.document_size import KvEvidence
from kvcalc.errors import Record
from kvcalc.latency import Band
from kvcalc.request_cost import RequestFigures, price_of
from kvcalc.scenario import Scenario
from kvcalc.units import fmt_count

WayId = Literal["share_prefix", "summarise", "retrieve", "quantise_kv", "smaller_model", "offload"]


class Way(Record):
    """One way of answering from the document that may cost less than putting it into every prompt."""

    id: WayId
    """Which."""
    title: str
    """Name on the page."""
    available: bool
    """Whether it can work on this model, engine and GPU."""
    sentence: str
    """What it brings here, with numbers; why not, when it cannot work."""
    condition: str
    """What must hold for it, and what one pays."""
    scenario: Scenario | None
    """The scenario of a request made this way; None when there is none to open."""
    figures: RequestFigures | None
    """A request made this way; None when it cannot work."""
    once_gpu_s: float | None
    """GPU time spent once per document; None when it is not known. [GPU s]"""
    once_s: Band | None
    """How long that takes. [s]"""
    first_ttft: Band | None
    """First token of the first question on a document, where it differs from the later ones. [s]"""
    cheaper_from_questions: int | None
    """Questions per document from which it takes less GPU time than the whole document each time; None never,
    or when times are not known. [questions]"""
    break_even: str
    """The same in words."""
    per_question_cents: float | None
    """Price of one question at the stated questions per document, what is spent once included. [US cents]"""
    evidence: tuple[KvEvidence, ...] = ()
    """What others measured, for and against."""


def break_even_questions(whole_gpu_s: float | None, each_gpu_s: float | None, once_gpu_s: float | None) -> int | None:
    """Fewest questions per document from which a way costs less than the whole document each time. [questions]

    Equation   once + q × each < q × whole, so q > once / (whole - each)

    >>> break_even_questions(5.0, 1.0, 10.0), break_even_questions(5.0, 1.0, 8.0), break_even_questions(5.0, 5.0, 0.0)
    (3, 3, None)
    """
    if whole_gpu_s is None or each_gpu_s is None or once_gpu_s is None or each_gpu_s >= whole_gpu_s:
        return None
    return max(1, floor(once_gpu_s / (whole_gpu_s - each_gpu_s)) + 1)


def break_even_words(count: int | None, *, unknown: str | None = None) -> str:
    """The break-even in words; ``unknown`` says why there is none to state."""
    if unknown is not None:
        return unknown
    if count is None:
        return "Never cheaper per question on these GPUs."
    if count == 1:
        return "Cheaper from the first question."
    return f"Cheaper from {fmt_count(count)} questions per document."


def _why_unknown(found: DocumentAnswer, figures: RequestFigures, once_gpu_s: float | None) -> str | None:
    """Why no break-even can be stated; None when one can."""
    if not figures.requests:
        return "No request made this way fits."
    if not found.document.requests:
        return "A request with the whole document does not fit, so there is no cost to compare with."
    if None in (found.document.gpu_s, figures.gpu_s, once_gpu_s):
        return "Not known: the GPU's rates are not stated."
    return None


def way(
    id: WayId,
    title: str,
    found: DocumentAnswer,
    figures: RequestFigures,
    *,
    scenario: Scenario,
    sentence: str,
    condition: str,
    once_gpu_s: float | None = 0.0,
    once_s: Band | None = None,
    first_ttft: Band | None = None,
    evidence: tuple[KvEvidence, ...] = (),
) -> Way:
    """A way that works, with its break-even against the whole document in every prompt."""
    count = break_even_questions(found.document.gpu_s, figures.gpu_s, once_gpu_s)
    asked = found.question.questions_per_document
    per_question = None
    if figures.gpu_s is not None and once_gpu_s is not None:
        per_question = price_of(scenario, figures.gpu_s + once_gpu_s / asked)
    return Way(
        id=id,
        title=title,
        available=True,
        sentence=sentence,
        condition=condition,
        scenario=scenario,
        figures=figures,
        once_gpu_s=once_gpu_s,
        once_s=once_s,
        first_ttft=first_ttft,
        cheaper_from_questions=count,
        break_even=break_even_words(count, unknown=_why_unknown(found, figures, once_gpu_s)),
        per_question_cents=per_question,
        evidence=evidence,
    )


def no_way(id: WayId, title: str, why: str, condition: str = "") -> Way:
    """A way that cannot work here, and why."""
    return Way(
        id=id,
        title=title,
        available=False,
        sentence=why,
        condition=condition,
        scenario=None,
        figures=None,
        once_gpu_s=None,
        once_s=None,
        first_ttft=None,
        cheaper_from_questions=None,
        break_even="",
        per_question_cents=None,
    )
