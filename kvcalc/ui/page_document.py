"""The Document view: what adding a document to every request costs, for everybody, and cheaper ways."""

from __future__ import annotations

from functools import partial

import streamlit as st

from kvcalc.alternatives import DocumentPage
from kvcalc.document_size import KvEvidence
from kvcalc.errors import KvcalcError
from kvcalc.explain_document import document_steps
from kvcalc.model_spec import ModelSpec
from kvcalc.scenario import spec_of
from kvcalc.ui import (
    document_inputs,
    document_sidebar,
    document_words,
    frame,
    results,
    share_box,
    state,
    tables,
    text,
    wording,
)
from kvcalc.ui.capacity_tables import numbers
from kvcalc.ui.frame import Asked
from kvcalc.ui.tables import table
from kvcalc.units import fmt_count, fmt_gib, fmt_tokens
from kvcalc.way import Way

_FIGURES = 6
_SMALL = "font-size:.875rem;line-height:1.45"

default_pairs = document_inputs.default_pairs


def show() -> None:
    """Draw the view."""
    spec = _spec()
    document_inputs.start(spec)
    page = _Page(spec)
    frame.show(page.answer, page.details, own=partial(document_sidebar.draw, spec))


def _spec() -> ModelSpec | None:
    """The model as the inputs have it: it says how pages become pictures."""
    try:
        return spec_of(state.read())
    except KvcalcError:
        good = state.last_good()
        return None if good is None else spec_of(good)


class _Page:
    """One run of the view: the answer, once for both parts of it."""

    def __init__(self, spec: ModelSpec | None) -> None:
        self._spec = spec
        self._found: DocumentPage | None = None

    def answer(self, asked: Asked) -> None:
        """The sentence, the line with all inputs, and six figures."""
        _link_notes()
        scenario, problem = asked.scenario if asked.problem is None else None, asked.problem
        question = None
        try:
            question = document_inputs.read(self._spec)
            document_inputs.remember(question)
        except KvcalcError as error:
            problem = problem or error
        scenario, question = scenario or state.last_good(), question or document_inputs.last_good()
        if scenario is not None and question is not None:
            try:
                self._found = results.document(scenario, question)
            except KvcalcError as error:
                problem = problem or error
        if problem is not None:
            frame.not_answered(problem, asked.report)
        elif self._found is not None and asked.report is not None:
            line = document_words.line(asked.report, self._found.answer.question)
            possible = self._found.answer.reach.is_possible and self._found.answer.today.requests > 0
            share = partial(share_box.draw, asked.report, self._files)
            frame.heading(self._found.sentence, line, asked.report, bad=not possible, share=share)
        self._figures(hidden=problem is not None)

    def _files(self, address: str) -> None:
        from kvcalc.export_document import document_to_json, document_to_markdown

        scenario = state.last_good()
        if self._found is None or scenario is None:
            return
        with st.container(horizontal=True, gap="small"):
            markdown = document_to_markdown(self._found, scenario, address=address)
            st.download_button("Markdown", markdown, "kvcalc-document.md", "text/markdown", on_click="ignore")
            answer = document_to_json(self._found)
            st.download_button("JSON", answer, "kvcalc-document.json", "application/json", on_click="ignore")

    def _figures(self, *, hidden: bool) -> None:
        if self._found is None:
            return
        with frame.figures(_FIGURES):
            for figure in document_words.figures(self._found.answer):
                value, note = (wording.NONE, "") if hidden else (figure.value, figure.note)
                frame.figure(figure.label, figure.term, value, note)
        felt = document_words.consequences(self._found.answer)
        if felt and not hidden:
            st.markdown(text.markdown(felt))

    def details(self, asked: Asked) -> None:
        """Pictures, cheaper ways, assumptions and the arithmetic."""
        if self._found is None:
            return
        _pictures(self._found)
        _cards(self._found)
        _shrinking(self._found)
        notes = self._found.answer.notes
        counted = document_inputs.counted() if document_inputs.unit() == document_inputs.COUNTED else None
        st.subheader("Notes and assumptions", anchor=False)
        tables.remarks(
            (*notes, *(() if counted is None else counted.notes)),
            () if asked.report is None else asked.report.assumptions,
        )
        st.subheader("The arithmetic", anchor=False)
        for index, section in enumerate(document_steps(self._found)):
            with st.expander(text.markdown(section.title), expanded=index == 0):
                st.html(tables.arithmetic(section))


def _link_notes() -> None:
    notes = [text.markdown(f"{note.field}: {note.text}") for note in document_inputs.link_notes()]
    if notes:
        st.info(notes[0] if len(notes) == 1 else "\n".join(f"- {note}" for note in notes))


