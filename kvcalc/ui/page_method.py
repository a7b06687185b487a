"""The Method view: how each number is computed and how far off it is, the glossary, and what this copy is made of."""

from __future__ import annotations

import streamlit as st

import kvcalc
from kvcalc.data import data_digest
from kvcalc.ui import frame, method_text, text


def show() -> None:
    """Draw the view. It needs no inputs; the scenario stays in the address."""
    with st.container(width=frame.WIDTH_PX):
        st.header("Method", anchor=False)
        made_of = f"kvcalc {kvcalc.__version__} · data {data_digest()}, as links name it"
        st.markdown(f":small[:gray[{text.markdown(made_of)}]]")
        st.html(method_text.method_html())
