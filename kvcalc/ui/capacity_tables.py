"""The Capacity page's tables."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from kvcalc.curves import ContextCurve, TpotCurve
from kvcalc.levers import Move
from kvcalc.mistakes import Mistake
from kvcalc.report import Report
from kvcalc.scenario import Scenario
from kvcalc.ui import state, text, wording
from kvcalc.ui.tables import Cell, table
from kvcalc.units import fmt_bytes, fmt_count, fmt_factor, fmt_gib, fmt_ms, fmt_times, fmt_tokens


def numbers(name: str, draw: Callable[[], None], *, title: str = "Numbers") -> None:
    """A chart's table twin, made when it is opened."""
    box = st.expander(title, type="compact", key=f"numbers_{name}", on_change="rerun")
    if box.open:
        with box:
            draw()


def _opens(scenario: Scenario, words: str) -> Cell:
    return Cell(words, href=state.href(scenario))


def memory(report: Report) -> None:
    """The memory bar's lines, with the arithmetic of each."""
    rows = [(line.label, fmt_gib(line.bytes, 2), line.formula) for line in report.budget.lines]
    rows.append(("The card", fmt_gib(report.budget.memory_bytes, 2), "the sum"))
    table("Memory of one GPU", ("Line", "Size", "How"), rows, right=(1,))


def context(curve: ContextCurve) -> None:
    """Requests at each context drawn."""
    speed = {point.context_tokens: fmt_count(point.requests) for point in curve.speed}
    rows = [
        (
            fmt_tokens(point.context_tokens),
            fmt_count(int(point.reserved_requests)),
            fmt_count(int(point.ideal_requests)),
            fmt_count(int(point.slab_requests)),
            speed.get(point.context_tokens, ""),
            "yes" if point.within_engine_limit else "no",
        )
        for point in curve.points
    ]
    header = ("Tokens per request", "Reserved", "Ideal", "Slab", "Within the target", "Admitted")
    table("Requests at once at each context", header, rows, right=(0, 1, 2, 3, 4))


def tpot(curve: TpotCurve) -> None:
    """Time per token at each number of requests drawn."""
    rows = [
        (
            fmt_count(point.requests),
            fmt_ms(point.weights_s, 1),
            fmt_ms(point.kv_s, 1),
            fmt_ms(point.floor_s, 1),
            fmt_ms(point.low_s, 1),
            fmt_ms(point.typical_s, 1),
            fmt_ms(point.high_s, 1),
        )
        for point in curve.points
    ]
    header = ("Requests", "Weights", "KV", "Floor", "Fast end", "Typical", "Slow end")
    table("Time per token", header, rows, right=tuple(range(7)))


def would_fit(report: Report) -> None:
    """Changes that would make it fit."""
    rows = [
        (_opens(row.scenario, row.change), f"{fmt_count(row.requests)} requests at once", row.pays)
        for row in report.would_fit
    ]
    table("These would fit", ("Change", "Result", "What you pay"), rows)


def limits(report: Report) -> None:
    """Every limit, smallest first."""
    rows = [
        (
            Cell(f"{limit.title} (binds)" if limit.binds else limit.title, bold=limit.binds),
            Cell(fmt_count(limit.requests), bold=limit.binds),
        )
        for limit in report.limits
    ]
    if (title := wording.met_first_token(report)) is not None:
        rows.append((Cell(title), Cell("met by all")))
    figure = "Requests at once" if report.scenario.replicas == 1 else "Per replica"
    table("What binds", ("Limit", figure), rows, right=(1,))
    st.markdown(f":small[:gray[{text.markdown(wording.pool_note(report))}]]")


def moves(found: tuple[Move, ...]) -> None:
    """The best moves, each a link to its scenario."""
    if not found:
        st.markdown(":small[:gray[No single change we know raises requests at once.]]")
        return
    rows = [
        (
            _opens(move.scenario, move.change),
            f"{fmt_count(move.before_requests)} → {fmt_count(move.after_requests)}",
            move.pays,
        )
        for move in found
    ]
    table("Best moves", ("Move", "Requests", "What you pay"), rows, right=(1,))


def capacities(report: Report) -> None:
    """Ideal, reserved and reported, with one sentence each."""
    found = report.capacities
    reported = fmt_times(found.reported_concurrency)
    rows = [
        ("Ideal", fmt_count(found.ideal_requests), found.why[0]),
        ("Reserved", fmt_count(found.reserved_requests), found.why[1]),
        ("Reported", reported, f"{found.why[2]} It counts {fmt_tokens(found.reported_tokens)} tokens."),
    ]
    table("Three capacities", ("Capacity", "Requests", "What it is"), rows, right=(1,))


def groups(report: Report) -> None:
    """KV of one request by layer group, busiest GPU."""
    rows = [
        (
            group.title,
            fmt_count(group.layers),
            fmt_tokens(group.kept_tokens) if group.kept_tokens else wording.NONE,
            fmt_bytes(float(group.bytes_per_token)) if group.bytes_per_token else wording.NONE,
            fmt_bytes(group.fixed_bytes) if group.fixed_bytes else wording.NONE,
            fmt_bytes(group.total_bytes),
        )
        for group in report.groups
    ]
    header = ("Kind of layer", "Layers", "Tokens kept", "Per token", "Whatever the length", "One request")
    caption = f"KV of one request of {fmt_tokens(report.context_tokens)} tokens on the busiest GPU"
    table(caption, header, rows, right=(1, 2, 3, 4, 5))
    if report.replication_ratio > 1:
        ratio = fmt_factor(report.replication_ratio)
        st.markdown(f":small[:gray[Tensor parallelism stores it {ratio} over.]]")


def mistakes(found: tuple[Mistake, ...]) -> None:
    """Likely mistakes, one line each, the move a link where a scenario says it. Nothing for a healthy scenario."""
    if found:
        st.html(mistakes_html(found))


def mistakes_html(found: tuple[Mistake, ...]) -> str:
    """The same as text."""
    items = "".join(
        f"<li><strong>{text.html(row.title)}.</strong> {text.html(row.sentence)} {_move(row)}</li>" for row in found
    )
    return f'<ul aria-label="Likely mistakes" style="margin:0;padding-left:1.25rem;font-size:.875rem">{items}</ul>'


def _move(row: Mistake) -> str:
    if row.scenario is None:
        return text.html(row.move)
    href = text.html(state.href(row.scenario))
    return f'<a href="{href}" target="_self" style="color:inherit">{text.html(row.move)}</a>'
