"""Slabs against pages: what a pool holds when requests differ in length, for stated or pasted lengths."""

from __future__ import annotations

from functools import lru_cache

import streamlit as st

from kvcalc.errors import KvcalcError
from kvcalc.fragmentation import Allocation, Fragmentation, LengthRow, fragmentation, read_lengths
from kvcalc.report import Report
from kvcalc.scenario import Scenario
from kvcalc.ui import tables, text
from kvcalc.ui.capacity_tables import numbers
from kvcalc.units import fmt_bytes, fmt_count, fmt_gib, fmt_tokens

_LENGTHS, _KEPT = "lengths_text", "lengths_kept"
_MOST_CHARACTERS = 2_000_000


@lru_cache(maxsize=8)
def _fragmentation(scenario: Scenario, lengths: tuple[int, ...] | None) -> Fragmentation:
    """Kept a while: a rerun that only opens a box computes nothing. Raises KvcalcError."""
    return fragmentation(scenario, lengths)


def draw(report: Report) -> None:
    """The section. Without KV memory there is nothing to set aside."""
    if not report.budget.kv_pool_bytes:
        return
    st.subheader("Slabs against pages", anchor=False)
    try:
        found = _fragmentation(report.scenario, _lengths())
    except KvcalcError as error:
        st.warning(text.markdown(str(error)))
        found = _fragmentation(report.scenario, None)
    st.markdown(text.markdown(found.sentence))
    with st.container(gap="xxsmall"):
        _table(found)
        numbers("lengths", lambda: _rows(found))
        _paste(report.scenario)
    tables.points([("", note.text) for note in found.notes])


def _lengths() -> tuple[int, ...] | None:
    """The lengths that were pasted; none when the scenario's own median and 95th percentile count. Raises
    ScenarioError."""
    words = st.session_state.get(_KEPT, "")
    return read_lengths(words) if words.strip() else None


def _table(found: Fragmentation) -> None:
    header = ("Set aside", "Requests", "Reserved", "Used", "Wasted")
    rows = [_row(found.slab), _row(found.paged)]
    tables.table("Memory of one GPU for requests of these lengths", header, rows, right=(1, 2, 3, 4))


def _row(found: Allocation) -> tuple[str, ...]:
    return (
        found.label,
        fmt_count(found.requests),
        fmt_gib(found.reserved_bytes),
        fmt_gib(found.used_bytes),
        fmt_bytes(found.wasted_bytes),
    )


def _rows(found: Fragmentation) -> None:
    header = ("No longer than", "Share of requests", "Needed", "In pages", "In a slab")
    rows = [_length_row(row) for row in found.rows]
    tables.table("KV of one request on each GPU, by its length", header, rows, right=(0, 1, 2, 3, 4))


def _length_row(row: LengthRow) -> tuple[str, ...]:
    return (
        f"{fmt_tokens(row.context_tokens)} tokens",
        f"{row.percentile}%",
        fmt_bytes(row.used_bytes),
        fmt_bytes(row.paged_bytes),
        fmt_bytes(row.slab_bytes),
    )


def _paste(scenario: Scenario) -> None:
    """A box for the lengths of real requests. They stay in this visit: a link has the median and the tail alone."""
    box = st.expander("Paste request lengths", type="compact", key="fold_lengths", on_change="rerun")
    if not box.open:
        return
    with box:
        st.text_area(
            "Lengths in tokens, prompt and output together",
            key=_LENGTHS,
            max_chars=_MOST_CHARACTERS,
            height=120,
            placeholder="512, 2048, 8192",
            on_change=_keep,
            persist_state="session",
        )
        median = f"{fmt_tokens(scenario.context_tokens)} tokens"
        words = (
            f"One per line or with commas. Empty: a median of {median} and the 95th percentile of Traffic and price. "
            "Pasted lengths are not part of a link."
        )
        st.markdown(f":small[:gray[{text.markdown(words)}]]")


def _keep() -> None:
    st.session_state[_KEPT] = st.session_state.get(_LENGTHS) or ""
