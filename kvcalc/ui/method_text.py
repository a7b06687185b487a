"""METHODOLOGY.md as HTML that a Streamlit page shows without loading a script: headings that links reach, tables,
formulas in the reader's own fixed-width font, and the glossary as a list instead of a wide table.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from kvcalc import glossary
from kvcalc.ui.text import html

_FILE = Path(__file__).resolve().parents[2] / "METHODOLOGY.md"
_GLOSSARY = re.compile(r"<!-- glossary:.*?-->.*?<!-- end -->", re.DOTALL)
_TITLE = re.compile(r"\A# .*\n")
_PREFIX = "method-"
"""Before every anchor: a bare 'links' would be taken for the browser's own list of links, and dropped."""
_RULE = "1px solid rgba(128,140,156,.32)"
_CODE = "font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:.875em"
_STYLES = {
    "heading_open": "scroll-margin-top:4rem;line-height:1.3;padding:0;margin:2rem 0 .5rem;font-weight:600",
    "paragraph_open": "margin:0 0 .75rem",
    "bullet_list_open": "margin:0 0 .75rem;padding-left:1.25rem",
    "table_open": "width:100%;border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.875rem",
    "th_open": f"text-align:left;vertical-align:bottom;padding:.35rem .75rem .35rem 0;border:0;border-bottom:{_RULE}",
    "td_open": f"text-align:left;vertical-align:top;padding:.35rem .75rem .35rem 0;border:0;border-bottom:{_RULE}",
}
_SIZES = {"h3": "1.125rem", "h4": "1rem"}


class _Renderer(RendererHTML):
    """The elements whose markup is ours."""

    def html_block(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Comments of the file's maintainers are not for its readers."""
        return ""

    def code_block(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """A formula."""
        style = f"{_CODE};overflow-x:auto;margin:0 0 .75rem;padding:.5rem .75rem;border-left:{_RULE}"
        return f'<pre tabindex="0" style="{style}">{html(tokens[idx].content.rstrip())}</pre>'

    def code_inline(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """A name."""
        return f'<span style="{_CODE}">{html(tokens[idx].content)}</span>'

    def table_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """A table that scrolls by itself where it is wider than the page."""
        box = '<div style="overflow-x:auto;margin:0 0 .75rem" tabindex="0" role="region" aria-label="Table">'
        return box + self.renderToken(tokens, idx, options, env)

    def table_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        """Its end."""
        return self.renderToken(tokens, idx, options, env) + "</div>"


@lru_cache(maxsize=1)
def method_html() -> str:
    """The whole document but its title, the glossary put in."""
    text = _TITLE.sub("", _FILE.read_text(encoding="utf-8"))
    before, after = _GLOSSARY.split(text, maxsplit=1)
    return f'<div style="overflow-wrap:break-word">{_render(before)}{glossary_html()}{_render(after)}</div>'


def glossary_html() -> str:
    """Every term with its symbol, unit, meaning, other names and source."""
    terms = "".join(_term(term) for term in glossary.TERMS)
    grid = "display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,20rem),1fr));gap:.75rem 1.5rem"
    return f'<dl style="{grid};margin:0 0 .75rem;padding:0;font-size:.875rem;line-height:1.45">{terms}</dl>'


def _term(term: glossary.Term) -> str:
    measure = ", ".join(part for part in (term.symbol, term.unit) if part)
    beside = f' <span style="opacity:.75">{html(measure)}</span>' if measure else ""
    elsewhere = f" Elsewhere: {html(term.elsewhere)}." if term.elsewhere else ""
    return (
        f'<div><dt style="font-weight:600">{html(term.name)}{beside}</dt>'
        f'<dd style="margin:0">{html(term.one_line)}{elsewhere} '
        f'<span style="opacity:.75">{html(term.source)}</span></dd></div>'
    )


def _render(text: str) -> str:
    parser = MarkdownIt("commonmark", renderer_cls=_Renderer).enable("table")
    tokens = parser.parse(text)
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        _dress(token, following)
    return str(parser.renderer.render(tokens, parser.options, {}))


def _dress(token: Token, following: Token | None) -> None:
    """Give an element its style, a heading its anchor and its level under the page's own, a link its target."""
    if token.type in ("heading_open", "heading_close"):
        token.tag = f"h{int(token.tag[1:]) + 1}"
    if token.type in _STYLES:
        aligned = str(token.attrs.get("style", ""))
        size = f";font-size:{_SIZES.get(token.tag, '1rem')}" if token.type == "heading_open" else ""
        token.attrs["style"] = f"{_STYLES[token.type]}{size};{aligned}".rstrip(";")
    if token.type == "heading_open" and following is not None:
        token.attrs["id"] = _PREFIX + slug(following.content)
    for child in token.children or ():
        if child.type == "link_open":
            _aim(child)


def _aim(link: Token) -> None:
    address = str(link.attrs.get("href", ""))
    link.attrs["style"] = "color:inherit"
    if address.startswith("#"):
        link.attrs["href"] = f"#{_PREFIX}{address[1:]}"
    else:
        link.attrs |= {"target": "_blank", "rel": "noopener"}


def slug(title: str) -> str:
    """The anchor of a heading, as GitHub makes it.

    >>> slug("KV cache of one request")
    'kv-cache-of-one-request'
    """
    return re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-")
