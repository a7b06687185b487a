"""The document question in a link, beside the scenario: counts alone, never a file, its name or its text."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from kvcalc.document_size import DocumentQuestion
from kvcalc.errors import LinkError, Note, Record, ScenarioError, shown
from kvcalc.scenario import Scenario
from kvcalc.share import DOCUMENT_PREFIX, LinkField, read_pairs, read_value, to_link, written

DOCUMENT_FIELDS = (
    LinkField("doc_pages", "pages", "whole", optional=True),
    LinkField("doc_tokens_low", "tokens_low", "whole"),
    LinkField("doc_tokens", "tokens_typical", "whole"),
    LinkField("doc_tokens_high", "tokens_high", "whole"),
    LinkField("doc_counted", "counted", "text"),
    LinkField("doc_questions", "questions_per_document", "whole"),
    LinkField("doc_at_once", "documents_at_once", "whole"),
    LinkField("doc_passages", "passages", "whole"),
    LinkField("doc_passage_tokens", "passage_tokens", "whole"),
    LinkField("doc_summary_tokens", "summary_tokens", "whole"),
    LinkField("doc_host_gib", "host_gib", "whole", optional=True),
)
_SIZE = ("pages", "tokens_low", "tokens_typical", "tokens_high", "counted")
DEFAULT_PAGES = 12
"""What the page asks about before anybody says. [pages]"""


class DocumentLink(Record):
    """What a link says of a document."""

    question: DocumentQuestion
    """The question; what could not be used has its default."""
    notes: tuple[Note, ...]
    """Every field refused."""


def document_fields(question: DocumentQuestion) -> dict[str, str]:
    """Keys and values of the question, for a page's address bar beside ``share.link_fields``."""
    return {field.key: written(field, getattr(question, field.name)) for field in DOCUMENT_FIELDS}


def to_document_link(scenario: Scenario, question: DocumentQuestion) -> str:
    """Scenario and question as one query string."""
    return f"{to_link(scenario)}&{urlencode(document_fields(question))}"


def read_document_question(text: str) -> DocumentLink:
    """The question of a query string or a whole address. Never raises: what cannot be used is named in the notes.

    Problems of the scenario's own keys are for ``share.from_link`` to name.
    """
    pairs = {key: value for key, value in read_pairs(text, []).items() if key.startswith(DOCUMENT_PREFIX)}
    notes: list[Note] = []
    values: dict[str, Any] = {}
    known = {field.key: field for field in DOCUMENT_FIELDS}
    for key, value in pairs.items():
        if key not in known:
            notes.append(Note(field=shown(key)[1:-1], text="Not a field of a document, so it was ignored."))
            continue
        try:
            values[known[key].name] = read_value(known[key], value)
        except LinkError as error:
            text = f"expected {error.expected}, got {shown(error.got)}. The default was used."
            notes.append(Note(field=key, text=text))
    return DocumentLink(question=_built(values, notes), notes=tuple(notes))


def _built(values: dict[str, Any], notes: list[Note]) -> DocumentQuestion:
    """The question, leaving out one refused field at a time; its size is one thing."""
    keys = {field.name: field.key for field in DOCUMENT_FIELDS}
    for _ in range(len(DOCUMENT_FIELDS) + 1):
        use = {name: value for name, value in values.items() if name not in _SIZE}
        size = {name: value for name, value in values.items() if name in _SIZE}
        try:
            if {"tokens_low", "tokens_typical", "tokens_high"} <= size.keys():
                return DocumentQuestion(**size, **use)
            if size:
                notes.append(Note(field="doc_tokens", text="Three figures are needed, so the default was used."))
            return DocumentQuestion.of_pages(DEFAULT_PAGES, **use)
        except ScenarioError as error:
            refused = error.field if error.field in use else "tokens_typical"
            key = keys[refused] if error.field not in keys else keys[error.field]
            notes.append(
                Note(field=key, text=f"expected {error.expected}, got {shown(error.got)}. The default was used.")
            )
            for name in (refused,) if refused in use else _SIZE:
                values.pop(name, None)
    return DocumentQuestion.of_pages(DEFAULT_PAGES)
