"""What every engine answers, and the arithmetic they share.

An engine turns a model and its settings into a ``Plan`` once; the plan answers for any pool and context in
whole-number arithmetic. Adding an engine: one module with an ``Engine``, one row in ``engines/__init__.py``.

Three words, never mixed:

planning   blocks the engine charges a request when it prints its concurrency (a window reserves for tokens
           in flight);
steady     blocks a request holds while it decodes: what limits how many run side by side;
reported   the engine's own "KV cache size" line.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Protocol

from kvcalc.cache import check_layout
from kvcalc.errors import Note, Record, ScenarioError, check_whole
from kvcalc.layers import LayerGroup
from kvcalc.model_spec import ModelSpec
from kvcalc.parallelism import Parallelism, stages
from kvcalc.units import ceil_div

_LONGEST = 2**40
"""Tokens nobody asks for: where the search for the longest context stops."""


class CacheGroup(Record):
    """Layers that share one block table (or one pool) in the engine."""

    title: str
    """What the layers keep, as a person calls it."""
    layers: int
    """Layers of this kind that cache, drafter layers included. [layers]"""
    groups: int
    """Block tables they are dealt over. [groups]"""
    padding_layers: int
    """Empty places in those groups: allocated, never filled. [layers]"""
    block_tokens: int
    """Tokens one block of one layer holds; 0 for a state, which has none. [tokens]"""
    page_bytes: int
    """Bytes one layer takes in one block, padding included. [bytes]"""
    padding_bytes: int
    """Bytes of that page that hold nothing. [bytes]"""
    blocks_per_request: int
    """Blocks one request of max_model_len is charged in all of these groups. [blocks]"""


class Capacity(Record):
    """What one engine replica can hold, in the engine's own accounting."""

    engine: str
    """Engine id."""
    num_blocks: int
    """Blocks in the pool of each GPU. [blocks]"""
    bytes_per_block: int
    """Bytes one block takes on the busiest GPU. [bytes]"""
    block_size: int
    """Tokens a block holds in the layers that keep every token. [tokens]"""
    blocks_per_request: int
    """Blocks the engine charges one request of max_model_len. [blocks]"""
    max_concurrency: float
    """Requests of max_model_len the engine says fit, not rounded. [requests]"""
    reported_tokens: int
    """The number in the engine's "KV cache size" log line. [tokens]"""
    needed_bytes: int
    """Bytes the engine wants before it starts with this max_model_len. [bytes/GPU]"""
    longest_context_that_fits: int
    """Longest max_model_len the engine would start with; the model's own limit is not applied. [tokens]"""
    groups: tuple[CacheGroup, ...]
    """How the layers are laid out."""
    notes: tuple[Note, ...] = ()
    """What the reader must know about these numbers."""


class EngineDefaults(Record):
    """What the engine does when nobody says otherwise."""

    newest_version: str
    """Newest release these rules were read in."""
    block_size: int
    """Tokens per block of ordinary attention. [tokens]"""
    memory_pct: int | None
    """Default of the memory fraction; None where the engine computes it. [%]"""
    memory_option: str
    """The option's name."""
    memory_meaning: str
    """What the fraction is a fraction of."""
    source: str
    """Where these are documented."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the engine is started: the keywords of ``kvcalc.capacity``, checked."""

    kv_precision: str = "auto"
    tp: int = 1
    pp: int = 1
    dp: int = 1
    dcp: int = 1
    block_size: int | None = None
    max_num_batched_tokens: int = 8192
    prefix_caching: bool = True
    speculative_tokens: int = 0
    state_precision: str = "auto"
    hybrid_manager: bool = True
    async_scheduling: bool = True
    engine_version: str | None = None

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            check_whole(name, getattr(self, name), least)
        if self.block_size is not None:
            check_whole("block_size", self.block_size, 1)
        for name in _FLAGS:
            if not isinstance(getattr(self, name), bool):
                raise ScenarioError(name, "true or false", getattr(self, name), hint="Check this field.")
        if self.engine_version is not None:
            parse_version(self.engine_version)


_LEAST = {"tp": 1, "pp": 1, "dp": 1, "dcp": 1, "max_num_batched_tokens": 1, "speculative_tokens": 0}
_FLAGS = ("prefix_caching", "hybrid_manager", "async_scheduling")


_VERSION = re.compile(
    r"(?:v?(\d{1,3})\.|b)(\d{1,6})(?:\.(\d{1,4}))?"  # 0.24, v0.20.2, b6123
    r"([.-]?(?:rc|dev|a|b)\d[\w.+-]*)?(?:[.+-][A-Za-z][\w.+-]*)?"  # rc1.dev249 | .post2, +cu129
)
Version = tuple[int, int, int, int]