def _pictures(page: DocumentPage) -> None:
    """The curve with both points, the bars by way, and the pool full of either kind of request."""
    from kvcalc.ui import chart_document, chart_ways

    found = page.answer
    if not found.pool_bytes:
        return
    left, right = st.columns(2, gap="medium")
    with left:
        st.subheader("What the document does to capacity", anchor=False)
        with st.container(gap="xxsmall"):
            alt = document_words.curve_alt(found)
            st.vega_lite_chart(spec=chart_document.spec(found), width="stretch", alt=alt)
            numbers("document_curve", lambda: _curve_table(page))
    with right:
        st.subheader("Requests at once, by way of adding it", anchor=False)
        bars = chart_ways.rows(page)
        with st.container(gap="xxsmall"):
            alt = document_words.ways_alt([(name, count) for name, _, count in bars])
            st.vega_lite_chart(spec=chart_ways.spec(page), width="stretch", alt=alt)
            if (cut := chart_ways.cut_at(bars)) is not None:
                names = " and ".join(name for name, _, count in bars if count > cut)
                st.markdown(f":small[:gray[{text.markdown(names)}: the bar is cut, its number is whole.]]")
            numbers("document_ways", lambda: _ways_table(page))
    st.subheader(f"What fills the {fmt_gib(found.pool_bytes)} KV pool of one GPU", anchor=False)
    with st.container(gap="xxsmall"):
        alt = document_words.pool_alt(found)
        st.vega_lite_chart(spec=chart_ways.pool_spec(found), width="stretch", alt=alt)
        numbers("document_pool", lambda: _pool_table(page))


def _curve_table(page: DocumentPage) -> None:
    found = page.answer
    named = [
        ("Today", found.today),
        ("With the document, fewest tokens", found.fewest_tokens),
        ("With the document", found.document),
        ("With the document, most tokens", found.most_tokens),
    ]
    rows = [(name, fmt_tokens(each.context_tokens), fmt_count(each.requests)) for name, each in named]
    rows += [("KV memory", fmt_tokens(point.context_tokens), fmt_count(int(point.requests))) for point in found.curve]
    table("Requests at once at each length", ("What", "Tokens per request", "Requests"), rows, right=(1, 2))


def _ways_table(page: DocumentPage) -> None:
    from kvcalc.ui import chart_ways

    rows = [(name, fmt_count(count)) for name, _, count in chart_ways.rows(page)]
    table("Requests at once by way of adding the document", ("Way", "Requests"), rows, right=(1,))


def _pool_table(page: DocumentPage) -> None:
    rows = [
        (
            use.label,
            fmt_count(use.requests),
            fmt_gib(use.chat_bytes, 2),
            fmt_gib(use.document_bytes, 2),
            fmt_gib(use.free_bytes, 2),
        )
        for use in page.answer.pools
    ]
    table("KV pool of one GPU", ("Pool", "Requests", "Chat", "Document", "Free"), rows, right=(1, 2, 3, 4))


def _opens(way: Way) -> str:
    """A link to the scenario of a way; nothing where it has none."""
    if way.scenario is None:
        return ""
    href, name = text.html(state.href(way.scenario)), text.html(f"Open this scenario: {way.title}")
    return f'<a href="{href}" target="_self" aria-label="{name}" style="color:inherit">Open this scenario</a>'


def _cards(page: DocumentPage) -> None:
    """The ways that do without the whole document in every request, best first."""
    ways = [way for way in page.ways if way.id in document_words.REPLACING]
    ways.sort(key=lambda way: (not way.available, -(way.figures.requests if way.figures else 0)))
    cheaper = sum(1 for way in ways if way.figures is not None and way.figures.requests > page.answer.document.requests)
    st.subheader(_TITLES.get(cheaper, "Other ways"), anchor=False)
    for column, way in zip(st.columns(len(ways), gap="medium", border=True), ways, strict=True):
        with column:
            _card(way)


_TITLES = {1: "One cheaper way", 2: "Two cheaper ways", 3: "Three cheaper ways"}


def _card(way: Way) -> None:
    st.metric(way.title, document_words.at_once(way.figures))
    lines = "".join(f"<div>{text.html(words)}</div>" for words in document_words.card(way))
    notes = " ".join(words for words in (way.sentence, way.condition) if words)
    link = _opens(way)
    st.html(f'<div style="{_SMALL}">{lines}<div style="opacity:.8;margin:.5rem 0">{text.html(notes)}</div>{link}</div>')


def _shrinking(page: DocumentPage) -> None:
    """Ways that keep the whole document: its KV made smaller, or kept elsewhere between questions."""
    st.subheader("Or keep the whole document and shrink its KV", anchor=False)
    items = []
    for way in (one for one in page.ways if one.id not in document_words.REPLACING):
        words = " ".join(part for part in (way.sentence, way.condition, way.break_even) if part)
        link = _opens(way)
        items.append(f"<li><strong>{text.html(way.title)}.</strong> {text.html(words)} {link}</li>")
    st.html(f'<ul style="margin:0;padding-left:1.25rem;{_SMALL}">{"".join(items)}</ul>')
    evidence = [row for way in page.ways for row in way.evidence]
    if evidence:
        numbers("document_evidence", lambda: _evidence(evidence), title="What others measured with smaller KV")


_FINDINGS = {"keeps": "No worse", "loses": "Worse"}


def _evidence(rows: list[KvEvidence]) -> None:
    items = "".join(
        f"<li><strong>{_FINDINGS[row.finding]}.</strong> {text.html(row.text)}. {_source(row.source)}</li>"
        for row in rows
    )
    st.html(f'<ul style="margin:0;padding-left:1.25rem;{_SMALL}">{items}</ul>')


def _source(address: str) -> str:
    return f'<a href="{text.html(address)}" target="_blank" rel="noopener" style="color:inherit">Source</a>'
