"""Levers: what architecture, quantisation, offload, layout and settings make of the KV, each with its price."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import streamlit as st

from kvcalc.errors import KvcalcError, check_whole
from kvcalc.export import scenario_line
from kvcalc.levers import Lever, Levers, levers
from kvcalc.report import Report
from kvcalc.request_cost import RequestFigures
from kvcalc.scenario import Scenario
from kvcalc.share import SESSION_KEYS
from kvcalc.ui import chart_waterfall, fragmentation_box, frame, inputs, sidebar, state, tables, text, wording
from kvcalc.ui.capacity_tables import numbers
from kvcalc.ui.frame import Asked
from kvcalc.ui.tables import Cell
from kvcalc.units import fmt_bytes, fmt_change, fmt_count, fmt_gib, fmt_ms_band, fmt_seconds, fmt_tokens
from kvcalc.verdict import BAD
from kvcalc.waterfall import Waterfall

_FAMILIES = (
    ("architecture", "Architecture"),
    ("quantisation", "Quantisation"),
    ("offload", "Offload"),
    ("layout", "Layout"),
    ("engine", "Engine settings"),
)
_READ = "levers_read_from"
_LONGEST_NUMBER = 20
_WIDTHS = ("55%", "15%", "15%", "15%")
"""Of a lever's table: the same in all of them, so that figures stand under each other."""
_CACHED = 32


@lru_cache(maxsize=_CACHED)
def _levers(scenario: Scenario, *, sessions: int | None, active: int | None) -> Levers:
    """Kept a while: a rerun that only opens a box computes nothing. Raises KvcalcError."""
    return levers(scenario, sessions=sessions, active=active)


def show() -> None:
    """Draw the view."""
    _take_from_address()
    frame.show(_answer, _details, own=_sessions_inputs)


# Sessions: the view's own inputs, in the address beside the scenario


def _key(name: str) -> str:
    return f"levers_{name}"


def _take_from_address() -> None:
    """Put what the address says into the fields, once for each address that was opened."""
    own = state.own()
    if st.session_state.get(_READ) != own:
        for name in SESSION_KEYS:
            given = own.get(name, "")
            st.session_state[_key(name)] = given
        st.session_state[_READ] = own


def _sessions_inputs() -> None:
    """Empty fields stand for the requests that run at once, all of them active."""
    with sidebar.group("Sessions"), sidebar.pair():
        for name, label, empty in (("sessions", "Kept", "those at once"), ("active", "Running", "all of them")):
            st.text_input(
                label,
                key=_key(name),
                placeholder=empty,
                max_chars=_LONGEST_NUMBER,
                persist_state="session",
                help="Sessions that keep their KV, and those of them that run at a time. The others are idle: "
                "their KV can be offloaded.",
            )


def _sessions() -> dict[str, int | None]:
    """What the fields say. Raises ScenarioError."""
    return {name: _count(name, st.session_state[_key(name)]) for name in SESSION_KEYS}


def _count(name: str, typed: str) -> int | None:
    """Sessions as typed; None for an empty field. Raises ScenarioError."""
    count = inputs.read_number(name, typed, optional=True)
    if count is not None:
        check_whole(name, count, 1, hint="Use at least 1, or leave it empty.")
    return count


@dataclass(frozen=True)
class _Found:
    """The levers there are, and why they are not those of what is asked."""

    levers: Levers | None
    problem: KvcalcError | None


def _find(asked: Asked) -> _Found:
    """The levers of what is asked, else of the last scenario that had some."""
    problem, counts = asked.problem, _from_own()
    try:
        counts = _sessions()
        own = {name: str(count) for name, count in counts.items() if count is not None}
        if own != state.own():
            state.keep(own)
            st.session_state[_READ] = own
    except KvcalcError as error:
        problem = problem or error
    if asked.report is None:
        return _Found(None, problem)
    return _Found(_levers(asked.report.scenario, **counts), problem)


def _from_own() -> dict[str, int | None]:
    """The last counts that could be read."""
    found: dict[str, int | None] = {}
    for name in SESSION_KEYS:
        try:
            found[name] = _count(name, state.own().get(name, ""))
        except KvcalcError:
            found[name] = None
    return found


# The answer


def _answer(asked: Asked) -> None:
    found, report = _find(asked), asked.report
    if found.problem is not None:
        frame.not_answered(found.problem, report)
    if report is None or found.levers is None:
        return
    if found.problem is None:
        fall, bad = found.levers.waterfall, report.verdict in BAD
        frame.heading(report.sentence if bad else fall.sentence, _line(report, fall), report, bad=bad)
    _figures(report, found.levers)


def _line(report: Report, found: Waterfall) -> str:
    return f"{scenario_line(report)} · {_sessions_text(found.sessions)}, {fmt_count(found.active)} running"


def _sessions_text(count: int) -> str:
    return "1 session" if count == 1 else f"{fmt_count(count)} sessions"


