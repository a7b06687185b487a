"""A model's own config as text: read on request, kept as its sizing facts, refused in words."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from kvcalc import catalogue
from kvcalc.errors import ConfigError, KvcalcError
from kvcalc.sources import Loaded

_TEXT, _NAME = "paste_text", "paste_name"
_LONGEST_TEXT, _LONGEST_NAME = 2_000_000, 60


def draw(take: Callable[..., None], refuse: Callable[[str], None]) -> None:
    """The text, a name for it, and the button that reads it."""
    st.text_area(
        "config.json",
        key=_TEXT,
        height=140,
        max_chars=_LONGEST_TEXT,
        placeholder='{"model_type": "llama", "num_hidden_layers": 80, …}',
        help="config.json or params.json, a README's code block with it, or what AutoConfig prints. "
        "Only the keys that decide sizes are kept.",
    )
    st.text_input("Name it", key=_NAME, max_chars=_LONGEST_NAME, placeholder="optional")
    st.button("Use this config", on_click=_apply, args=(take, refuse))


def loaded(pasted: str) -> Loaded:
    """The model a text describes. Raises ConfigError."""
    if not pasted.strip():
        raise ConfigError("config.json", "text", None, hint="Paste the model's config.json.")
    spec = catalogue.read_model(pasted)
    return Loaded(spec=spec, facts=spec.sizing_facts, label=spec.label)


def _apply(take: Callable[..., None], refuse: Callable[[str], None]) -> None:
    try:
        take(loaded(str(st.session_state[_TEXT])), str(st.session_state[_NAME]))
    except KvcalcError as error:
        refuse(str(error))
