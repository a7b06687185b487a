"""The views, by the id they have in a link. A new one is a row here and a module beside this one.

Streamlit's page links switch between them: they take no height of the page, and move into the sidebar on a phone.
The address stays the record: it names the view as it names every input, on one path.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass

import streamlit as st

from kvcalc.ui import state, text
from kvcalc.ui.state import VIEW_KEY


@dataclass(frozen=True)
class View:
    """One view: the question it answers, and the module whose ``show`` draws it."""

    title: str
    module: str


VIEWS = {
    "capacity": View("Capacity", "page_capacity"),
    "document": View("Add a document", "page_document"),
    "levers": View("Levers", "page_levers"),
    "compare": View("Compare", "page_compare"),
    "engine": View("Why does my engine differ?", "page_engine"),
    "method": View("Method", "page_method"),
}
"""In the order of their links."""
FIRST = "capacity"


class _Link(st.Page):
    """A page link that leaves the address on the one path it has: ``?view=`` says which view is meant."""

    @property
    def url_path(self) -> str:
        """The root."""
        return ""


def show() -> None:
    """Draw the view the address names; only its module is loaded and run."""
    named = st.query_params.get(VIEW_KEY, FIRST)
    wanted = named if named in VIEWS else FIRST
    links = {
        name: _Link(_nothing, title=view.title, url_path=name, default=name == wanted) for name, view in VIEWS.items()
    }
    chosen = st.navigation(list(links.values()), position="top")
    current = next(name for name, link in links.items() if link is chosen)
    if current != wanted and len(st.query_params):
        # Back, Forward, or an address typed over: it decides, and the links follow. A page link comes without one.
        st.switch_page(
            links[wanted], query_params=[(k, v) for k in st.query_params for v in st.query_params.get_all(k)]
        )
    if named not in VIEWS:
        st.info(text.markdown(f"view: expected {', '.join(VIEWS)}, got {named[:40]!r}. Capacity is shown."))
    module = importlib.import_module(f"kvcalc.ui.{VIEWS[current].module}")
    if hasattr(module, "default_pairs") and not state.own_of(current):
        # Before the address is written: written twice, Back would lead to a half-written one, and from there here.
        state.keep(module.default_pairs(), view=current)
    state.start("" if current == FIRST else current)
    module.show()


def _nothing() -> None:
    """The views are drawn by the script itself, so that what they share stays on the screen."""
