"""The Capacity page: will it fit, how many, how fast, what binds, and the arithmetic behind each figure."""

from __future__ import annotations

import streamlit as st

from kvcalc.errors import KvcalcError
from kvcalc.export import scenario_line
from kvcalc.report import Report
from kvcalc.ui import capacity_more, capacity_tables, frame, inputs, results, speed_facts, tables, text, wording
from kvcalc.ui.frame import Asked
from kvcalc.units import MIB, fmt_bytes, fmt_count, fmt_gib, fmt_tokens
from kvcalc.verdict import BAD


def show() -> None:
    """Draw the view."""
    frame.show(_answer, _after)


def _answer(asked: Asked) -> None:
    """Verdict, scenario line and the four figures."""
    report = asked.report
    if asked.problem is not None:
        frame.not_answered(asked.problem, report)
    elif report is not None:
        frame.heading(report.sentence, scenario_line(report), report, bad=report.verdict in BAD)
    _figures(report, asked.problem)
    if report is not None and asked.problem is None:
        capacity_tables.mistakes(results.mistakes(report.scenario))


def _after(asked: Asked) -> None:
    if asked.report is not None:
        _pictures(asked.report)
        _details(asked.report, asked.problem)


def _figures(report: Report | None, problem: KvcalcError | None) -> None:
    hidden = frozenset[str]() if problem is None else inputs.touched_figures(problem.field)
    with frame.figures():
        if report is None:
            for _, label, term in _LABELS:
                frame.figure(label, term, wording.NONE, "")
            return
        moves = results.best_moves(report.scenario) if report.fits and problem is None else ()
        values = {
            "requests": (fmt_count(report.total_concurrency), wording.requests_note(report, moves)),
            "kv": (_kv_figure(report), wording.kv_note(report)),
            "time": (wording.tpot_figure(report), wording.tpot_note(report)),
            "longest": (fmt_tokens(report.longest_context_tokens), wording.longest_note(report)),
        }
        for name, label, term in _LABELS:
            value, note = (wording.NONE, "") if name in hidden else values[name]
            frame.figure(label, term, value, note)


_LABELS = (
    ("requests", "Requests at once", "concurrency"),
    ("kv", "KV per request", "kv_bytes_per_sequence"),
    ("time", "Time per token", "tpot"),
    ("longest", "Longest context", "context_tokens"),
)


def _kv_figure(report: Report) -> str:
    size = report.kv_bytes_per_request
    return fmt_gib(size) if size >= 1000 * MIB else fmt_bytes(size)


def _pictures(report: Report) -> None:
    """The memory bar and the two charts, each with its numbers."""
    from kvcalc.ui import chart_context, chart_memory, chart_tpot

    scenario = report.scenario
    st.subheader(f"Where the {fmt_gib(report.budget.memory_bytes)} of each GPU goes", anchor=False)
    with st.container(gap="xxsmall"):
        st.vega_lite_chart(spec=chart_memory.spec(report.budget), width="stretch", alt=wording.memory_alt(report))
        capacity_tables.numbers("memory", lambda: capacity_tables.memory(report))
    if report.would_fit:
        st.subheader("These would fit", anchor=False)
        capacity_tables.would_fit(report)
    if report.budget.kv_pool_bytes:
        st.subheader("How many requests at each context", anchor=False)
        curve = results.context_curve(scenario)
        spec = chart_context.spec(curve, report)
        with st.container(gap="xxsmall"):
            st.vega_lite_chart(spec=spec, width="stretch", alt=wording.context_alt(report, curve))
            capacity_tables.numbers("context", lambda: capacity_tables.context(curve))
    speed = results.tpot_curve(scenario)
    if speed.points:
        st.subheader("How fast, as requests are added", anchor=False)
        with st.container(gap="xxsmall"):
            edge = results.crossover(scenario)
            spec = chart_tpot.spec(speed, report, edge)
            st.vega_lite_chart(spec=spec, width="stretch", alt=wording.tpot_alt(speed, edge))
            st.markdown(f":small[:gray[{text.markdown(wording.tpot_caption(report))}]]")
            tables.facts(speed_facts.facts(report, edge, results.without_prefix(scenario)))
            capacity_tables.numbers("tpot", lambda: capacity_tables.tpot(speed))


def _details(report: Report, problem: KvcalcError | None) -> None:
    """What binds and what to do, further answers, the three capacities, assumptions, arithmetic."""
    if report.fits:
        left, right = st.columns([2, 3], gap="medium")
        with left:
            st.subheader("What binds", anchor=False)
            capacity_tables.limits(report)
        with right:
            moves = results.best_moves(report.scenario)
            st.subheader(_MOVES_TITLES.get(len(moves), "Best moves"), anchor=False)
            capacity_tables.moves(moves)
    capacity_more.draw(report, problem)
    if report.budget.kv_pool_bytes:
        st.subheader("Three capacities", anchor=False)
        capacity_tables.capacities(report)
    if len(report.groups) > 1:
        st.subheader("KV by kind of layer", anchor=False)
        capacity_tables.groups(report)
    notes = speed_facts.notes_beside(report)
    st.subheader("Notes and assumptions" if notes else "Assumptions", anchor=False)
    tables.remarks(notes, report.assumptions)
    st.subheader("The arithmetic", anchor=False)
    for index, section in enumerate(results.arithmetic(report.scenario)):
        with st.expander(text.markdown(section.title), expanded=index == 0):
            st.html(tables.arithmetic(section))


_MOVES_TITLES = {1: "The best move", 2: "Two best moves", 3: "Three best moves"}