def _figures(report: Report, found: Levers) -> None:
    fall = found.waterfall
    each = f"{fmt_count(fall.sessions)} × {fmt_bytes(report.kv_bytes_per_request)}"
    gpus = f"{fmt_count(found.gpus)} × {fmt_gib(report.budget.kv_pool_bytes)}"
    spare = fmt_gib(abs(fall.spare_bytes))
    with frame.figures():
        frame.figure("KV now", "kv_bytes_per_sequence", fmt_gib(fall.now_bytes), each)
        frame.figure("KV pool", "kv_pool_bytes", fmt_gib(fall.pool_bytes), gpus)
        note = f"{spare} to spare" if fall.spare_bytes >= 0 else f"{spare} too much"
        frame.figure("KV with these levers", None, fmt_gib(fall.end_bytes), note)
        seconds = found.bring_back_s
        value = wording.NONE if seconds is None else fmt_seconds(seconds)
        back = f"{fmt_bytes(found.now.reserved_bytes)} per GPU over {found.bring_back_link}"
        frame.figure("Bring an idle one back", None, value, "memory is shared" if seconds is None else back)


# Pictures and tables


def _details(asked: Asked) -> None:
    found, report = _find(asked).levers, asked.report
    if found is None or report is None:
        return
    _picture(found.waterfall, report)
    for family, title in _FAMILIES:
        working = [lever for lever in found.levers if lever.family == family and lever.why_not is None]
        if working:
            st.subheader(title, anchor=False)
            _remark(_already(found.waterfall, family))
            _table(title, found, working)
    ruled_out = [lever for lever in found.levers if lever.why_not is not None]
    if ruled_out:
        st.subheader("What cannot work here", anchor=False)
        tables.points([(lever.title, lever.why_not or "") for lever in ruled_out])
    fragmentation_box.draw(report)


def _picture(found: Waterfall, report: Report) -> None:
    st.subheader("Each lever, one after the other", anchor=False)
    with st.container(gap="xxsmall"):
        st.vega_lite_chart(spec=chart_waterfall.spec(found), width="stretch", alt=_alt(found))
        sessions = f"{_sessions_text(found.sessions)} at {fmt_tokens(report.context_tokens)} tokens"
        _remark(f"{sessions}. Equal lengths are equal factors; grey is in place already, blue is left to do.")
        numbers("waterfall", lambda: _numbers(found))


def _alt(found: Waterfall) -> str:
    steps = ", ".join(
        f"{step.title} {chart_waterfall.factor(step) + ' to ' if step.before_bytes else ''}{fmt_gib(step.after_bytes)}"
        for step in found.steps
    )
    return f"{found.sentence} KV step by step: {steps}."


def _numbers(found: Waterfall) -> None:
    rows = [
        (
            step.title,
            fmt_gib(step.after_bytes),
            chart_waterfall.factor(step) if step.before_bytes else wording.NONE,
            "in place" if step.is_applied else "left to do",
        )
        for step in found.steps
    ]
    rows.append(("What these GPUs hold", fmt_gib(found.pool_bytes), wording.NONE, wording.NONE))
    tables.table("KV of all sessions, lever by lever", ("Step", "KV", "Factor", "State"), rows, right=(1, 2))


def _already(found: Waterfall, family: str) -> str:
    """What of a family the scenario has already: 'In place: 8 KV heads, not 64, ÷ 8.'"""
    done = [
        f"{step.title.partition(': ')[2]}, {chart_waterfall.factor(step)}"
        for step in found.steps
        if step.family == family and step.is_applied and step.before_bytes
    ]
    return f"In place: {'; '.join(done)}." if done else ""


def _remark(words: str) -> None:
    if words:
        st.markdown(f":small[:gray[{text.markdown(words)}]]")


def _table(title: str, found: Levers, working: list[Lever]) -> None:
    header = ("Lever", "Requests", "KV per request", "Time per token")
    rows = [_figures_row("As it is", found.now, found.now), *(_row(lever, found.now) for lever in working)]
    tables.table(title, header, rows, right=(1, 2, 3), widths=_WIDTHS)


def _row(lever: Lever, now: RequestFigures) -> tuple[Cell, ...]:
    after = now if lever.after is None else lever.after
    # Applied, the view stays: levers add up.
    href = None if lever.scenario is None else state.href(lever.scenario, view="levers")
    return _figures_row(Cell(lever.title, href=href, under=lever.verify), after, now)


def _figures_row(name: str | Cell, after: RequestFigures, now: RequestFigures) -> tuple[Cell, ...]:
    change = after.requests - now.requests
    size, before = fmt_bytes(after.kv_bytes), fmt_bytes(now.kv_bytes)
    is_now = after is now
    return (
        name if isinstance(name, Cell) else Cell(name),
        Cell(fmt_count(after.requests), bold=bool(change), under="" if is_now else _delta(change)),
        Cell(size, bold=size != before),
        Cell(_band(after), bold=_band(after) != _band(now)),
    )


def _delta(change: int) -> str:
    return fmt_change(change) if change else "same"


def _band(figures: RequestFigures) -> str:
    return wording.NONE if figures.tpot is None else fmt_ms_band(figures.tpot.low_s, figures.tpot.high_s)
