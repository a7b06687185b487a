"""Why does my engine differ?: an engine's log beside the prediction, line by line, and what explains the gap."""

from __future__ import annotations

import streamlit as st

from kvcalc.enginelog import EngineLog
from kvcalc.errors import KvcalcError
from kvcalc.export import scenario_line
from kvcalc.reconcile import PRINTED_BYTES, Line, Reconciliation, reconcile
from kvcalc.reconcile_words import explanations, sentence
from kvcalc.ui import engine_log, frame, tables, text, wording
from kvcalc.ui.frame import Asked
from kvcalc.ui.tables import Cell
from kvcalc.units import GIB, fmt_change, fmt_count, fmt_gib, fmt_times, fmt_tokens, in_sentence

_MOST_QUOTED = 5


def show() -> None:
    """Draw the view."""
    frame.show(_answer, _details)


def _found(asked: Asked) -> Reconciliation | KvcalcError | None:
    """The comparison, or why there is none. A log is its visitor's own: nothing made of it is kept between visits."""
    if asked.scenario is None or asked.problem is not None:
        return None
    try:
        return reconcile(asked.scenario, engine_log.read())
    except KvcalcError as error:
        return error


def _answer(asked: Asked) -> None:
    if asked.problem is not None:
        frame.not_answered(asked.problem, asked.report)
        return
    found, log, report = _found(asked), engine_log.read(), asked.report
    if report is None or found is None:
        return
    line = scenario_line(report) + ("" if log is None else f" · {engine_log.lines_read(log)}")
    if isinstance(found, KvcalcError):
        frame.heading("Not compared: the log's layout does not go with this model.", line, report, bad=True)
        st.warning(text.markdown(str(found)))
        return
    frame.heading(sentence(found), line, report, bad=found.failure is not None)
    _figures(found)


def _figures(found: Reconciliation) -> None:
    """What the pool is and holds: the log's where it says, the prediction under it or alone."""
    predicted, logged = found.predicted, found.logged
    shown = logged or predicted
    context = found.scenario.context_tokens

    def note(figure: str) -> str:
        return "predicted" if logged is None else f"predicted {figure.removesuffix(' GiB')}"

    with frame.figures():
        pool, tokens = fmt_gib(predicted.pool_bytes, 2), fmt_tokens(predicted.tokens)
        frame.figure("KV pool", "kv_pool_bytes", fmt_gib(shown.pool_bytes, 2), note(pool))
        frame.figure("Tokens in the pool", "reported_capacity", fmt_tokens(shown.tokens), note(tokens))
        times = fmt_times(predicted.concurrency)
        label = f"At {fmt_tokens(found.max_model_len)} tokens"
        frame.figure(label, "max_model_len", fmt_times(shown.concurrency), note(times))
        requests = fmt_count(predicted.requests)
        label = f"At your {fmt_tokens(context)} tokens"
        frame.figure(label, "concurrency", fmt_count(shown.requests), note(requests))


def _details(asked: Asked) -> None:
    log, found = engine_log.read(), _found(asked)
    left, right = st.columns([2, 3], gap="medium")
    with left:
        st.subheader("Your log", anchor=False)
        engine_log.draw_box()
        if asked.scenario is not None and asked.problem is None:
            engine_log.draw_offer(asked.scenario, log)
        if isinstance(found, Reconciliation):
            _chart(found)
    if not isinstance(found, Reconciliation):
        return
    with right:
        st.subheader("Line by line, GiB per GPU", anchor=False)
        _lines(found, log)
    _explanation(found)
    if log is not None:
        _unread(log)


def _chart(found: Reconciliation) -> None:
    """The differences as bars; the table has their numbers."""
    from kvcalc.ui import chart_difference

    rows = chart_difference.moves(found)
    if rows:
        st.subheader("What moves the pool, GiB per GPU", anchor=False)
        alt = chart_difference.alt_text(rows)
        st.vega_lite_chart(spec=chart_difference.spec(rows), width="stretch", alt=alt)


def _lines(found: Reconciliation, log: EngineLog | None) -> None:
    predicted, logged = found.predicted, found.logged
    length = fmt_tokens(found.max_model_len)
    tokens = _row("tokens", fmt_tokens(predicted.tokens))
    requests = _row(f"requests of {length}", fmt_times(predicted.concurrency))
    if logged is not None:
        change = fmt_change(logged.tokens - predicted.tokens)
        tokens = _row("tokens", fmt_tokens(predicted.tokens), fmt_tokens(logged.tokens), change)
        figures = fmt_times(predicted.concurrency), fmt_times(logged.concurrency)
        change = fmt_change(logged.concurrency - predicted.concurrency, 2)
        requests = _row(f"requests of {length}", *figures, change)
    rows = [*(_size_row(line) for line in found.lines), tokens, requests]
    header = ("Line", "Predicted", "Measured" if log is None else "Log", "Difference")
    columns = 4 if found.has_log else 2
    caption = "Memory of one GPU, predicted and logged" if found.has_log else "Memory of one GPU, predicted"
    tables.table(caption, header[:columns], [row[:columns] for row in rows], right=(1, 2, 3))
    _remarks(found)


def _remarks(found: Reconciliation) -> None:
    """What of the log's column the log does not print."""
    remarks = []
    if any(line.by_subtraction for line in found.lines):
        remarks.append("In brackets: not printed, it is what the other lines leave.")
    if found.logged is not None and not found.prints_tokens:
        remarks.append("No tokens are printed: they are counted here from the pool.")
    if remarks:
        st.markdown(f":small[:gray[{text.markdown(' '.join(remarks))}]]")


def _size_row(line: Line) -> tuple[Cell, ...]:
    sign = {"request": "", "kv_pool": "= "}.get(line.name, "− ")
    label = in_sentence(line.label) if sign else line.label
    logged = None if line.logged_bytes is None else _gib(line.logged_bytes)
    if logged is not None and line.by_subtraction:
        logged = f"({logged})"
    gap = line.difference_bytes
    change = "" if gap is None else fmt_change(gap / GIB, 2)
    is_pool = line.name == "kv_pool"
    return _row(f"{sign}{label}", _gib(line.predicted_bytes), logged, change, bold=is_pool, bold_change=_is_large(gap))


def _is_large(gap: int | None) -> bool:
    return gap is not None and abs(gap) > 10 * PRINTED_BYTES


def _gib(size: int) -> str:
    return fmt_gib(size, 2).removesuffix(" GiB").replace("-", "−")


def _row(
    label: str,
    predicted: str,
    logged: str | None = None,
    change: str = "",
    *,
    bold: bool = False,
    bold_change: bool = False,
) -> tuple[Cell, ...]:
    return (
        Cell(label, bold=bold),
        Cell(predicted, bold=bold),
        Cell(wording.NONE if logged is None else logged, bold=bold),
        Cell(change or wording.NONE, bold=bold or bold_change),
    )


def _explanation(found: Reconciliation) -> None:
    causes = explanations(found) if found.has_log else ()
    if not causes and not found.notes:
        return
    st.subheader("What explains it", anchor=False)
    tables.points([(cause.title, cause.text) for cause in causes] + [("", note.text) for note in found.notes])


def _unread(log: EngineLog) -> None:
    """Lines that speak of memory and were not understood."""
    if not log.unread_count:
        return
    st.subheader("Lines that were not read", anchor=False)
    tables.points([("", f"Line {line.number}: {line.text}") for line in log.unread[:_MOST_QUOTED]])
    more = log.unread_count - min(_MOST_QUOTED, len(log.unread))
    if more:
        st.markdown(f":small[:gray[And {fmt_count(more)} more.]]")