def parse_version(text: object) -> Version:
    """(major, minor, patch, 0) of a release as engines print it; llama.cpp's builds are b and a number.

    A pre-release has -1 at the end: it comes before its release, as in PEP 440. A log of vLLM
    0.20.1rc1.dev16 still counts as 0.20.0 does (github.com/noonghunna/club-3090, issue 46).

    >>> parse_version("0.20.2rc1.dev249"), parse_version("0.6"), parse_version("b6123"), parse_version("0.24.0+cu129")
    ((0, 20, 2, -1), (0, 6, 0, 0), (0, 6123, 0, 0), (0, 24, 0, 0))
    """
    match = _VERSION.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise ScenarioError(
            "engine_version", "a release such as 0.24 or 0.20.2", text, hint="Copy it from the engine's first log line."
        )
    return int(match[1] or 0), int(match[2]), int(match[3] or 0), -1 if match[4] else 0


@dataclass(frozen=True, slots=True)
class Line:
    """Blocks of one kind of group as a function of context: the unit all plans are summed from.

    blocks(T) = groups x (ceil(min(ceil(T / ranks), most_tokens) / block_tokens) + extra_blocks)
    """

    block_tokens: int
    """Tokens per block. [tokens]"""
    most_tokens: int | None = None
    """Tokens after which it stops growing; None never. [tokens]"""
    extra_blocks: int = 0
    """Blocks held whatever the length. [blocks]"""
    ranks: int = 1
    """Decode context parallel ranks the tokens are dealt over. [GPUs]"""
    groups: int = 1
    """Groups that behave like this. [groups]"""

    def blocks(self, tokens: int) -> int:
        """Blocks at a context. [blocks]"""
        if self.ranks > 1:
            tokens = -(-tokens // self.ranks)
        if self.most_tokens is not None and tokens > self.most_tokens:
            tokens = self.most_tokens
        return self.groups * (-(-tokens // self.block_tokens) + self.extra_blocks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of the group table, with what a request takes in it."""

    title: str
    layers: int
    groups: int = 1
    padding_layers: int = 0
    block_tokens: int
    page_bytes: int
    padding_bytes: int = 0
    block_bytes: int
    """Bytes one block takes in all layers of one group, on the busiest GPU. [bytes/GPU]"""
    charged: Line
    """What a request is charged when the engine plans."""
    held: Line
    """What a request holds while it decodes."""


@dataclass(frozen=True, kw_only=True)
class Plan(ABC):
    """A model laid out by one engine: computed once, then asked about pools and contexts.

    Bytes are those of the busiest GPU of a replica.
    """

    engine: str
    bytes_per_block: int
    """Bytes one block takes on the busiest GPU. [bytes]"""
    block_size: int
    """Tokens a block holds in the layers that keep every token. [tokens]"""
    rows: tuple[Row, ...]
    """How the layers are laid out."""
    model_limit: int | None
    """Longest context the model states. [tokens]"""
    notes: tuple[Note, ...] = ()
    """What the reader must know."""

    @property
    def prefix_block_tokens(self) -> int:
        """Tokens that a prefix-cache hit is a whole multiple of: all groups must end a block there. [tokens]"""
        blocks = [row.block_tokens * row.held.ranks for row in self.rows if row.block_tokens]
        return lcm(*blocks) if blocks else self.block_size

    @property
    def shares_prefixes(self) -> bool:
        """Whether requests with the same prefix hold it once."""
        return True

    @property
    def fills_memory(self) -> bool:
        """Whether the engine's pool is whatever its share of memory leaves; else what its context needs."""
        return True

    @abstractmethod
    def blocks_per_request(self, context_tokens: int) -> int:
        """Blocks a request of this length is charged when the engine plans. [blocks]"""

    @abstractmethod
    def reserved_bytes(self, context_tokens: int) -> int:
        """Bytes set aside for one sequence of this length in steady decode. [bytes/GPU]"""

    @abstractmethod
    def needed_bytes(self, max_model_len: int) -> int:
        """Bytes one request of this length is charged when the engine plans. [bytes/GPU]"""

    @abstractmethod
    def num_blocks(self, pool_bytes: int) -> int:
        """Whole blocks in a pool of this many bytes per GPU. [blocks]"""

    @abstractmethod
    def requests_at(self, pool_bytes: int, context_tokens: int) -> int:
        """Whole requests of this length that decode side by side (steady). [requests]"""

    @abstractmethod
    def side_by_side(self, pool_bytes: int, context_tokens: int) -> Fraction:
        """The same before it is rounded down, as a curve draws it. [requests]"""

    def held_bytes(self, requests: int, context_tokens: int) -> int:
        """Bytes so many running requests of this length take together. [bytes/GPU]"""
        return requests * self.reserved_bytes(context_tokens)

    @property
    def has_one_pool(self) -> bool:
        """Whether every request takes its blocks from one pool of equal ones."""
        return True

    @abstractmethod
    def handed_out(self, pool_bytes: int, context_tokens: int) -> tuple[str, str]:
        """How ``requests_at`` comes about: its formula, and the same with the numbers put in."""

    @abstractmethod
    def planned_requests(self, pool_bytes: int, max_model_len: int) -> Fraction:
        """Requests of this length as the engine's own line counts them (planning). [requests]"""

    @abstractmethod
    def reported_tokens(self, pool_bytes: int, max_model_len: int) -> int:
        """The engine's "KV cache size" in tokens. [tokens]"""

    @abstractmethod
    def fitting(self, pool_bytes: int) -> Callable[[int], bool]:
        """A test of whether the engine would serve one request of a given length from this pool."""

    def fits(self, pool_bytes: int, max_model_len: int) -> bool:
        """Whether the engine would serve one request of this length from this pool."""
        return self.fitting(pool_bytes)(max_model_len)

    def longest_context(self, pool_bytes: int) -> int:
        """Longest context that ``fits``; the model's limit (or the search's end) when the cache does not
        grow with it. [tokens]"""
        fits = self.fitting(pool_bytes)
        if not fits(1):
            return 0
        longest, too_long = 1, 2
        while fits(too_long):
            longest, too_long = too_long, 2 * too_long
            if too_long > _LONGEST:
                return self.model_limit or _LONGEST
        while too_long - longest > 1:
            middle = (longest + too_long) // 2
            longest, too_long = (middle, too_long) if fits(middle) else (longest, middle)
        return longest

    def group_table(self, max_model_len: int) -> tuple[CacheGroup, ...]:
        """How the layers are laid out, with a request of this length charged to them."""
        return tuple(
            CacheGroup(
                title=row.title,
                layers=row.layers,
                groups=row.groups,
                padding_layers=row.padding_layers,
                block_tokens=row.block_tokens,
                page_bytes=row.page_bytes,
                padding_bytes=row.padding_bytes,
                blocks_per_request=row.charged.blocks(max_model_len),
            )
            for row in self.rows
        )

    def capacity(self, *, pool_bytes: int, max_model_len: int) -> Capacity:
        """Everything the engine prints about a pool of this many bytes per GPU."""
        check_whole("pool_bytes", pool_bytes, 0)
        check_whole("max_model_len", max_model_len, 1)
        return Capacity(
            engine=self.engine,
            num_blocks=self.num_blocks(pool_bytes),
            bytes_per_block=self.bytes_per_block,
            block_size=self.block_size,
            blocks_per_request=self.blocks_per_request(max_model_len),
            max_concurrency=float(self.planned_requests(pool_bytes, max_model_len)),
            reported_tokens=self.reported_tokens(pool_bytes, max_model_len),
            needed_bytes=self.needed_bytes(max_model_len),
            longest_context_that_fits=self.longest_context(pool_bytes),
            groups=self.group_table(max_model_len),
            notes=self.notes,
        )


class Engine(Protocol):
    """One inference engine."""

    id: str
    label: str
    defaults: EngineDefaults

    def frees_windows(self, spec: ModelSpec) -> bool:
        """Whether layers with a window free what they no longer see, unless the engine is told otherwise."""
        ...

    def plan(self, spec: ModelSpec, settings: Settings) -> Plan:
        """The model laid out by this engine. Raises ScenarioError for a layout it would refuse."""
        ...


def check_engine_layout(spec: ModelSpec, settings: Settings) -> None:
    """Refuse a layout the model's heads do not allow. Raises ScenarioError."""
    check_layout(spec, Parallelism(tp=settings.tp, pp=settings.pp, dcp=settings.dcp))


def layers_per_stage(spec: ModelSpec, pp: int) -> tuple[range, ...]:
    """Layers of each pipeline stage; drafter layers, numbered past the model's, sit on the last."""
    parts = list(stages(spec.num_layers, pp))
    parts[-1] = range(parts[-1].start, spec.num_layers + spec.mtp_layers)
    return tuple(parts)


def layers_on(group: LayerGroup, stage: range) -> int:
    """Layers of a group on one pipeline stage. [layers]"""
    return sum(1 for layer in group.layers if layer in stage)


def round_up(value: int, multiple: int) -> int:
    """Smallest multiple not below the value.

    >>> round_up(8448, 576)
    8640
    """
    return ceil_div(value, multiple) * multiple
