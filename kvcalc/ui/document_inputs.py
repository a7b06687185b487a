"""The document's inputs: which widget holds what, how they become a question, and how a link fills them.

Like the scenario's, numbers are typed as text. Of a file only its counts are kept, in this visit alone.
"""

from __future__ import annotations

from typing import Any, get_args
from urllib.parse import urlencode

import streamlit as st

from kvcalc.document_link import DEFAULT_PAGES, document_fields, read_document_question
from kvcalc.document_size import Density, DocumentCount, DocumentQuestion
from kvcalc.errors import KvcalcError, Note, ScenarioError
from kvcalc.model_spec import ImageTokens, ModelSpec
from kvcalc.ui import inputs, state

PAGES, TOKENS, PICTURES, COUNTED = "pages", "tokens", "pictures", "counted"
DENSITIES: tuple[Density, ...] = get_args(Density)
USE = (
    "questions_per_document",
    "documents_at_once",
    "passages",
    "passage_tokens",
    "summary_tokens",
    "host_gib",
)
"""How the document is used: fields of the question beside its size, all whole numbers."""
OPTIONAL = frozenset({"host_gib"})
LABELS = {
    PAGES: "Pages",
    TOKENS: "Tokens",
    "questions_per_document": "Questions on it",
    "documents_at_once": "Documents",
    "passages": "Passages",
    "passage_tokens": "Tokens a passage",
    "summary_tokens": "Summary tokens",
    "host_gib": "Host, GiB",
}
_UNIT, _DENSITY = "unit", "density"
_SIZE = ("pages", "tokens_low", "tokens_typical", "tokens_high", "counted")
_COUNT, _FIXED, _KEPT, _NOTES, _GOOD = "doc_count", "doc_sizes", "doc_pairs", "doc_notes", "doc_last_good"


def key(name: str) -> str:
    """The widget's key."""
    return f"doc_in_{name}"


def start(spec: ModelSpec | None) -> None:
    """Fill the widgets from the address where it was read since; a first visit asks about a default document.

    An address that names no document leaves the one of this session.
    """
    pairs = state.own()
    if pairs and pairs != st.session_state.get(_KEPT):
        found = read_document_question(urlencode(pairs))
        _show(found.question, spec)
        st.session_state[_NOTES] = found.notes
        st.session_state[_KEPT] = pairs
    elif key(_UNIT) not in st.session_state:
        _show(DocumentQuestion.of_pages(DEFAULT_PAGES), spec)


def _show(question: DocumentQuestion, spec: ModelSpec | None) -> None:
    """Make the widgets show this question. Only before they are drawn, or in a callback."""
    given, density = _unit_of(question, _rule(spec))
    values = {name: inputs.typed(name, getattr(question, name)) for name in USE}
    values |= {_UNIT: given, _DENSITY: density, PAGES: "", TOKENS: inputs.typed(TOKENS, question.tokens_typical)}
    values[PAGES] = inputs.typed(PAGES, question.pages or DEFAULT_PAGES)
    for name, value in values.items():
        st.session_state[key(name)] = value
    st.session_state[_COUNT] = None
    st.session_state[_FIXED] = _sizes(question) if given == COUNTED else None


def _unit_of(question: DocumentQuestion, rule: ImageTokens | None) -> tuple[str, Density]:
    """How a question of this size would be typed; as it was counted, where no input gives it."""
    if question.counted == "tokens" and question.pages is None:
        return TOKENS, "typical"
    if question.pages is not None:
        for density in DENSITIES:
            if _sizes(DocumentQuestion.of_pages(question.pages, density=density)) == _sizes(question):
                return PAGES, density
        if rule is not None and _sizes(DocumentQuestion.of_images(question.pages, rule)) == _sizes(question):
            return PICTURES, "typical"
    return COUNTED, "typical"


def _sizes(question: DocumentQuestion) -> dict[str, Any]:
    return {name: getattr(question, name) for name in _SIZE}


def _rule(spec: ModelSpec | None) -> ImageTokens | None:
    return None if spec is None else spec.image_tokens


def units(spec: ModelSpec | None) -> list[str]:
    """The ways to say how long the document is that can be chosen here; what is chosen stays among them."""
    found = [PAGES, TOKENS]
    if _rule(spec) is not None or unit() == PICTURES:
        found.append(PICTURES)
    if st.session_state[_COUNT] is not None or st.session_state[_FIXED] is not None:
        found.append(COUNTED)
    return found


def unit() -> str:
    """How the document's length is given."""
    return str(st.session_state[key(_UNIT)])


def read(spec: ModelSpec | None) -> DocumentQuestion:
    """The question the widgets describe. Raises KvcalcError for the first that cannot be used."""
    use = {name: _number(name) for name in USE}
    given = unit()
    if given == PAGES:
        return DocumentQuestion.of_pages(_needed(PAGES), density=st.session_state[key(_DENSITY)], **use)
    if given == TOKENS:
        return DocumentQuestion.of_tokens(_needed(TOKENS), **use)
    rule = _rule(spec)
    if given == PICTURES:
        if rule is None:
            raise ScenarioError(
                "document", "a model that sees pictures", None if spec is None else spec.label, hint="Count its text."
            )
        return DocumentQuestion.of_images(_needed(PAGES), rule, **use)
    if (count := counted()) is not None:
        return DocumentQuestion.of_count(count, rule, **use)
    return DocumentQuestion(**st.session_state[_FIXED], **use)


def _number(name: str) -> int | None:
    return inputs.read_number(name, st.session_state[key(name)], optional=name in OPTIONAL)


def _needed(name: str) -> int:
    number = _number(name)
    assert number is not None
    return number


def tidy(name: str) -> None:
    """Write a number that can be read the way the page writes numbers; leave anything else as it was typed."""
    try:
        st.session_state[key(name)] = inputs.typed(name, _number(name))
    except KvcalcError:
        return


def counted() -> DocumentCount | None:
    """What the last file was counted as, in this visit."""
    found: DocumentCount | None = st.session_state.get(_COUNT)
    return found


def use_count(count: DocumentCount) -> None:
    """Ask about the file that was counted. In a callback."""
    st.session_state[_COUNT], st.session_state[_FIXED] = count, None
    st.session_state[key(_UNIT)] = COUNTED


def remember(question: DocumentQuestion) -> None:
    """Keep the last question that could be read, and put it into the address beside the scenario."""
    st.session_state[_GOOD] = question
    st.session_state[_KEPT] = pairs = document_fields(question)
    state.keep(pairs)


def last_good() -> DocumentQuestion | None:
    """The last question of this session that could be read."""
    found: DocumentQuestion | None = st.session_state.get(_GOOD)
    return found


def default_pairs() -> dict[str, str]:
    """What the address says of the document before anybody does."""
    return document_fields(DocumentQuestion.of_pages(DEFAULT_PAGES))


def link_notes() -> tuple[Note, ...]:
    """What a link said of the document that could not be used."""
    found: tuple[Note, ...] = st.session_state.get(_NOTES, ())
    return found
