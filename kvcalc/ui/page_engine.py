"""Why does my engine differ?: an engine's log against the prediction, line by line."""

from __future__ import annotations

import streamlit as st


def show() -> None:
    """Draw the view."""
    st.header("Why does my engine differ?", anchor=False)
