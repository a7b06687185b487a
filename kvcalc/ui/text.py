"""Escaping: what a user typed, pasted or sent in a link is shown as text, never as markup."""

from __future__ import annotations

import string
from html import escape

_MARKDOWN = {ord(mark): f"\\{mark}" for mark in string.punctuation}


def html(text: str) -> str:
    """Text for the inside of an HTML element or a quoted attribute."""
    return escape(text, quote=True)


def markdown(text: str) -> str:
    """Text for a line of Streamlit markdown: no emphasis, link, maths, colour or icon can start in it."""
    return " ".join(text.split()).translate(_MARKDOWN)
