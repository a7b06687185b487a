"""The Document group of the sidebar."""

from __future__ import annotations

import streamlit as st

from kvcalc import glossary
from kvcalc.document_size import document_tables
from kvcalc.model_spec import ModelSpec
from kvcalc.ui import document_inputs as document
from kvcalc.ui import document_upload, sidebar
from kvcalc.units import fmt_tokens

_UNITS = {
    document.PAGES: "Pages",
    document.TOKENS: "Tokens",
    document.PICTURES: "Pictures",
    document.COUNTED: "Counted",
}
_LONGEST_NUMBER = 20
_HELP = {
    "questions_per_document": glossary.term("questions_per_document").one_line,
    "documents_at_once": "Different documents in use at the same time; 1 where everyone asks about the same one.",
    "host_gib": "Host memory of a replica set aside for KV that is not in use.",
}


def draw(spec: ModelSpec | None) -> None:
    """How long the document is, a box to count a file, and how it is used."""
    with sidebar.group("Document"):
        with sidebar.pair():
            _length(spec)
            _number("questions_per_document")
        document_upload.draw(None if spec is None else spec.image_tokens)
        box = sidebar.fold("Passages, summary, reuse", "document_use")
        if box.open:
            with box, sidebar.pair():
                for name in document.USE[1:]:
                    _number(name, empty="not given" if name in document.OPTIONAL else None)


def _length(spec: ModelSpec | None) -> None:
    st.selectbox(
        "Given as",
        document.units(spec),
        key=document.key("unit"),
        format_func=lambda unit: _UNITS[unit],
        persist_state=sidebar.KEPT,
    )
    unit = document.unit()
    if unit in (document.PAGES, document.PICTURES):
        _number(document.PAGES)
    elif unit == document.TOKENS:
        _number(document.TOKENS)
    if unit == document.PAGES:
        page = document_tables().page
        each = ", ".join(fmt_tokens(n) for n in (page.light_tokens, page.typical_tokens, page.dense_tokens))
        st.selectbox(
            "Text per page",
            document.DENSITIES,
            key=document.key("density"),
            format_func=str.capitalize,
            help=f"Light, typical and dense pages: {each} tokens. {page.text}.",
            persist_state=sidebar.KEPT,
        )


def _number(name: str, *, empty: str | None = None) -> None:
    """A whole number typed as text."""
    st.text_input(
        document.LABELS[name],
        key=document.key(name),
        max_chars=_LONGEST_NUMBER,
        on_change=document.tidy,
        args=(name,),
        placeholder=empty,
        help=_HELP.get(name),
        persist_state=sidebar.KEPT,
    )
