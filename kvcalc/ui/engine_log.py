"""The user's log: read on request, kept for this visit alone. Only its figures ever reach the scenario and its link."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import streamlit as st

from kvcalc.enginelog import EngineLog, as_logged, calibrate, parse
from kvcalc.errors import KvcalcError
from kvcalc.reconcile import MEASURED, same_layout
from kvcalc.scenario import Scenario
from kvcalc.ui import state

_TEXT, _LOG = "engine_log_text", "engine_log"
_LONGEST_TEXT = 1_000_000
_HEIGHT_PX = 190
_KEPT: Literal["session"] = "session"
_SAMPLE = """\
Model loading took 33.88 GiB and 41.2 seconds
Available KV cache memory: 30.94 GiB
GPU KV cache size: 202,768 tokens
Maximum concurrency for 32,768 tokens per request: 6.19x"""


@dataclass(frozen=True)
class Offer:
    """Scenarios a log offers."""

    figures: Scenario | None
    """The scenario with the log's figures; None when they are of another layout, or change nothing."""
    settings: Scenario | None
    """The same set as the engine ran; None when that changes nothing more."""


def read() -> EngineLog | None:
    """The log read in this visit."""
    found: EngineLog | None = st.session_state.get(_LOG)
    return found


def lines_read(log: EngineLog) -> str:
    """'read 3 of 4 lines': of those that speak of memory."""
    understood = len({reading.line.number for reading in log.readings})
    count = understood + log.unread_count
    return f"read {understood} of {count} {'line' if count == 1 else 'lines'}"


def draw_box() -> None:
    """The text and the button that reads it."""
    st.text_area(
        "Your engine's start-up log",
        key=_TEXT,
        height=_HEIGHT_PX,
        max_chars=_LONGEST_TEXT,
        placeholder=_SAMPLE,
        help="What vLLM, SGLang, TensorRT-LLM or llama.cpp print from start to the first request. "
        "It stays on this page: a link carries figures only.",
        label_visibility="collapsed",
        persist_state=_KEPT,
    )
    st.button("Read the log", on_click=_read)


def draw_offer(scenario: Scenario, log: EngineLog | None) -> None:
    """Buttons that put the log's figures into the scenario, or take them out again."""
    offer = _offer(scenario, log)
    with st.container(horizontal=True, gap="small"):
        if offer.figures is not None:
            st.button("Use these figures", on_click=state.show, args=(offer.figures,))
        if offer.settings is not None:
            st.button("Set all as the log ran", on_click=state.show, args=(offer.settings,))
        if is_measured(scenario):
            estimates = Scenario(**{**dict(scenario), **dict.fromkeys(MEASURED)})
            st.button("Back to the estimates", on_click=state.show, args=(estimates,))
    if is_measured(scenario):
        st.markdown(":small[:gray[The scenario holds measured figures: every page and the link use them.]]")


def is_measured(scenario: Scenario) -> bool:
    """Whether any of its figures was measured."""
    return any(getattr(scenario, field) is not None for field in MEASURED)


def _offer(scenario: Scenario, log: EngineLog | None) -> Offer:
    if log is None or log.engine is None:
        return Offer(None, None)
    figures = _calibrated(scenario, log) if same_layout(scenario, log) else None
    settings = _as_logged(scenario, log)
    return Offer(
        figures=None if figures == scenario else figures,
        settings=None if settings in (scenario, figures) else settings,
    )


def _calibrated(scenario: Scenario, log: EngineLog) -> Scenario | None:
    try:
        return calibrate(scenario, log).scenario
    except KvcalcError:
        return None


def _as_logged(scenario: Scenario, log: EngineLog) -> Scenario | None:
    try:
        return as_logged(scenario, log).scenario
    except KvcalcError:
        return None


def _read() -> None:
    pasted = str(st.session_state[_TEXT])
    st.session_state[_LOG] = parse(pasted) if pasted.strip() else None
