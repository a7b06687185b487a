"""The session: address ↔ widgets ↔ Scenario.

The address is read when a session starts and when the user changed it (typed, Back, Forward), and written once
at the end of a run that changed the scenario. A page link comes with an empty address: it is put back at once.
Widgets keep what was typed, right or wrong.
"""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import streamlit as st

from kvcalc import share
from kvcalc.errors import Note
from kvcalc.scenario import Scenario
from kvcalc.ui import inputs

VIEW_KEY = "view"
_ADDRESS, _IN_ADDRESS, _WRITTEN_AT = "address", "scenario_in_address", "address_written_at"
_SEEN, _NOTES, _GOOD, _VIEW = "inputs_seen", "link_notes", "last_good", "view_shown"
_SETTLING_S = 1.0
"""A browser still shows the old address for a moment after a write; it is no request to go back. [s]"""


def start(view: str) -> None:
    """Bring the widgets' state up to date with the address, where the user changed it.

    ``view`` is the id of the view shown; empty for the first one, which an address need not name.
    """
    st.session_state[_VIEW] = view
    address = _address()
    if not address and st.session_state.get(_ADDRESS):
        address = st.session_state[_ADDRESS]
        _write(parse_qsl(address, keep_blank_values=True))
    if _ADDRESS not in st.session_state:
        _open(address)
        if not address:
            # A bare visit gets its full link at once: the default of today is part of the record.
            st.session_state[_IN_ADDRESS] = None
    elif address != st.session_state[_ADDRESS] and not _is_settling() and values() == st.session_state[_SEEN]:
        _open(address)


def _address() -> str:
    """The query string as it stands, repeated keys and all."""
    params = st.query_params
    return urlencode([(name, value) for name in params for value in params.get_all(name) if name != VIEW_KEY])


def _is_settling() -> bool:
    return time.monotonic() - float(st.session_state.get(_WRITTEN_AT, float("-inf"))) < _SETTLING_S


def _open(address: str) -> None:
    found = share.from_link(address)
    show(found.scenario)
    st.session_state[_ADDRESS] = address
    st.session_state[_IN_ADDRESS] = found.scenario
    st.session_state[_NOTES] = found.notes
    st.session_state[_GOOD] = None


def show(scenario: Scenario) -> None:
    """Make the widgets show this scenario. Only before they are drawn, or in a callback."""
    for field, value in inputs.from_scenario(scenario).items():
        st.session_state[inputs.key(field)] = value
    st.session_state[_SEEN] = values()


def values() -> dict[str, Any]:
    """What the widgets hold, by field."""
    return {field: st.session_state.get(inputs.key(field)) for field in inputs.ALL}


def read() -> Scenario:
    """The scenario the widgets describe. Raises KvcalcError."""
    found = values()
    st.session_state[_SEEN] = found
    return inputs.to_scenario(found)


def write_address(scenario: Scenario) -> None:
    """Put the scenario into the address, if it is not there already."""
    if scenario == st.session_state[_IN_ADDRESS]:
        return
    fields = share.link_fields(scenario)
    _write(list(fields.items()))
    st.session_state[_ADDRESS] = urlencode(fields)
    st.session_state[_IN_ADDRESS] = scenario


def _write(pairs: list[tuple[str, str]]) -> None:
    st.query_params.from_dict([*_view_pair(), *pairs])
    st.session_state[_WRITTEN_AT] = time.monotonic()


def _view_pair() -> list[tuple[str, str]]:
    view = st.session_state[_VIEW]
    return [(VIEW_KEY, view)] if view else []


def link(scenario: Scenario) -> str:
    """The whole address of this view of a scenario, for somebody else's browser."""
    parts = urlsplit(st.context.url or "")
    query = urlencode([*_view_pair(), *share.link_fields(scenario).items()])
    return urlunsplit(parts._replace(path=parts.path or "/", query=query))


def link_notes() -> tuple[Note, ...]:
    """What a link said that could not be used, and what changed since it was made."""
    found: tuple[Note, ...] = st.session_state.get(_NOTES, ())
    return found


def remember(scenario: Scenario) -> None:
    """Keep the last scenario that could be answered."""
    st.session_state[_GOOD] = scenario


def last_good() -> Scenario | None:
    """The last scenario of this session that could be answered."""
    found: Scenario | None = st.session_state.get(_GOOD)
    return found
