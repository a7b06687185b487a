"""The box for a model's own config: read on request, kept as its sizing facts, refused in words."""

from __future__ import annotations

import streamlit as st

from kvcalc import catalogue
from kvcalc.errors import KvcalcError
from kvcalc.scenario import PASTED
from kvcalc.ui import inputs, text

_TEXT, _NAME, _PROBLEM = "paste_text", "paste_name", "paste_problem"
_LONGEST_TEXT, _LONGEST_NAME = 2_000_000, 60


def draw() -> None:
    """The text, a name for it, and the button that reads it."""
    st.text_area(
        "config.json",
        key=_TEXT,
        height=140,
        max_chars=_LONGEST_TEXT,
        placeholder='{"model_type": "llama", "num_hidden_layers": 80, …}',
        help="The model's config.json, as on its Hugging Face page. Only the keys that decide sizes are kept.",
    )
    st.text_input("Name it", key=_NAME, max_chars=_LONGEST_NAME, placeholder="optional")
    st.button("Use this config", on_click=_apply, type="primary")


def problem() -> str | None:
    """Why the last pasted text was refused, as markdown."""
    found: str | None = st.session_state.get(_PROBLEM)
    return found


def _apply() -> None:
    session = st.session_state
    try:
        pasted = str(session[_TEXT])
        if not pasted.strip():
            session[_PROBLEM] = text.markdown("config.json: expected text, got nothing. Paste the model's config.json.")
            return
        spec = catalogue.read_model(pasted)
    except KvcalcError as error:
        session[_PROBLEM] = text.markdown(str(error))
        return
    session[_PROBLEM] = None
    session[inputs.key("model")] = PASTED
    session[inputs.key("model_facts")] = spec.sizing_facts
    session[inputs.key("model_label")] = str(session[_NAME]).strip() or spec.label
    session[inputs.key("attention")] = "as_trained"
