"""How big a document is in tokens, as a range with its method named, and what is asked of it."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal

from pydantic import ValidationError, model_validator

from kvcalc.data import load_table
from kvcalc.errors import Note, Record, ScenarioError
from kvcalc.model_spec import ImageTokens
from kvcalc.scenario import scenario_error
from kvcalc.units import fmt_tokens

Counted = Literal["pages", "tokens", "estimate", "tokenizer", "images"]
"""pages: pages × tokens a page; tokens: typed; estimate: characters of a file; tokenizer: the model's own;
images: pages as pictures."""
Density = Literal["light", "typical", "dense"]
"""How much text a page holds: light pages may be typical ones, typical ones anything, dense ones typical."""

_MOST_TOKENS, _MOST_PAGES, _MOST_COUNT = 10**9, 10**6, 10**6
_POINTS_PER_INCH = 72


class _Sourced(Record):
    text: str
    """What the figures mean, in words."""
    source: str
    """Where they come from."""
    checked: str
    """Date the source was read, ISO."""


class PageText(_Sourced):
    """Tokens of one page of text."""

    light_tokens: int
    """A light page. [tokens]"""
    typical_tokens: int
    """A typical page. [tokens]"""
    dense_tokens: int
    """A dense page. [tokens]"""
    least_characters: int
    """Below this a page counts as scanned or empty. [characters]"""


class CharactersPerToken(_Sourced):
    """Characters one token stands for, as rationals."""

    prose: str
    """Plain prose: the fewest tokens. [characters/token]"""
    typical: str
    """Typical text. [characters/token]"""
    dense: str
    """Tables and formulas: the most tokens. [characters/token]"""


class PageImage(_Sourced):
    """A page as a picture."""

    dpi: int
    """Dots per inch it is rendered at. [pixels/inch]"""
    width_points: int
    """Width of a page whose size is not known. [1/72 inch]"""
    height_points: int
    """Height of it. [1/72 inch]"""


class RetrievalDefaults(_Sourced):
    """Passages put into a prompt instead of the document."""

    passages: int
    """How many. [passages]"""
    passage_tokens: int
    """Length of one. [tokens]"""


class SummaryDefaults(_Sourced):
    """A summary put into a prompt instead of the document."""

    tokens: int
    """Its length. [tokens]"""


class KvEvidence(_Sourced):
    """What somebody measured with KV stored in fewer bits."""

    finding: Literal["keeps", "loses"]
    """Whether answers stayed as good."""


class HostLinkRow(Record):
    """Rate between host memory and a class of GPUs."""

    compute_capabilities: tuple[str, ...]
    """GPUs it holds for; none means all others."""
    gb_per_s: int
    """Stated rate, one direction, decimal. [GB/s]"""
    text: str
    """Name of the link."""
    source: str
    """Where the rate comes from."""


class HostLink(Record):
    """Rates between host memory and GPUs."""

    share_pct: int
    """Share of the stated rate that transfers reach. [%]"""
    share_text: str
    """That share in words."""
    share_source: str
    """Where it comes from."""
    checked: str
    """Date the sources were read, ISO."""
    rows: tuple[HostLinkRow, ...]
    """First match wins."""

    def row(self, compute_capability: str | None) -> HostLinkRow:
        """The row of a GPU."""
        return next(
            row for row in self.rows if not row.compute_capabilities or compute_capability in row.compute_capabilities
        )


class DocumentTables(Record):
    """Everything in document.toml."""

    page: PageText
    """Tokens of a page."""
    characters_per_token: CharactersPerToken
    """Characters of a token."""
    page_image: PageImage
    """A page as a picture."""
    retrieval: RetrievalDefaults
    """Retrieval."""
    summary: SummaryDefaults
    """Summaries."""
    kv_evidence: tuple[KvEvidence, ...]
    """Evidence on quantised KV."""
    host_link: HostLink
    """Host memory."""


@lru_cache(maxsize=1)
def document_tables() -> DocumentTables:
    """The data behind the document question, read once."""
    return load_table("document.toml", DocumentTables)


class DocumentCount(Record):
    """What counting a file gave. Nothing of the file but these figures is kept."""

    kind: Literal["PDF", "text", "DOCX"]
    """What the file is."""
    pages: int | None
    """Pages of a PDF; None where a format has none. [pages]"""
    pages_read: int
    """Pages whose text was read; the others are extrapolated. [pages]"""
    scanned_pages: int
    """Pages with hardly any text, extrapolated like the rest. [pages]"""
    characters: int
    """Characters of text. [characters]"""
    words: int
    """Words of text. [words]"""
    tokens_low: int
    """Fewest tokens. [tokens]"""
    tokens_typical: int
    """Best estimate. [tokens]"""
    tokens_high: int
    """Most tokens. [tokens]"""
    counted: Counted
    """How tokens were found."""
    method: str
    """The same in one sentence."""
    page_width_points: int | None = None
    """Width of the first page. [1/72 inch]"""
    page_height_points: int | None = None
    """Height of the first page. [1/72 inch]"""
    notes: tuple[Note, ...] = ()
    """What the reader must know."""


class DocumentQuestion(Record):
    """A document added to every request of a scenario, and how it is used."""

    tokens_low: int
    """Fewest tokens it may be. [tokens]"""
    tokens_typical: int
    """Best estimate. [tokens]"""
    tokens_high: int
    """Most tokens it may be. [tokens]"""
    pages: int | None = None
    """Pages, where it has any. [pages]"""
    counted: Counted = "tokens"
    """How tokens were found."""
    questions_per_document: int = 10
    """Requests that ask about one document while it is in use. [requests]"""
    documents_at_once: int = 1
    """Different documents in use at the same time; 1 means that everyone shares one. [documents]"""
    passages: int
    """Passages retrieved per request. [passages]"""
    passage_tokens: int
    """Length of one passage. [tokens]"""
    summary_tokens: int
    """Length of a summary. [tokens]"""
    host_gib: int | None = None
    """Host memory set aside for offloaded KV, over the replica; None leaves its size open. [GiB]"""

    def __init__(self, **fields: Any) -> None:
        """Every fault comes out in our own voice. Raises ScenarioError."""
        tables = document_tables()
        defaults = {
            "passages": tables.retrieval.passages,
            "passage_tokens": tables.retrieval.passage_tokens,
            "summary_tokens": tables.summary.tokens,
        }
        try:
            super().__init__(**{**defaults, **fields})
        except ValidationError as error:
            raise scenario_error(error) from None

    @model_validator(mode="after")
    def _check(self) -> DocumentQuestion:
        for name, (least, most) in _BOUNDS.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise ScenarioError(name, f"a whole number from {least} to {most:,}", value, hint="Correct this field.")
        if not self.tokens_low <= self.tokens_typical <= self.tokens_high:
            raise ScenarioError(
                "tokens_typical",
                f"a figure from tokens_low ({self.tokens_low:,}) to tokens_high ({self.tokens_high:,})",
                self.tokens_typical,
                hint="Order the three.",
            )
        return self

    @classmethod
    def of_pages(cls, pages: int, *, density: Density = "typical", **use: Any) -> DocumentQuestion:
        """A document of this many pages of text; the range spans the densities next to the one given."""
        page = document_tables().page
        each = [page.light_tokens, page.typical_tokens, page.dense_tokens]
        low, typical, high = {
            "light": (each[0], each[0], each[1]),
            "typical": tuple(each),
            "dense": (each[1], each[2], each[2]),
        }[density]
        _check_count("pages", pages, _MOST_TOKENS // page.dense_tokens)
        return cls(
            pages=pages,
            counted="pages",
            tokens_low=pages * low,
            tokens_typical=pages * typical,
            tokens_high=pages * high,
            **use,
        )

    @classmethod
    def of_tokens(cls, tokens: int, **use: Any) -> DocumentQuestion:
        """A document of exactly this many tokens."""
        _check_count("tokens", tokens, _MOST_TOKENS)
        return cls(counted="tokens", tokens_low=tokens, tokens_typical=tokens, tokens_high=tokens, **use)

    @classmethod
    def of_count(
        cls, count: DocumentCount, rule: ImageTokens | None = None, *, dpi: int | None = None, **use: Any
    ) -> DocumentQuestion:
        """The document a file was counted as.

        rule  how the model sees pictures: scanned pages are then shown to it; None leaves them out
        dpi   dots per inch of those pictures [pixels/inch]

        Raises ScenarioError for a scan throughout and a model that sees no pictures.
        """
        pictures, counted = 0, count.counted
        all_scanned = count.pages is not None and count.scanned_pages >= count.pages
        if rule is not None and count.scanned_pages:
            each = page_image_tokens(
                rule, dpi=dpi, width_points=count.page_width_points, height_points=count.page_height_points
            )
            pictures = count.scanned_pages * each
            counted = "images" if all_scanned else counted
        if not count.tokens_typical + pictures:
            raise ScenarioError(
                "document",
                "pages with text",
                f"{count.scanned_pages:,} scanned pages",
                hint="Run OCR on it first, or choose a model that sees pictures.",
            )
        return cls(
            pages=count.pages,
            counted=counted,
            tokens_low=max(1, count.tokens_low + pictures),
            tokens_typical=max(1, count.tokens_typical + pictures),
            tokens_high=max(1, count.tokens_high + pictures),
            **use,
        )

    @classmethod
    def of_images(
        cls,
        pages: int,
        rule: ImageTokens,
        *,
        dpi: int | None = None,
        width_points: int | None = None,
        height_points: int | None = None,
        **use: Any,
    ) -> DocumentQuestion:
        """A document whose pages are shown to a vision model as pictures."""
        each = page_image_tokens(rule, dpi=dpi, width_points=width_points, height_points=height_points)
        _check_count("pages", pages, _MOST_TOKENS // each)
        tokens = pages * each
        return cls(pages=pages, counted="images", tokens_low=tokens, tokens_typical=tokens, tokens_high=tokens, **use)

    @property
    def name(self) -> str:
        """The document as the subject of a sentence: 'A 12-page PDF'."""
        if self.pages is not None:
            return f"{_article(self.pages)} {self.pages:,}-page PDF"
        return f"A document of {fmt_tokens(self.tokens_typical)} tokens"

    @property
    def method(self) -> str:
        """How the tokens were found, in one sentence."""
        low, typical, high = (fmt_tokens(n) for n in (self.tokens_low, self.tokens_typical, self.tokens_high))
        if self.counted == "tokens":
            return f"{typical} tokens, as typed."
        if self.counted == "tokenizer":
            return f"{_pages(self.pages)}{typical} tokens by the model's own tokenizer."
        if self.counted == "images":
            each = fmt_tokens(self.tokens_typical // (self.pages or 1))
            return f"{_pages(self.pages)}{typical} tokens as pictures, {each} a page by the model's own rule."
        if self.counted == "pages" and self.pages:
            each = fmt_tokens(self.tokens_typical // self.pages)
            return f"{_pages(self.pages)}an estimate of {low} to {high} tokens, most likely {typical} ({each} a page)."
        return f"{_pages(self.pages)}an estimate of {low} to {high} tokens from its characters, most likely {typical}."


_BOUNDS: dict[str, tuple[int, int]] = {
    **dict.fromkeys(("tokens_low", "tokens_typical", "tokens_high"), (1, _MOST_TOKENS)),
    "pages": (1, _MOST_PAGES),
    **dict.fromkeys(("questions_per_document", "documents_at_once"), (1, _MOST_COUNT)),
    **dict.fromkeys(("passages", "passage_tokens", "summary_tokens", "host_gib"), (1, _MOST_COUNT)),
}


def _check_count(name: str, value: int, most: int) -> None:
    """Refuse a count under the name it was typed with. Raises ScenarioError."""
    if not 1 <= value <= most:
        raise ScenarioError(name, f"a whole number from 1 to {most:,}", value, hint="Correct this field.")


def _pages(pages: int | None) -> str:
    return "" if pages is None else f"{pages:,} page{'s' if pages != 1 else ''}: "


def _article(number: int) -> str:
    """'An' before eight, eleven, eighteen, eighty and their thousands."""
    spoken = f"{number:,}".split(",")[0]
    return "An" if spoken[0] == "8" or spoken in ("11", "18") else "A"


def characters_to_tokens(characters: int | Fraction) -> tuple[int, int, int]:
    """(fewest, typical, most) tokens that this much text may be; rounded up. [tokens]

    >>> characters_to_tokens(35_000)  # / 5, / 3.5, / 2.7
    (7000, 10000, 12963)
    """
    table = document_tables().characters_per_token
    low, typical, high = (-(-characters // Fraction(n)) for n in (table.prose, table.typical, table.dense))
    return int(low), int(typical), int(high)


def page_image_tokens(
    rule: ImageTokens, *, dpi: int | None = None, width_points: int | None = None, height_points: int | None = None
) -> int:
    """Tokens one page costs a vision model as a picture. [tokens]

    Equation   round(width / side) × round(height / side), pixels at the dpi, side the square one token stands for;
               at most the model's cap. A model with a fixed count takes that.

    Source     Qwen2-VL image processor (``smart_resize``): sides are rounded to whole multiples of patch × merge.
    """
    if rule.tokens_per_image is not None:
        return rule.tokens_per_image
    page = document_tables().page_image
    side = rule.pixels_per_token_side
    if side is None:
        raise ScenarioError("image_tokens", "a rule for pictures of any size", None, hint="Type the tokens instead.")
    dpi = page.dpi if dpi is None else dpi
    sides = (width_points or page.width_points, height_points or page.height_points)
    across, down = (max(1, round(Fraction(points * dpi, _POINTS_PER_INCH * side))) for points in sides)
    return min(across * down, rule.largest_image_tokens or across * down)
