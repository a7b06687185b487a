"""A comparison in a link: the link's own scenario is A; b, c and d each hold a whole link of another."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from kvcalc.errors import KvcalcError, LinkError, Note, Record
from kvcalc.evaluation import answer
from kvcalc.scenario import Scenario
from kvcalc.share import COMPARED_KEYS, FIELDS, from_link, read_pairs, to_link

_SCENARIO_KEYS = frozenset(field.key for field in FIELDS)


class ComparedLink(Record):
    """What a link says beside its own scenario."""

    scenarios: dict[str, Scenario]
    """Letter B to D → scenario; one that cannot be used is left out."""
    notes: tuple[Note, ...]
    """Every one left out, and every field changed or refused."""


def compared_fields(scenarios: Mapping[str, Scenario]) -> dict[str, str]:
    """Keys and values of the scenarios B to D, for a page's address bar beside ``share.link_fields``."""
    return {letter.lower(): to_link(scenario) for letter, scenario in scenarios.items()}


def to_compare_link(first: Scenario, others: tuple[Scenario, ...]) -> str:
    """A comparison as one query string."""
    letters = (key.upper() for key in COMPARED_KEYS)
    return f"{to_link(first)}&{urlencode(compared_fields(dict(zip(letters, others, strict=False))))}"


def read_compared(text: str) -> ComparedLink:
    """The scenarios B to D of a query string or a whole address. Never raises: what cannot be used is named.

    Problems of the first scenario's own keys are for ``share.from_link`` to name.
    """
    scenarios: dict[str, Scenario] = {}
    notes: list[Note] = []
    pairs = read_pairs(text, [])
    for key in COMPARED_KEYS:
        if key not in pairs:
            continue
        letter = key.upper()
        try:
            scenarios[letter], found = read_scenario(pairs[key])
            notes += [Note(field=_named(letter, note), text=note.text) for note in found]
        except KvcalcError as error:
            notes.append(Note(field=letter, text=f"{error} It is left out."))
    return ComparedLink(scenarios=scenarios, notes=tuple(notes))


def _named(letter: str, note: Note) -> str:
    """The scenario, and its field unless the note is about the link as a whole."""
    return letter if note.field in ("data", "link") else f"{letter}, {note.field}"


def read_scenario(text: str) -> tuple[Scenario, tuple[Note, ...]]:
    """The scenario of a link somebody pasted, with what could not be used of it. Raises KvcalcError for text that is
    no link, and for a scenario that has no answer."""
    pairs = read_pairs(text, [])
    if not pairs.keys() & _SCENARIO_KEYS:
        raise LinkError("link", "a link of this page", text.strip()[:60] or None, hint="Copy it from Share.")
    found = from_link(text)
    answer(found.scenario)
    return found.scenario, found.notes
