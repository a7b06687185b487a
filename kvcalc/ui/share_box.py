"""The 'Share or export' box. Nothing in it is made, or loaded by the browser, before it is opened."""

from __future__ import annotations

import re

import streamlit as st

from kvcalc import export
from kvcalc.report import Report
from kvcalc.ui import state


def draw(report: Report | None) -> None:
    """The box; without a report there is nothing to share."""
    if report is None:
        return
    box = st.popover("Share or export", type="tertiary", key="share_box", on_change="rerun")
    if not box.open:
        return
    with box:
        link = state.link(report.scenario)
        st.markdown("**Link to this page.** It carries every input.")
        st.code(link, language=None, wrap_lines=True)
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


def _file_name(label: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", label.lower()).strip("-.")[:40] or "model"
