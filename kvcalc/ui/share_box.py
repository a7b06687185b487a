"""The 'Share or export' box. Nothing in it is made, or loaded by the browser, before it is opened."""

from __future__ import annotations

import re
from collections.abc import Callable

import streamlit as st

from kvcalc import export
from kvcalc.report import Report
from kvcalc.scenario import Scenario
from kvcalc.share import COMPARED_KEYS, to_link
from kvcalc.ui import state, text


def draw(report: Report | None, files: Callable[[str], None] | None = None) -> None:
    """The box; without a report there is nothing to share.

    ``files`` offers what a view shares in place of the report; it is given the page's address.
    """
    if report is None:
        return
    box = st.popover("Share or export", type="tertiary", key="share_box", on_change="rerun")
    if not box.open:
        return
    with box:
        link = state.link(report.scenario)
        st.markdown("**Link to this page.** It carries every input.")
        st.code(link, language=None, wrap_lines=True)
        if files is not None:
            files(link.partition("?")[0])
            return
        name = f"kvcalc-{_file_name(report.model.label)}"
        with st.container(horizontal=True, gap="small"):
            markdown = export.to_markdown(report, address=link.partition("?")[0])
            st.download_button("Markdown", markdown, f"{name}.md", "text/markdown", on_click="ignore")
            st.download_button("JSON", export.to_json(report), f"{name}.json", "application/json", on_click="ignore")
            st.download_button("CSV", export.to_csv(report), f"{name}.csv", "text/csv", on_click="ignore")
        command = export.serve_command(report.scenario)
        if command is not None:
            st.markdown("**Start the engine this way.**")
            st.code(command, language=None, wrap_lines=True)
        _pin_offer(report.scenario)


def _pin_offer(scenario: Scenario) -> None:
    """Keep the scenario for Compare, where it stands beside whatever the inputs say then."""
    pinned = state.own_of("compare")
    free = next((key for key in COMPARED_KEYS if key not in pinned), None)
    here = next((key for key, link in pinned.items() if link == to_link(scenario)), None)
    if here is None and free is not None:
        st.button("Pin to compare", on_click=_pin, args=(scenario, free), type="tertiary")
        return
    words = f"Pinned as {here.upper()}." if here else "Compare is full: B, C and D are taken."
    st.markdown(f"{text.markdown(words)} Change an input, then open Compare.")


def _pin(scenario: Scenario, key: str) -> None:
    state.keep({**state.own_of("compare"), key: to_link(scenario)}, view="compare")


def _file_name(label: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", label.lower()).strip("-.")[:40] or "model"
