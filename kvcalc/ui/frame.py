"""What every view has in common: the inputs and their answer, notices, the heading, a row of figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import streamlit as st

from kvcalc import glossary
from kvcalc.errors import KvcalcError, Note
from kvcalc.export import scenario_line
from kvcalc.model_spec import ModelSpec
from kvcalc.report import Report
from kvcalc.scenario import Scenario, spec_of
from kvcalc.ui import model_source, results, share_box, sidebar, state, text

WIDTH_PX = 1080
_FIGURE_PX = 130
_LINE_PX, _LONG_LINE = 820, 135
"""A scenario line of more characters is wrapped, so that the share box stays beside it. [pixels, characters]"""


@dataclass(frozen=True)
class Asked:
    """What the inputs ask, and the answer there is."""

    scenario: Scenario | None
    """None where an input cannot be read."""
    report: Report | None
    """Of the scenario; where it has none, of the last one that had."""
    problem: KvcalcError | None
    """Why the scenario has none."""


def show(
    answer: Callable[[Asked], None], details: Callable[[Asked], None], *, own: Callable[[], None] | None = None
) -> None:
    """A view: its answer, then the inputs, then its details. Every view's ``show`` calls this.

    The answer travels first: what the reader waits for is not the inputs they just changed.
    ``own`` draws the inputs that are the view's own, above all others.
    """
    model_source.apply()
    asked = _ask()
    page = st.container(width=WIDTH_PX)
    with page:
        _notices()
        answer(asked)
    sidebar.draw(_spec(asked.scenario or state.last_good()), asked.report, own=own)
    with page:
        details(asked)
    if asked.scenario is not None:
        state.write_address(asked.scenario)
    model_source.finish()


def _ask() -> Asked:
    scenario: Scenario | None = None
    report: Report | None = None
    problem: KvcalcError | None = None
    try:
        scenario = state.read()
        report = results.report(scenario)
        state.remember(scenario)
    except KvcalcError as error:
        problem = error
    if report is None and (good := state.last_good()) is not None:
        report = results.report(good)
    return Asked(scenario, report, problem)


def _spec(scenario: Scenario | None) -> ModelSpec | None:
    try:
        return None if scenario is None else spec_of(scenario)
    except KvcalcError:
        return None


def _notices() -> None:
    """What the link said that could not be used, or that changed since."""
    notes = [text.markdown(link_note(note)) for note in state.link_notes()]
    if notes:
        st.info(notes[0] if len(notes) == 1 else "\n".join(f"- {note}" for note in notes))


def link_note(note: Note) -> str:
    """A note with its field, except where it is about the link as a whole."""
    return note.text if note.field in ("data", "link") else f"{note.field}: {note.text}"


def heading(
    sentence: str, line: str, report: Report | None, *, bad: bool = False, share: Callable[[], None] | None = None
) -> None:
    """The verdict and, under it, the scenario line with the share box. Plain text; ``bad`` colours the state.

    ``share`` draws the box of a view that shares more than the report.
    """
    st.header(_verdict(sentence, bad), anchor=False)
    with st.container(horizontal=True, horizontal_alignment="distribute", vertical_alignment="center"):
        width: int | Literal["stretch"] = _LINE_PX if len(line) > _LONG_LINE else "stretch"
        st.markdown(f":small[:gray[{text.markdown(line)}]]", width=width)
        if share is None:
            share_box.draw(report)
        else:
            share()


def _verdict(sentence: str, bad: bool) -> str:
    state_words, colon, rest = sentence.partition(":")
    if colon and bad:
        return f":orange[{text.markdown(state_words)}:] {text.markdown(rest)}"
    return text.markdown(sentence)


def not_answered(problem: KvcalcError, report: Report | None) -> None:
    """The heading where an input cannot be used."""
    st.header(":orange[Not answered:] one input cannot be used.", anchor=False)
    st.warning(text.markdown(str(problem)))
    if report is not None:
        line = text.markdown(scenario_line(report))
        st.markdown(f":small[:gray[Showing {line} until it is corrected.]]")


def figures(count: int = 4) -> Any:
    """The row of figures: so many across where there is room, two on a phone."""
    return st.grid(count, min_column_width=_FIGURE_PX)


def figure(label: str, term: str | None, value: str, note: str) -> None:
    """One figure with its note under it; ``term`` is its entry in the glossary."""
    with st.container(gap=None):
        st.metric(label, value, help=None if term is None else glossary.term(term).one_line)
        st.markdown(f":small[:gray[{text.markdown(note)}]]" if note else ":small[ ]")
