"""The document question as Markdown and JSON: the answer, every way, notes and arithmetic, with its link."""

from __future__ import annotations

from kvcalc.alternatives import DocumentPage
from kvcalc.document import DocumentAnswer
from kvcalc.document_link import to_document_link
from kvcalc.explain_document import document_steps
from kvcalc.export import markdown_cell, markdown_table
from kvcalc.latency import Band
from kvcalc.request_cost import RequestFigures
from kvcalc.scenario import Scenario
from kvcalc.units import fmt_cents, fmt_count, fmt_gib, fmt_ms_band, fmt_seconds_band, fmt_tokens

_NONE = "–"


def document_to_markdown(page: DocumentPage, scenario: Scenario, *, address: str = "") -> str:
    """A section for a design document.

    scenario  today's, the question was asked of
    address   the page's, without its query string
    """
    found = page.answer
    lines = [f"## {markdown_cell(page.sentence)}", ""]
    lines += [f"Link: `{address}?view=document&{to_document_link(scenario, found.question)}`", ""]
    lines += markdown_table(("Figure", "Today", "With the document"), _figures(found))
    if found.neighbours is not None:
        lines += ["", markdown_cell(found.neighbours.sentence)]
    lines += ["", "### Ways of adding it", ""]
    ways = [
        (way.title, _NONE if way.figures is None else fmt_count(way.figures.requests), way.sentence, way.condition)
        for way in page.ways
    ]
    lines += markdown_table(("Way", "Requests at once", "What it brings", "Condition"), ways)
    lines += ["", "### Notes", ""]
    lines += [f"- {markdown_cell(note.text)}" for note in found.notes]
    for section in document_steps(page):
        lines += ["", f"### {markdown_cell(section.title)}", ""]
        rows = [(step.title, step.formula, step.numbers, step.value) for step in section.steps]
        lines += markdown_table(("Step", "Formula", "Numbers", "Value"), rows)
    return "\n".join(lines) + "\n"


def _figures(found: DocumentAnswer) -> list[tuple[str, ...]]:
    both = (found.today, found.document)
    rows = [
        ("Tokens per request", *(fmt_tokens(each.context_tokens) for each in both)),
        ("KV per request", *(fmt_gib(each.kv_bytes, 2) for each in both)),
        ("Requests at once", *(fmt_count(each.requests) for each in both)),
        ("First token (TTFT), prefill alone", *(_seconds(each.ttft) for each in both)),
        ("Time per token (TPOT)", *(_pace(each.tpot) for each in both)),
    ]
    if found.replicas_to_keep is not None:
        wanted = fmt_count(found.wanted_requests)
        gpus = fmt_count(found.gpus_to_keep or 0)
        rows.append((f"GPUs for {wanted} requests", fmt_count(found.gpus_today), gpus))
    if found.today.cents is not None:
        rows.append(("Per 1,000 requests", *(_price(each) for each in both)))
    return rows


def _seconds(band: Band | None) -> str:
    return _NONE if band is None else fmt_seconds_band(band.low_s, band.high_s)


def _pace(band: Band | None) -> str:
    return _NONE if band is None else fmt_ms_band(band.low_s, band.high_s)


def _price(figures: RequestFigures) -> str:
    return _NONE if figures.cents is None else fmt_cents(1_000 * figures.cents)


def document_to_json(page: DocumentPage) -> str:
    """The answer with every figure, unrounded."""
    return page.model_dump_json(indent=2)
