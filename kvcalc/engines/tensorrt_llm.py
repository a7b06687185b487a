"""TensorRT-LLM (PyTorch backend): paged blocks, and with several windows an equal share of bytes for each.

Source: TensorRT-LLM ``tensorrt_llm/_torch/pyexecutor/resource_manager.py`` (bytes per token, blocks per
window) and ``_util.py`` (free memory fraction), https://github.com/NVIDIA/TensorRT-LLM.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from kvcalc.engines.base import EngineDefaults, Line, Row, Settings, check_engine_layout, layers_on, layers_per_stage
from kvcalc.engines.formats import stored_format
from kvcalc.engines.split_pools import SplitPlan
from kvcalc.errors import Note, ScenarioError
from kvcalc.layers import (
    ChunkedAttention,
    CompressedAttention,
    CrossAttention,
    FullAttention,
    IndexerKeys,
    LatentAttention,
    LayerGroup,
    RecurrentState,
    SlidingAttention,
)
from kvcalc.model_spec import ModelSpec
from kvcalc.precision import KvFormat, state_format
from kvcalc.units import ceil_bits, ceil_div, fmt_bytes

NEWEST = "main, November 2026"
TOKENS_PER_BLOCK = 32


@dataclass(frozen=True, slots=True)
class _Part:
    """Layers of one window: one pool of blocks."""

    title: str
    window: int | None
    """Tokens kept; None keeps all. [tokens]"""
    fixed: int
    """Tokens held whatever the length (another sequence's). [tokens]"""
    layers: int
    bits: Fraction
    """Bits per token on the busiest stage."""


@dataclass(frozen=True, kw_only=True)
class TensorrtLlmPlan(SplitPlan):
    """A model laid out by TensorRT-LLM."""

    fixed_bytes: int
    """Bytes one request holds whatever its length, taken from the same memory. [bytes/GPU]"""

    def pool_blocks(self, pool_bytes: int) -> tuple[int, ...]:
        """Each window's blocks: an equal share of the bytes."""
        return tuple(pool_bytes // (len(self.rows) * row.block_bytes) for row in self.rows)

    def reserved_bytes(self, context_tokens: int) -> int:
        return super().reserved_bytes(context_tokens) + self.fixed_bytes

    def needed_bytes(self, max_model_len: int) -> int:
        return super().needed_bytes(max_model_len) + self.fixed_bytes

    def planned_requests(self, pool_bytes: int, max_model_len: int) -> Fraction:
        if not self.fixed_bytes:
            return super().planned_requests(pool_bytes, max_model_len)
        return Fraction(max(0, pool_bytes), self.needed_bytes(max_model_len))

    def requests_at(self, pool_bytes: int, context_tokens: int) -> int:
        if not self.fixed_bytes:
            return super().requests_at(pool_bytes, context_tokens)
        return max(0, pool_bytes) // self.reserved_bytes(context_tokens)

    def side_by_side(self, pool_bytes: int, context_tokens: int) -> Fraction:
        if not self.fixed_bytes:
            return super().side_by_side(pool_bytes, context_tokens)
        return Fraction(max(0, pool_bytes), self.reserved_bytes(context_tokens))

    @property
    def has_one_pool(self) -> bool:
        return not self.fixed_bytes and super().has_one_pool

    def handed_out(self, pool_bytes: int, context_tokens: int) -> tuple[str, str]:
        if not self.fixed_bytes:
            return super().handed_out(pool_bytes, context_tokens)
        pool, each = (fmt_bytes(size, exact=True) for size in (pool_bytes, self.reserved_bytes(context_tokens)))
        return "pool ÷ bytes reserved per request, rounded down", f"{pool} ÷ {each}"

    def fitting(self, pool_bytes: int) -> Callable[[int], bool]:
        if not self.fixed_bytes:
            return super().fitting(pool_bytes)
        return lambda max_model_len: self.needed_bytes(max_model_len) <= pool_bytes

    def reported_tokens(self, pool_bytes: int, max_model_len: int) -> int:
        """ "max tokens in paged KV cache" of the first pool."""
        return self.num_blocks(pool_bytes) * self.block_size


class TensorrtLlm:
    """TensorRT-LLM's way of planning."""

    id = "tensorrt_llm"
    label = "TensorRT-LLM"
    defaults = EngineDefaults(
        newest_version=NEWEST,
        block_size=TOKENS_PER_BLOCK,
        memory_pct=90,
        memory_option="free_gpu_memory_fraction",
        memory_meaning="of the memory left free once weights and activations are there, for the KV cache alone",
        source="TensorRT-LLM KvCacheConfig: https://nvidia.github.io/TensorRT-LLM/features/kvcache.html",
    )

    def frees_windows(self, spec: ModelSpec) -> bool:
        """Always, unless told otherwise."""
        return True

    def plan(self, spec: ModelSpec, settings: Settings) -> TensorrtLlmPlan:
        """The model laid out by TensorRT-LLM. Raises ScenarioError for a layout it refuses."""
        check_engine_layout(spec, settings)
        if settings.dcp > 1:
            raise ScenarioError("dcp", "1 for TensorRT-LLM", settings.dcp, hint="Use vLLM or SGLang for this split.")
        kv, notes = stored_format(spec, settings, engine=self.id, label=self.label)
        tokens = settings.block_size or TOKENS_PER_BLOCK
        parts = _parts(spec, settings, kv)
        rows = tuple(_row(part, tokens) for part in parts)
        return TensorrtLlmPlan(
            engine=self.id,
            bytes_per_block=rows[0].block_bytes if rows else 0,
            block_size=tokens,
            rows=rows,
            model_limit=spec.max_context_tokens,
            notes=(*notes, *_notes(spec, len(parts))),
            fixed_bytes=max(_fixed_bytes(spec, settings, kv, stage) for stage in layers_per_stage(spec, settings.pp)),
        )


def _parts(spec: ModelSpec, settings: Settings, kv: KvFormat) -> list[_Part]:
    """One part per window, layers that keep every token first."""
    kinds: dict[tuple[int | None, int], list[LayerGroup]] = {}
    for group in spec.layer_groups:
        if not isinstance(group, RecurrentState) and _bits(group, settings, kv):
            kinds.setdefault(_keeps(group, settings), []).append(group)
    parts = layers_per_stage(spec, settings.pp)
    found = []
    for (window, fixed), groups in sorted(kinds.items(), key=lambda item: (item[0][0] or 0, item[0][1])):
        drafter = spec.mtp_layers if settings.speculative_tokens and window is None and not fixed else 0
        bits = max(
            _stage_bits(groups, part, last=part is parts[-1], drafter=drafter, settings=settings, kv=kv)
            for part in parts
        )
        title = " and ".join(dict.fromkeys(group.title for group in groups))
        layers = sum(len(group.layers) for group in groups if not isinstance(group, IndexerKeys))
        found.append(_Part(title, window, fixed, layers, bits))
    return found


def _stage_bits(
    groups: list[LayerGroup], stage: range, *, last: bool, drafter: int, settings: Settings, kv: KvFormat
) -> Fraction:
    total = Fraction(0)
    for group in groups:
        extra = drafter if last and isinstance(group, FullAttention | LatentAttention | IndexerKeys) else 0
        total += (layers_on(group, stage) + extra) * _bits(group, settings, kv)
    return total


def _bits(group: LayerGroup, settings: Settings, kv: KvFormat) -> Fraction:
    if isinstance(group, CrossAttention):
        return group.source_bits_per_token(kv, tp=settings.tp)
    return group.bits_per_token(kv, tp=settings.tp)


def _keeps(group: LayerGroup, settings: Settings) -> tuple[int | None, int]:
    """(window, tokens of another sequence) of a group. [tokens]"""
    if isinstance(group, CrossAttention):
        return None, group.source_tokens
    if settings.hybrid_manager and isinstance(group, SlidingAttention):
        return group.window_tokens, 0
    if settings.hybrid_manager and isinstance(group, ChunkedAttention):
        return group.chunk_tokens, 0
    return None, 0


def _row(part: _Part, tokens: int) -> Row:
    if part.fixed:
        line = Line(tokens, most_tokens=0, extra_blocks=ceil_div(part.fixed, tokens))
    elif part.window is not None:
        # One block more: the window may start in the middle of a block.
        line = Line(tokens, most_tokens=(ceil_div(part.window, tokens) + 1) * tokens)
    else:
        line = Line(tokens)
    block = ceil_bits(tokens * part.bits)
    return Row(
        title=part.title,
        layers=part.layers,
        block_tokens=tokens,
        page_bytes=ceil_div(block, max(1, part.layers)),
        block_bytes=block,
        charged=line,
        held=line,
    )


def _fixed_bytes(spec: ModelSpec, settings: Settings, kv: KvFormat, stage: range) -> int:
    """Bytes one request holds whatever its length: states, and windows of compressed layers. [bytes/GPU]"""
    state = state_format(settings.state_precision)
    total = 0
    for group in spec.layer_groups:
        if isinstance(group, RecurrentState | CompressedAttention):
            copies = 1 + settings.speculative_tokens if isinstance(group, RecurrentState) else 1
            total += layers_on(group, stage) * copies * group.fixed_bytes(kv, state, tp=settings.tp)
    return total


def _notes(spec: ModelSpec, windows: int) -> list[Note]:
    found = []
    if windows > 1:
        text = "Each window gets an equal share of the bytes unless TRTLLM_WINDOW_SIZE_SHARES says otherwise."
        found.append(Note(field="engine", text=text))
    if spec.has_recurrent_state or any(isinstance(group, CompressedAttention) for group in spec.layer_groups):
        found.append(Note(field="engine", text="TensorRT-LLM's states and compressed caches are estimated."))
    return found
