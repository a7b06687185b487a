"""A model by its Hub id. The token is for the one reading: it is in no link, export, cache, log or error text."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from kvcalc import sources
from kvcalc.sources import Loaded

_ID, _REVISION, _TOKEN, _WANTED = "hub_id", "hub_revision", "hub_token", "hub_wanted"
_LONGEST_ID, _LONGEST_REVISION, _LONGEST_TOKEN = 2_000, 128, 200
_PAIR_PX = 110
_KEPT_S, _KEPT = 3_600, 32


def draw(_take: Callable[..., None], refuse: Callable[[str], None]) -> None:
    """The id, a revision, a token, and the button that reads it."""
    st.text_input("Hub id or address", key=_ID, max_chars=_LONGEST_ID, placeholder="org/name")
    with st.grid(2, min_column_width=_PAIR_PX):
        st.text_input("Revision", key=_REVISION, max_chars=_LONGEST_REVISION, placeholder="main")
        st.text_input(
            "Token",
            key=_TOKEN,
            type="password",
            autocomplete="off",
            max_chars=_LONGEST_TOKEN,
            placeholder="optional",
            help="Only for a gated or private model, and for this visit only: it is sent to the Hub and kept nowhere.",
        )
    st.button("Read from the Hub", on_click=_want, args=(refuse,))


def _want(refuse: Callable[[str], None]) -> None:
    session = st.session_state
    model, revision, token = (str(session[name]).strip() for name in (_ID, _REVISION, _TOKEN))
    if not model:
        refuse("model: expected a model id such as org/name, got nothing. Type it, or paste a config.")
        return
    session[_WANTED] = (model, revision or None, token or None)


def is_wanted() -> bool:
    """Whether a model is waiting to be read."""
    return _WANTED in st.session_state


def fetch() -> Loaded:
    """Read it. Raises HubError, ConfigError.

    What anybody may read is kept for an hour. What a typed token opened is not: the next visitor has another.
    """
    model, revision, token = st.session_state.pop(_WANTED)
    if token is not None:
        return sources.from_hub(model, revision=revision, token=token)
    return _public(model, revision)


@st.cache_resource(ttl=_KEPT_S, max_entries=_KEPT, show_spinner=False)
def _public(model: str, revision: str | None) -> Loaded:
    """A model read without a typed token; an error is raised, and so not kept."""
    return sources.from_hub(model, revision=revision)
