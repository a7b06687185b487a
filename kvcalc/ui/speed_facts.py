"""What is to be said about speed under its chart: one short paragraph each, with what it is about in front."""

from __future__ import annotations

from dataclasses import dataclass

from kvcalc.crossover import Crossover
from kvcalc.errors import Note
from kvcalc.report import Report
from kvcalc.units import fmt_count, fmt_seconds, fmt_seconds_band

_WAITING = "target_requests"
"""The field of the note about requests past capacity."""


@dataclass(frozen=True)
class Fact:
    """What it is about, the sentence, and where it is published, if anywhere."""

    title: str
    words: str
    sources: tuple[str, ...] = ()


def facts(report: Report, edge: Crossover | None, without_prefix: Report | None) -> list[Fact]:
    """In the order a reader needs them.

    edge            where KV traffic overtakes weight traffic
    without_prefix  the report of the same scenario without a shared prefix; None when it has none
    """
    found = []
    if edge is not None:
        found.append(Fact("Cache against weights", edge.sentence))
    if report.ttft is not None:
        found.append(Fact("First token", _first_token(report)))
    if report.prefix is not None:
        found.append(Fact("Shared prefix", _prefix(report, without_prefix)))
    if report.drafted is not None:
        found.append(Fact("Drafted tokens", report.drafted.sentence, report.drafted.sources))
    waiting = " ".join(note.text for note in report.notes if note.field == _WAITING)
    if waiting:
        found.append(Fact("Waiting", waiting))
    return found


def _first_token(report: Report) -> str:
    """The prompt alone, then what others add to it, then the target."""
    alone, busy = report.ttft, report.first_token
    if alone is None:
        return ""
    text = f"{fmt_seconds_band(alone.low_s, alone.high_s)} for the prompt alone, on an idle replica."
    if busy is None:
        text += " Waiting for the prompts of others comes on top; the busy setting estimates it."
    else:
        text += (
            f" With {fmt_count(busy.requests)} in flight on a busy server typically {fmt_seconds(busy.typical_s)}: "
            f"{fmt_seconds(busy.prefill_s)} for the prompt, {fmt_seconds(busy.decode_s)} decoding the others, "
            f"{fmt_seconds(busy.queue_s)} in the queue."
        )
    if report.scenario.target_ttft_ms is None:
        return text
    target = report.scenario.target_ttft_ms / 1000
    met = (alone.typical_s if busy is None else busy.typical_s) <= target
    return f"{text} The typical time {'meets' if met else 'misses'} your target of {fmt_seconds(target)}."


def _prefix(report: Report, without: Report | None) -> str:
    saving = report.prefix
    if saving is None:
        return ""
    text = saving.sentence
    if not saving.usable_tokens:
        return text
    if without is not None and without.ttft is not None and report.ttft is not None:
        before, after = without.ttft.typical_s, report.ttft.typical_s
        text += f" The prompt alone typically takes {fmt_seconds(after)} instead of {fmt_seconds(before)}."
    held = report.capacities.reserved_requests
    if saving.requests_when_shared > held:
        together = fmt_count(saving.requests_when_shared)
        text += f" If all share it, the KV pool holds {together} requests instead of {fmt_count(held)}."
    return text


def notes_beside(report: Report) -> list[Note]:
    """The report's notes that ``facts`` does not say."""
    return [note for note in report.notes if note.field != _WAITING or report.tpot is None]
