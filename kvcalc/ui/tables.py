"""Tables and lists as plain HTML elements: right-aligned figures, a caption for screen readers, no extra script.

Colours are inherited, so both themes fit. Every cell is escaped here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import streamlit as st

from kvcalc.errors import Assumption, Note
from kvcalc.explain import Section
from kvcalc.ui.inputs import LABELS
from kvcalc.ui.speed_facts import Fact
from kvcalc.ui.text import html

_RULE = "1px solid rgba(128,140,156,.32)"
_SMALL = "font-size:.875rem;line-height:1.45"
_HIDDEN = "position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap"


@dataclass(frozen=True)
class Cell:
    """A cell that is more than text."""

    text: str
    href: str | None = None
    bold: bool = False
    note: str = ""
    """After the text, lighter."""
    under: str = ""
    """On lines of its own under the text, lighter."""


def table(
    caption: str,
    header: Sequence[str],
    rows: Iterable[Sequence[str | Cell]],
    *,
    right: Sequence[int] = (),
    widths: Sequence[str] = (),
) -> None:
    """A table. ``right`` are the columns of figures; the first cell of a row is its header.

    ``widths`` of columns, in CSS, for tables whose figures should stand under each other.
    """
    st.html(table_html(caption, header, rows, right=right, widths=widths))


def table_html(
    caption: str,
    header: Sequence[str],
    rows: Iterable[Sequence[str | Cell]],
    *,
    right: Sequence[int] = (),
    widths: Sequence[str] = (),
) -> str:
    """The same as text."""
    last = len(header) - 1
    head = "".join(
        f'<th scope="col" style="{_cell_style(index in right, index == last)};font-weight:400;opacity:.75'
        ";white-space:normal"
        f'{f";width:{widths[index]}" if widths else ""}">'
        f"{html(name)}</th>"
        for index, name in enumerate(header)
    )
    body = "".join(f"<tr>{_row(row, right)}</tr>" for row in rows)
    return (
        '<div style="overflow-x:auto" tabindex="0" role="region" aria-label="' + html(caption) + '">'
        f'<table style="width:100%;border-collapse:collapse;font-variant-numeric:tabular-nums;{_SMALL}">'
        f'<caption style="{_HIDDEN}">{html(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cell_style(is_figure: bool, is_last: bool) -> str:
    side = "text-align:right;white-space:nowrap" if is_figure else "text-align:left"
    # Columns of figures stand close together on a phone.
    gap = "0" if is_last else "clamp(.75rem,2vw,1.5rem)" if is_figure else ".75rem"
    return f"{side};padding:.45rem {gap} .45rem 0;vertical-align:top;border:0;border-bottom:{_RULE}"


def _row(row: Sequence[str | Cell], right: Sequence[int]) -> str:
    cells = []
    for index, content in enumerate(row):
        cell = content if isinstance(content, Cell) else Cell(content)
        inner = html(cell.text)
        if cell.href is not None:
            inner = f'<a href="{html(cell.href)}" target="_self" style="color:inherit">{inner}</a>'
        if cell.note:
            inner += f' <span style="font-weight:400;opacity:.75">{html(cell.note)}</span>'
        if cell.under:
            inner += f'<div style="font-weight:400;opacity:.75">{html(cell.under)}</div>'
        style = f"{_cell_style(index in right, index == len(row) - 1)};font-weight:{600 if cell.bold else 400}"
        tag, scope = ("th", ' scope="row"') if index == 0 else ("td", "")
        cells.append(f'<{tag}{scope} style="{style}">{inner}</{tag}>')
    return "".join(cells)


def remarks(notes: Iterable[Note], assumptions: Iterable[Assumption]) -> None:
    """What the reader must know, then what was taken for granted."""
    items = [f"<li>{html(note.text)}</li>" for note in notes]
    items += [
        f"<li><strong>{html(_name(found.field))}: {html(found.value)}.</strong> {html(found.reason)}</li>"
        for found in assumptions
    ]
    st.html(f'<ul style="margin:0;padding-left:1.25rem;{_SMALL}">{"".join(items)}</ul>')


def points(found: Iterable[tuple[str, str]]) -> None:
    """Sentences as a list, each after its title where it has one."""
    items = "".join(
        f"<li>{f'<strong>{html(title)}.</strong> ' if title else ''}{html(words)}</li>" for title, words in found
    )
    style = f"margin:0;padding-left:1.25rem;overflow-wrap:anywhere;{_SMALL}"
    st.html(f'<ul style="{style}">{items}</ul>')


def facts(found: Iterable[Fact]) -> None:
    """Short paragraphs, each with what it is about in front and where it is published behind."""
    items = "".join(
        f'<li style="margin:.35rem 0"><strong>{html(fact.title)}.</strong> {html(fact.words)}{_sources(fact)}</li>'
        for fact in found
    )
    st.html(f'<ul style="margin:0;padding:0;list-style:none;{_SMALL}">{items}</ul>')


def _sources(fact: Fact) -> str:
    """Its sources, each a link where it starts with an address."""
    shown = []
    for source in fact.sources:
        address, _, rest = source.partition(" ")
        if address.startswith("https://"):
            link = f'<a href="{html(address)}" target="_blank" rel="noopener" style="color:inherit">{html(address.removeprefix("https://"))}</a>'
            shown.append(f"{link} {html(rest)}".rstrip())
        else:
            shown.append(html(source))
    return f" Sources: {'; '.join(shown)}." if shown else ""


def _name(field: str) -> str:
    """A field as the sidebar calls it, else its own name in words."""
    words = field.replace("_", " ")
    return LABELS.get(field, words[:1].upper() + words[1:])


def arithmetic(section: Section) -> str:
    """The numbered steps of one figure, side by side where there is room."""
    steps = "".join(
        '<li style="margin:0 0 .25rem 1.1rem">'
        f"<strong>{html(step.title)}</strong>"
        f'<div style="opacity:.75">{html(step.formula)}</div>'
        f"<div>= {html(step.numbers)} = <strong>{html(step.value)}</strong></div></li>"
        for step in section.steps
    )
    grid = "display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,17rem),1fr));gap:1rem 1.5rem"
    return (
        f'<ol style="{grid};margin:0;padding:0;overflow-wrap:anywhere;font-variant-numeric:tabular-nums;{_SMALL}">'
        f"{steps}</ol>"
    )
