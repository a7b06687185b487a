"""kvcalc's page: ``streamlit run app.py``."""

from __future__ import annotations

import streamlit as st

from kvcalc.ui import views

SIDEBAR_PX = 308

st.set_page_config(
    page_title="kvcalc: how many requests fit",
    layout="wide",
    initial_sidebar_state=SIDEBAR_PX,
    menu_items={"Get help": None, "Report a bug": None, "About": None},
)
views.show()
