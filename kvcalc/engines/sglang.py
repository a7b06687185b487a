"""SGLang: one pool of token slots per kind of layer, in fixed proportions.

Source: SGLang 0.5.23 ``model_executor/pool_configurator.py`` (cells, window ratio),
``mem_cache/kv_cache_configurator.py`` (state slots, request slots).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from kvcalc.engines.base import EngineDefaults, Line, Row, Settings, check_engine_layout, layers_on, layers_per_stage
from kvcalc.engines.formats import stored_format
from kvcalc.engines.split_pools import SplitPlan
from kvcalc.errors import Note
from kvcalc.layers import (
    ChunkedAttention,
    CompressedAttention,
    CrossAttention,
    IndexerKeys,
    LayerGroup,
    RecurrentState,
    SharedKv,
    SlidingAttention,
)
from kvcalc.model_spec import ModelSpec
from kvcalc.precision import KvFormat, StateFormat, state_format
from kvcalc.units import ceil_bits, ceil_div, fmt_count

NEWEST = "0.5.23"
# Tokens per page: 1 unless a backend wants more (sparse MLA 64, DeepSeek-V4 256).
PAGE, SPARSE_PAGE, COMPRESSED_PAGE = 1, 64, 256
# --swa-full-tokens-ratio: slots of the window pool per slot of the full pool; DeepSeek-V4 has its own.
WINDOW_RATIO, COMPRESSED_WINDOW_RATIO = Fraction(4, 5), Fraction(1, 10)
# --mamba-full-memory-ratio: bytes of states per byte of everything else.
STATE_RATIO = Fraction(9, 10)
# State slots per running request: its own, a cached copy and one in between; 1 without the prefix cache.
SLOTS_WITH_PREFIX_CACHE = 3
# Requests the scheduler has room for: tokens / context x 512 within these, and half the tokens.
REQUEST_FACTOR, FEWEST_REQUESTS, MOST_REQUESTS = 512, 2048, 4096
# Ring of FP32 compressor states kept per page of the window pool, for the ratio that overlaps.
COMPRESSOR_RING, OVERLAPPING_RATIO = 8, 4


@dataclass(frozen=True, kw_only=True)
class SglangPlan(SplitPlan):
    """A model laid out by SGLang."""

    token_bits: Fraction
    """Bits one slot of the reported pool costs, its share of the window pool included. [bits/token/GPU]"""
    window_ratio: Fraction
    """Slots of the window pool per slot of the full pool; 0 without windows."""
    kept: int
    """Rows that keep every token: 0 or 1."""
    state_bytes: int
    """Bytes of one request's states; 0 without. [bytes/GPU]"""
    state_slots: int
    """State slots a running request takes. [slots]"""
    drafts: int
    """Drafted tokens whose states are kept too. [tokens]"""
    ranks: int
    """Decode context parallel ranks. [GPUs]"""

    def pool_blocks(self, pool_bytes: int) -> tuple[int, ...]:
        slots = self._state_slots(pool_bytes)
        rest = max(0, pool_bytes - self._state_pool_bytes(slots))
        tokens = rest * 8 // self.token_bits if self.token_bits else 0
        blocks = []
        if self.kept:
            tokens = tokens // self.block_size * self.block_size
            blocks.append(tokens // self.block_size)
        if self.window_ratio:
            in_window = tokens * (self.window_ratio if self.kept else 1)
            blocks.append(in_window.numerator // in_window.denominator // self.block_size)
        if self.state_bytes:
            blocks.append(slots)
        return tuple(blocks)

    def _state_slots(self, pool_bytes: int) -> int:
        """Slots in the state pool, besides its one padding slot. [slots]"""
        if not self.state_bytes:
            return 0
        budget = pool_bytes * STATE_RATIO / (1 + STATE_RATIO)
        slot = self.state_bytes * (1 + Fraction(self.drafts, self.state_slots))
        return max(0, (budget - self.state_bytes * (1 + self.drafts)) // slot)

    def _state_pool_bytes(self, slots: int) -> int:
        """Bytes of the state pool, padding slots and drafted states included. [bytes/GPU]"""
        drafted = (slots // self.state_slots + 1) * self.drafts if self.drafts else 0
        return (slots + 1 + drafted) * self.state_bytes

    def reported_tokens(self, pool_bytes: int, max_model_len: int) -> int:
        """max_total_num_tokens of the log line, over the DCP ranks."""
        return self.num_blocks(pool_bytes) * self.block_size * self.ranks if self.kept or self.window_ratio else 0

    def requests_at(self, pool_bytes: int, context_tokens: int) -> int:
        """As the pools allow, and as many request slots as the scheduler makes."""
        found, slots = super().requests_at(pool_bytes, context_tokens), self._request_slots(pool_bytes, context_tokens)
        return found if slots is None else min(found, slots)

    def side_by_side(self, pool_bytes: int, context_tokens: int) -> Fraction:
        found, slots = super().side_by_side(pool_bytes, context_tokens), self._request_slots(pool_bytes, context_tokens)
        return found if slots is None else min(found, Fraction(slots))

    def handed_out(self, pool_bytes: int, context_tokens: int) -> tuple[str, str]:
        formula, numbers = super().handed_out(pool_bytes, context_tokens)
        slots = self._request_slots(pool_bytes, context_tokens)
        if slots is None or slots > super().requests_at(pool_bytes, context_tokens):
            return formula, numbers
        return f"{formula}, at most the scheduler's request slots", f"{numbers}, slots {fmt_count(slots)}"

    def _request_slots(self, pool_bytes: int, context_tokens: int) -> int | None:
        """Requests the scheduler has room for; None where the tokens of the pool say nothing. [requests]"""
        tokens = self.reported_tokens(pool_bytes, context_tokens)
        if not tokens:
            return None
        wanted = tokens * REQUEST_FACTOR // (self.model_limit or max(1, context_tokens))
        return max(FEWEST_REQUESTS, min(MOST_REQUESTS, wanted))


class Sglang:
    """SGLang's way of planning."""

    id = "sglang"
    label = "SGLang"
    defaults = EngineDefaults(
        newest_version=NEWEST,
        block_size=PAGE,
        memory_pct=None,
        memory_option="--mem-fraction-static",
        memory_meaning="of the memory free before loading, for weights and KV cache together",
        source="SGLang 0.5.23 server_args.py: https://docs.sglang.ai/advanced_features/server_arguments.html",
    )

    def frees_windows(self, spec: ModelSpec) -> bool:
        """Always, unless told otherwise."""
        return True

    def plan(self, spec: ModelSpec, settings: Settings) -> SglangPlan:
        """The model laid out by SGLang. Raises ScenarioError for a layout it refuses."""
        check_engine_layout(spec, settings)
        kv, notes = stored_format(spec, settings, engine=self.id, label=self.label)
        page = settings.block_size or _page(spec)
        windows = _windows(spec, settings)
        compressed = any(isinstance(group, CompressedAttention) for group in spec.layer_groups)
        full_bits = window_bits = Fraction(0)
        state_bytes = 0
        for stage in layers_per_stage(spec, settings.pp):
            kept, window, state = _stage_costs(spec, stage, settings, kv, page)
            full_bits, window_bits, state_bytes = (
                max(full_bits, kept),
                max(window_bits, window),
                max(state_bytes, state),
            )
        ratio = COMPRESSED_WINDOW_RATIO if compressed else WINDOW_RATIO
        slots = SLOTS_WITH_PREFIX_CACHE if settings.prefix_caching else 1
        drafts = settings.speculative_tokens + 1 if settings.speculative_tokens else 0
        rows = []
        if full_bits:
            rows.append(_full_row(spec, settings, page, full_bits))
        if window_bits:
            rows.append(_window_row(windows, settings, page, window_bits))
        if state_bytes:
            rows.append(_state_row(spec, state_bytes, slots, drafts))
        return SglangPlan(
            engine=self.id,
            bytes_per_block=rows[0].block_bytes if rows else 0,
            block_size=page,
            rows=tuple(rows),
            model_limit=spec.max_context_tokens,
            notes=(*notes, *_notes(spec, settings)),
            token_bits=full_bits + ratio * window_bits if full_bits else window_bits,
            window_ratio=ratio if window_bits else Fraction(0),
            kept=1 if full_bits else 0,
            state_bytes=state_bytes,
            state_slots=slots,
            drafts=drafts,
            ranks=settings.dcp,
        )


def _page(spec: ModelSpec) -> int:
    if any(isinstance(group, CompressedAttention) for group in spec.layer_groups):
        return COMPRESSED_PAGE
    return SPARSE_PAGE if any(isinstance(group, IndexerKeys) for group in spec.layer_groups) else PAGE


def _window(group: LayerGroup) -> int:
    """Tokens a forgetting layer keeps; 0 for a layer that keeps them all. [tokens]"""
    if isinstance(group, SlidingAttention | CompressedAttention):
        return group.window_tokens
    return group.chunk_tokens if isinstance(group, ChunkedAttention) else 0


def _windows(spec: ModelSpec, settings: Settings) -> list[LayerGroup]:
    """Groups with a window pool; compressed layers need one whatever the user says."""
    kinds = (
        (SlidingAttention, ChunkedAttention, CompressedAttention) if settings.hybrid_manager else CompressedAttention
    )
    return [group for group in spec.layer_groups if isinstance(group, kinds)]


def _stage_costs(
    spec: ModelSpec, stage: range, settings: Settings, kv: KvFormat, page: int
) -> tuple[Fraction, Fraction, int]:
    """Bits per token that is kept, bits per token in the window pool, and bytes of states, on one stage."""
    tp, state = settings.tp // settings.dcp, state_format(settings.state_precision)
    kept = window = Fraction(0)
    states = 0
    for group in spec.layer_groups:
        count = layers_on(group, stage) + _drafter_layers(spec, settings, group, stage)
        if isinstance(group, RecurrentState):
            states += count * _state_bytes(group, state, settings.tp)
        elif isinstance(group, CompressedAttention):
            kept += count * group.bits_per_token(kv, tp=tp)
            window += count * (group.entry_bits(kv) + _compressor_bits(group, page))
        elif isinstance(group, CrossAttention):
            kept += count * group.source_bits_per_token(kv, tp=tp)
        elif _window(group) and settings.hybrid_manager:
            window += count * group.bits_per_token(kv, tp=settings.tp)
        else:
            # Index keys are whole on every DCP rank, while the latents beside them are dealt out.
            copies = settings.dcp if isinstance(group, IndexerKeys) else 1
            kept += count * copies * group.bits_per_token(kv, tp=tp)
    return kept, window, states


def _drafter_layers(spec: ModelSpec, settings: Settings, group: LayerGroup, stage: range) -> int:
    if not settings.speculative_tokens or stage.stop <= spec.num_layers or not spec.mtp_layers:
        return 0
    forgets = isinstance(group, RecurrentState | CrossAttention | SharedKv | CompressedAttention) or _window(group)
    return 0 if forgets else spec.mtp_layers


def _state_bytes(group: RecurrentState, state: StateFormat, tp: int) -> int:
    """One layer's state; SGLang keeps FP32 where neither the model nor the user says otherwise. [bytes/GPU]"""
    if state.bytes_per_value is None and group.state_precision is None:
        group = group.model_copy(update={"state_precision": "fp32"})
    return group.conv_bytes(state, tp=tp) + group.state_bytes(state, tp=tp)


def _compressor_bits(group: CompressedAttention, page: int) -> Fraction:
    """FP32 compressor states a page of the window pool carries, key and score of two windows, per token."""
    if group.ratio != OVERLAPPING_RATIO:
        return Fraction(0)
    width = group.latent_dim + group.rope_dim + group.index_dim
    return Fraction(COMPRESSOR_RING * 2 * 2 * width * 32, page)


def _full_row(spec: ModelSpec, settings: Settings, page: int, bits: Fraction) -> Row:
    elsewhere = [group for group in _windows(spec, settings) if not isinstance(group, CompressedAttention)]
    groups = [
        group
        for group in spec.layer_groups
        if group not in elsewhere and not isinstance(group, RecurrentState | SharedKv | IndexerKeys)
    ]
    source = max((group.source_tokens for group in groups if isinstance(group, CrossAttention)), default=0)
    line = Line(page, extra_blocks=ceil_div(source, page), ranks=settings.dcp)
    layers = sum(len(group.layers) for group in groups)
    block = ceil_bits(page * bits)
    return Row(
        title=" and ".join(dict.fromkeys(group.title for group in groups)),
        layers=layers,
        block_tokens=page,
        page_bytes=ceil_div(block, max(1, layers)),
        block_bytes=block,
        charged=line,
        held=line,
    )


def _window_row(groups: list[LayerGroup], settings: Settings, page: int, bits: Fraction) -> Row:
    """A running request keeps the window, the tokens of a step, and a page at either end."""
    tokens = max(_window(group) for group in groups) + max(1, settings.speculative_tokens) + 2 * page
    line = Line(page, most_tokens=tokens)
    layers = sum(len(group.layers) for group in groups)
    block = ceil_bits(page * bits)
    return Row(
        title="window pool",
        layers=layers,
        block_tokens=page,
        page_bytes=ceil_div(block, layers),
        block_bytes=block,
        charged=line,
        held=line,
    )


def _state_row(spec: ModelSpec, state_bytes: int, slots: int, drafts: int) -> Row:
    layers = sum(len(group.layers) for group in spec.layer_groups if isinstance(group, RecurrentState))
    line = Line(1, most_tokens=0, extra_blocks=slots)
    block = ceil_div(state_bytes * (slots + drafts), slots)
    return Row(
        title="state slots",
        layers=layers,
        block_tokens=0,
        page_bytes=ceil_div(block, layers),
        block_bytes=block,
        charged=line,
        held=line,
    )


def _notes(spec: ModelSpec, settings: Settings) -> list[Note]:
    found = []
    if settings.dp > 1:
        found.append(Note(field="dp", text="SGLang's DP attention with --tp 8 --dp 8 is tp 1 and dp 8 here."))
    if any(isinstance(group, CompressedAttention) for group in spec.layer_groups):
        found.append(Note(field="engine", text="SGLang's pools for compressed caches are estimated from its source."))
    return found
