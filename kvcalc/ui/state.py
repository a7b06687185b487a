"""The session: address ↔ widgets ↔ Scenario.

The address is read when a session starts and when the user changed it (typed, Back, Forward), and written once
at the end of a run that changed the scenario. A page link comes with an empty address: it is put back at once.
Widgets keep what was typed, right or wrong.

A view may have keys of its own in the address (``share.view_of``): ``own`` and ``keep``. They stay with the session
while another view is shown.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import streamlit as st

from kvcalc import share
from kvcalc.errors import KvcalcError, Note
from kvcalc.scenario import Scenario
from kvcalc.ui import inputs

VIEW_KEY = "view"
_ADDRESS, _IN_ADDRESS, _WRITTEN_AT = "address", "scenario_in_address", "address_written_at"
_SEEN, _NOTES, _GOOD, _VIEW = "inputs_seen", "link_notes", "last_good", "view_shown"
_OWN, _LENT = "views_own_pairs", "widgets_lent"
_SETTLING_S = 1.0
"""A browser still shows the old address for a moment after a write; it is no request to go back. [s]"""


def start(view: str) -> None:
    """Bring the widgets' state up to date with the address, where the user changed it.

    ``view`` is the id of the view shown; empty for the first one, which an address need not name.
    """
    if is_lent() and st.session_state[_VIEW] != view:
        give_back()
    st.session_state[_VIEW] = view
    address = _address()
    if not address and st.session_state.get(_ADDRESS):
        address = _put_back()
    if _ADDRESS not in st.session_state:
        _open(address)
        if all(share.view_of(key) for key, _ in parse_qsl(address, keep_blank_values=True)):
            # A bare visit gets its full link at once: the default of today is part of the record.
            st.session_state[_IN_ADDRESS] = None
    elif address != st.session_state[_ADDRESS] and not _is_settling() and values() == st.session_state[_SEEN]:
        _open(address)


def _put_back() -> str:
    """The address after a page link: the scenario's keys as they were, and those of the view that is shown now."""
    before = parse_qsl(st.session_state[_ADDRESS], keep_blank_values=True)
    pairs = [(key, value) for key, value in before if share.view_of(key) is None] + list(own().items())
    _write(pairs)
    st.session_state[_ADDRESS] = address = urlencode(pairs)
    if st.session_state[_IN_ADDRESS] is not None:
        st.session_state[_IN_ADDRESS] = (st.session_state[_IN_ADDRESS][0], own())
    return address


def _address() -> str:
    """The query string as it stands, repeated keys and all."""
    params = st.query_params
    return urlencode([(name, value) for name in params for value in params.get_all(name) if name != VIEW_KEY])


def _is_settling() -> bool:
    return time.monotonic() - float(st.session_state.get(_WRITTEN_AT, float("-inf"))) < _SETTLING_S


def _open(address: str) -> None:
    found = share.from_link(address)
    show(found.scenario)
    pairs = parse_qsl(address, keep_blank_values=True)
    shown = {key: value for key, value in pairs if share.view_of(key) is not None}
    kept = {key: value for key, value in _all_own().items() if share.view_of(key) != _view()}
    st.session_state[_OWN] = {**kept, **shown}
    st.session_state[_ADDRESS] = address
    st.session_state[_IN_ADDRESS] = (found.scenario, own())
    st.session_state[_NOTES] = found.notes
    st.session_state[_GOOD] = None
    st.session_state[_LENT] = False


def show(scenario: Scenario) -> None:
    """Make the widgets show this scenario. Only before they are drawn, or in a callback."""
    for field, value in inputs.from_scenario(scenario).items():
        st.session_state[inputs.key(field)] = value
    st.session_state[_SEEN] = values()


def put(fields: Mapping[str, Any]) -> None:
    """Make the widgets of these fields show these values; the others keep what was typed. As ``show``."""
    for field, value in fields.items():
        st.session_state[inputs.key(field)] = value


def readable() -> Scenario | None:
    """The scenario the widgets describe; None where one of them cannot be read."""
    try:
        return inputs.to_scenario(values())
    except KvcalcError:
        return None


def values() -> dict[str, Any]:
    """What the widgets hold, by field."""
    return {field: st.session_state.get(inputs.key(field)) for field in inputs.ALL}


def read() -> Scenario:
    """The scenario the widgets describe. Raises KvcalcError."""
    found = values()
    st.session_state[_SEEN] = found
    return inputs.to_scenario(found)


def own() -> dict[str, str]:
    """What the view that is shown has in the address beside the scenario."""
    return {key: value for key, value in _all_own().items() if share.view_of(key) == _view()}


def keep(pairs: Mapping[str, str], *, view: str | None = None) -> None:
    """Replace a view's own pairs, those of the one shown unless it is named; the address gets them at the end."""
    view = _view() if view is None else view
    others = {key: value for key, value in _all_own().items() if share.view_of(key) != view}
    st.session_state[_OWN] = {**others, **pairs}


def own_of(view: str) -> dict[str, str]:
    """What another view would have in the address."""
    return {key: value for key, value in _all_own().items() if share.view_of(key) == view}


def _all_own() -> dict[str, str]:
    found: dict[str, str] = st.session_state.get(_OWN, {})
    return found


def lend(scenario: Scenario) -> None:
    """Let the widgets show and change another scenario than the address's, until ``give_back`` or another view."""
    show(scenario)
    st.session_state[_LENT] = True


def give_back() -> None:
    """Make the widgets show the address's scenario again."""
    show(held())
    st.session_state[_LENT] = False


def is_lent() -> bool:
    """Whether the widgets show another scenario than the address's."""
    return bool(st.session_state.get(_LENT, False))


def held() -> Scenario:
    """The address's scenario."""
    found: Scenario = st.session_state[_IN_ADDRESS][0]
    return found


def write_address(scenario: Scenario) -> None:
    """Put the scenario into the address with the view's own pairs, if they are not there already."""
    record = (held() if is_lent() else scenario, own())
    if record == st.session_state[_IN_ADDRESS]:
        return
    fields = {**share.link_fields(record[0]), **record[1]}
    _write(list(fields.items()))
    st.session_state[_ADDRESS] = urlencode(fields)
    st.session_state[_IN_ADDRESS] = record


def _write(pairs: list[tuple[str, str]]) -> None:
    st.query_params.from_dict([*_view_pair(), *pairs])
    st.session_state[_WRITTEN_AT] = time.monotonic()


def _view() -> str:
    found: str = st.session_state[_VIEW]
    return found


def _view_pair() -> list[tuple[str, str]]:
    return [(VIEW_KEY, _view())] if _view() else []


def link(scenario: Scenario) -> str:
    """The whole address of this view of a scenario, for somebody else's browser."""
    parts = urlsplit(st.context.url or "")
    query = urlencode([*_view_pair(), *share.link_fields(scenario).items(), *own().items()])
    return urlunsplit(parts._replace(path=parts.path or "/", query=query))


def href(scenario: Scenario, *, view: str = "") -> str:
    """A link on the page to a scenario, in the first view unless one is named. It starts a new visit: what was pinned
    to compare goes with it."""
    named = {VIEW_KEY: view} if view else {}
    own = own_of(view) | own_of("compare")
    return f"?{urlencode({**named, **share.link_fields(scenario), **own})}"


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
