"""The field's terms, each written once in ``glossary.toml``: tooltips, documents and tests read them here."""

from __future__ import annotations

from pathlib import Path

from kvcalc.data import load_toml, validate
from kvcalc.errors import CatalogueError, Record


class Term(Record):
    """One term of the field as this project uses it."""

    key: str
    """Stable id, snake case; where a Python name stands for it, that name."""
    name: str
    """As on the page: plain words, then the field's abbreviation in brackets."""
    symbol: str = ""
    """Letter in formulas; empty when it has none."""
    unit: str = ""
    """Unit of the number; empty when it is not a number."""
    one_line: str
    """What it means here, one or two sentences: the tooltip."""
    elsewhere: str = ""
    """What engines and config files call it; empty when they say the same."""
    source: str
    """Where the meaning is defined."""


class _Glossary(Record):
    terms: tuple[Term, ...]


_FILE = Path(__file__).with_name("glossary.toml")

TERMS: tuple[Term, ...] = validate(load_toml(_FILE), _Glossary, where=_FILE.name).terms
"""Every term, in the order of the file."""

_BY_KEY = {entry.key: entry for entry in TERMS}


def term(key: str) -> Term:
    """The term with this key. Raises CatalogueError for a key that does not exist.

    >>> term("tpot").name, term("tpot").unit
    ('Time per token (TPOT)', 's')
    """
    found = _BY_KEY.get(key)
    if found is None:
        raise CatalogueError("term", "a key of the glossary", key, hint="See kvcalc/glossary.toml.")
    return found
