"""Compare: two to four scenarios side by side, as figures, as a table of differences, and on the same axes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlencode

import streamlit as st

from kvcalc.compare_link import ComparedLink, compared_fields, read_compared, read_scenario
from kvcalc.comparison import Column, Comparison, Row, compare
from kvcalc.errors import KvcalcError, Note
from kvcalc.export import scenario_line
from kvcalc.report import Report
from kvcalc.scenario import Scenario
from kvcalc.ui import chart_compare, frame, share_box, sidebar, state, tables, text, wording
from kvcalc.ui.capacity_tables import numbers
from kvcalc.ui.frame import Asked
from kvcalc.ui.tables import Cell
from kvcalc.units import fmt_change, fmt_count, fmt_tokens

_LETTERS = "ABCD"
_EDIT, _EDITING = "compare_edit", "compare_editing"
"""The scenario chosen to edit, and the one the inputs show: the two differ while the choice is being carried out."""
_PASTED, _REFUSED, _NOTED, _BOX = "compare_pasted", "compare_refused", "compare_noted", "compare_paste_box"
_CACHED = 32


@lru_cache(maxsize=_CACHED)
def _compare(scenarios: tuple[Scenario, ...], letters: str) -> Comparison:
    """Kept a while: a rerun that only opens a box computes nothing. Raises KvcalcError."""
    return compare(scenarios, letters=letters)


@lru_cache(maxsize=_CACHED)
def _read(link: str) -> ComparedLink:
    return read_compared(link)


def show() -> None:
    """Draw the view."""
    if not state.is_lent():
        # The view, or another address, was opened.
        st.session_state[_EDIT] = st.session_state[_EDITING] = "A"
    frame.show(_answer, _details, own=_inputs)


# Which scenarios there are


def _others() -> dict[str, Scenario]:
    """B to D, as the address has them."""
    return _read(urlencode(state.own())).scenarios


def _edited() -> str:
    """The scenario that the sidebar shows."""
    found: str = st.session_state[_EDITING]
    return found


@dataclass(frozen=True)
class _Compared:
    """The scenarios that are compared."""

    scenarios: dict[str, Scenario]
    comparison: Comparison | None
    """None with one scenario alone."""


def _found(asked: Asked) -> _Compared | None:
    """The scenarios, with what the sidebar says of the one it edits, or its last good state where that cannot be
    read. None before the first good one."""
    if asked.report is None:
        return None
    edited, others, shown = _edited(), _others(), asked.report.scenario
    if edited != "A" and others[edited] != shown:
        others = {**others, edited: shown}
        state.keep(compared_fields(others))
    scenarios = {"A": shown if edited == "A" else state.held(), **others}
    if len(scenarios) < 2:
        return _Compared(scenarios, None)
    return _Compared(scenarios, _compare(tuple(scenarios.values()), "".join(scenarios)))


# The view's own inputs


def _inputs() -> None:
    """Which scenario the inputs below edit."""
    others = _others()
    if not others:
        return
    with sidebar.group("Scenario to edit"):
        st.segmented_control(
            "Scenario to edit",
            ["A", *others],
            key=_EDIT,
            required=True,
            on_change=_edit_other,
            label_visibility="collapsed",
            width="stretch",
        )
        if (letter := _edited()) != "A":
            st.button(f"Remove {letter}", on_click=_remove, args=(letter,), type="tertiary")


def _edit_other() -> None:
    """The inputs show the scenario that was chosen."""
    _take_in()
    _edit(str(st.session_state[_EDIT]))


def _take_in() -> None:
    """What the inputs say, where it can be used: a field left by clicking elsewhere reports in the same run."""
    try:
        scenario = state.read()
    except KvcalcError:
        return
    if _edited() == "A":
        state.write_address(scenario)
    else:
        state.keep(compared_fields({**_others(), _edited(): scenario}))


def _edit(letter: str) -> None:
    st.session_state[_EDIT] = st.session_state[_EDITING] = letter
    if letter == "A":
        state.give_back()
    else:
        state.lend(_others()[letter])


def _free() -> str | None:
    """The first letter that is not taken."""
    taken = _others()
    return next((letter for letter in _LETTERS[1:] if letter not in taken), None)


def _add(scenario: Scenario) -> None:
    if (letter := _free()) is not None:
        state.keep(compared_fields(dict(sorted({**_others(), letter: scenario}.items()))))
        _edit(letter)


def _copy() -> None:
    _take_in()
    st.session_state[_NOTED] = None
    _add(state.held())


def _remove(letter: str) -> None:
    """Without it; those behind it keep their letters, so that nothing is taken for something else."""
    st.session_state[_NOTED] = None
    state.keep(compared_fields({key: scenario for key, scenario in _others().items() if key != letter}))
    _edit("A")


def _paste() -> None:
    """A link that was pasted becomes the next scenario, or is refused near its box."""
    words = str(st.session_state.get(_PASTED) or "").strip()
    st.session_state[_REFUSED] = st.session_state[_NOTED] = None
    if not words:
        return
    _take_in()
    try:
        scenario, notes = read_scenario(words)
    except KvcalcError as error:
        st.session_state[_REFUSED] = str(error)
        return
    st.session_state[_NOTED] = notes
    st.session_state[_PASTED], st.session_state[_BOX] = "", False
    _add(scenario)


# The answer


def _answer(asked: Asked) -> None:
    found = _found(asked)
    _notices()
    if asked.problem is not None:
        frame.not_answered(asked.problem, asked.report)
    if found is None or asked.report is None:
        return
    comparison = found.comparison
    columns = () if comparison is None else comparison.columns
    first = columns[0].report if columns else asked.report
    if asked.problem is None:
        frame.heading(_sentence(found), _line(first), first, share=lambda: _share(first, comparison))
    with frame.figures(max(2, len(columns))):
        if not columns:
            frame.figure("A: now", "concurrency", fmt_count(first.total_concurrency), "requests at once")
        for column in columns:
            _figure(column)
    _add_more(found)


def _share(first: Report, comparison: Comparison | None) -> None:
    share_box.draw(first, None if comparison is None else lambda address: _files(comparison, address))


def _files(found: Comparison, address: str) -> None:
    from kvcalc.export_comparison import comparison_to_csv, comparison_to_markdown

    with st.container(horizontal=True, gap="small"):
        markdown = comparison_to_markdown(found, address=address)
        st.download_button("Markdown", markdown, "kvcalc-comparison.md", "text/markdown", on_click="ignore")
        st.download_button("CSV", comparison_to_csv(found), "kvcalc-comparison.csv", "text/csv", on_click="ignore")


def _notices() -> None:
    """What the link said that could not be used, of the scenarios beside the first."""
    noted: tuple[Note, ...] = st.session_state.get(_NOTED) or ()
    notes = [*_read(urlencode(state.own())).notes, *noted]
    if notes:
        st.info("\n".join(f"- {text.markdown(frame.link_note(note))}" for note in notes))


def _sentence(found: _Compared) -> str:
    return "Add B: copy A and change one input." if found.comparison is None else found.comparison.sentence


def _line(first: Report) -> str:
    return f"A: {scenario_line(first)}"


def _figure(column: Column) -> None:
    is_first = column.letter == "A"
    ratio = "" if column.requests_ratio is None else f", {column.requests_ratio:.1f} ×"
    change = f"{fmt_change(column.requests_delta)}{ratio}" if column.requests_delta else "same"
    frame.figure(
        f"{column.letter}: {column.label}",
        "concurrency" if is_first else None,
        fmt_count(column.report.total_concurrency),
        "requests at once" if is_first else change,
    )


def _add_more(found: _Compared) -> None:
    """Ways to another scenario, as long as there is a letter for it."""
    if (letter := _free()) is not None:
        with st.container(horizontal=True, gap="small", vertical_alignment="center"):
            st.button(f"Copy A as {letter}", on_click=_copy, key="compare_copy")
            box = st.popover("Paste a link", key=_BOX, on_change="rerun")
        if box.open:
            with box:
                st.text_input("Link of another scenario", key=_PASTED, on_change=_paste)
                if refused := st.session_state.get(_REFUSED):
                    st.warning(text.markdown(refused))
    edited = _edited()
    if edited != "A" and found.scenarios[edited] == found.scenarios["A"]:
        words = f"{edited} is a copy of A: change an input in the sidebar."
        st.markdown(f":small[:gray[{text.markdown(words)}]]")


# Table and chart


def _details(asked: Asked) -> None:
    all_found = _found(asked)
    if all_found is None or all_found.comparison is None:
        return
    found = all_found.comparison
    _table(found)
    if any(len(curve) > 1 for curve in found.curves):
        st.subheader("Requests at each context", anchor=False)
        with st.container(gap="xxsmall"):
            st.vega_lite_chart(spec=chart_compare.spec(found), width="stretch", alt=_alt(found))
            numbers("compare", lambda: _numbers(found))


def _table(found: Comparison) -> None:
    letters = [column.letter for column in found.columns]
    rows = [_cells(row) for row in found.rows if row.name != "requests"]
    opened = [Cell(f"{column.letter} on Capacity", href=state.href(column.report.scenario)) for column in found.columns]
    tables.table("Scenarios side by side", ("", *letters), [*rows, [Cell("Open"), *opened]])
    st.markdown(":small[:gray[Differences are against A.]]")


def _cells(row: Row) -> list[Cell]:
    cells = [Cell(row.label)]
    for cell in row.cells:
        # A figure says how much it differs, or that it does not; an input that does not differ is 'same' itself.
        note = f"({cell.delta})" if cell.delta else ""
        cells.append(Cell(cell.text, bold=cell.differs, note=note))
    return cells


def _alt(found: Comparison) -> str:
    each = ", ".join(
        f"{column.letter} ({column.label}) {fmt_count(column.report.total_concurrency)} at {fmt_tokens(tokens)} tokens"
        for column, tokens in zip(found.columns, found.context_tokens, strict=True)
    )
    return f"{found.sentence} Requests at once: {each}."


def _numbers(found: Comparison) -> None:
    """Requests at each context drawn."""
    by_context = [{point.context_tokens: point.requests for point in curve} for curve in found.curves]
    contexts = sorted({tokens for curve in by_context for tokens in curve})
    rows = [
        (
            fmt_tokens(tokens),
            *(fmt_count(int(curve[tokens])) if tokens in curve else wording.NONE for curve in by_context),
        )
        for tokens in contexts
    ]
    header = ("Tokens per request", *(column.letter for column in found.columns))
    tables.table("Requests at once at each context", header, rows, right=tuple(range(len(header))))
