"""llama.cpp: one slab, allocated whole at start for every slot's full context.

Source: llama.cpp as vendored in llama-cpp-python 0.3.36: ``src/llama-kv-cache.cpp``,
``src/llama-kv-cache-iswa.cpp`` (window cells), ``src/llama-memory-recurrent.cpp`` (F32 states),
``src/llama-context.cpp`` (padding); https://github.com/ggml-org/llama.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from kvcalc.engines.base import (
    EngineDefaults,
    Line,
    Plan,
    Row,
    Settings,
    check_engine_layout,
    layers_on,
    layers_per_stage,
    round_up,
)
from kvcalc.engines.formats import stored_format
from kvcalc.errors import Note, ScenarioError
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
from kvcalc.precision import KvFormat, state_format
from kvcalc.units import ceil_bits, ceil_div, fmt_bytes, fmt_count

NEWEST = "llama-cpp-python 0.3.36"
# Cells the context is padded to, tokens of one compute batch (n_ubatch), and slots at most (LLAMA_MAX_SEQ).
CELLS, MICRO_BATCH, MOST_SLOTS = 256, 512, 256


@dataclass(frozen=True, slots=True)
class _Window:
    """Layers with one window: a cache of their own."""

    tokens: int
    """Window. [tokens]"""
    layers: int
    bits: Fraction
    """Bits per cell on the busiest GPU."""


@dataclass(frozen=True, kw_only=True)
class LlamacppPlan(Plan):
    """A model laid out by llama.cpp: bytes follow from slots and context, not from blocks."""

    cell_bits: Fraction
    """Bits per cell of the layers that keep every token. [bits/token/GPU]"""
    windows: tuple[_Window, ...]
    slot_bytes: int
    """Bytes one slot holds whatever its length: states, another sequence's keys and values. [bytes/GPU]"""

    @property
    def prefix_block_tokens(self) -> int:
        """A slot keeps its tokens one by one. Source: llama.cpp ``tools/server`` cache_prompt."""
        return 1

    @property
    def shares_prefixes(self) -> bool:
        """No: every slot has a stretch of the cache to itself."""
        return False

    def slab_bytes(self, slots: int, context_tokens: int) -> int:
        """Bytes llama.cpp allocates at start for this many slots of this context. [bytes/GPU]"""
        cells = round_up(slots * context_tokens, CELLS)
        bits = cells * self.cell_bits
        for window in self.windows:
            bits += round_up(min(cells, slots * window.tokens + MICRO_BATCH), CELLS) * window.bits
        return ceil_bits(bits) + slots * self.slot_bytes

    def reserved_bytes(self, context_tokens: int) -> int:
        return self.slab_bytes(1, context_tokens)

    def needed_bytes(self, max_model_len: int) -> int:
        return self.slab_bytes(1, max_model_len)

    @property
    def fills_memory(self) -> bool:
        return False

    def blocks_per_request(self, context_tokens: int) -> int:
        return ceil_div(context_tokens, CELLS)

    def num_blocks(self, pool_bytes: int) -> int:
        return max(0, pool_bytes) // self.bytes_per_block if self.bytes_per_block else 0

    def requests_at(self, pool_bytes: int, context_tokens: int) -> int:
        """Most slots whose slab fits the pool, up to llama.cpp's own limit."""
        low, high = 0, MOST_SLOTS
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.slab_bytes(middle, context_tokens) <= pool_bytes else (low, middle - 1)
        return low

    def side_by_side(self, pool_bytes: int, context_tokens: int) -> Fraction:
        """Whole slots, and the share of one more slot that the rest of the pool is."""
        slots = self.requests_at(pool_bytes, context_tokens)
        if slots == MOST_SLOTS:
            return Fraction(slots)
        taken, one_more = (self.slab_bytes(count, context_tokens) for count in (slots, slots + 1))
        return slots + Fraction(max(0, pool_bytes - taken), one_more - taken)

    def held_bytes(self, requests: int, context_tokens: int) -> int:
        """One slab: its slots share the tokens of a step and what rounds it to whole cells."""
        return self.slab_bytes(requests, context_tokens) if requests else 0

    @property
    def has_one_pool(self) -> bool:
        return False

    def handed_out(self, pool_bytes: int, context_tokens: int) -> tuple[str, str]:
        slots = self.requests_at(pool_bytes, context_tokens)
        shown = (slots,) if slots == MOST_SLOTS else (slots, slots + 1)
        sizes = [
            f"{fmt_count(count)} {'slot takes' if count == 1 else 'slots take'} "
            f"{fmt_bytes(self.slab_bytes(count, context_tokens), exact=True)}"
            for count in shown
        ]
        numbers = f"{', '.join(sizes)} of {fmt_bytes(pool_bytes, exact=True)}"
        return f"the most slots whose cache fits the pool, up to {MOST_SLOTS}", numbers

    def planned_requests(self, pool_bytes: int, max_model_len: int) -> Fraction:
        return Fraction(self.requests_at(pool_bytes, max_model_len))

    def reported_tokens(self, pool_bytes: int, max_model_len: int) -> int:
        """n_ctx: cells of all slots together."""
        return round_up(self.requests_at(pool_bytes, max_model_len) * max_model_len, CELLS)

    def fitting(self, pool_bytes: int) -> Callable[[int], bool]:
        return lambda max_model_len: self.slab_bytes(1, max_model_len) <= pool_bytes


class Llamacpp:
    """llama.cpp's way of planning."""

    id = "llamacpp"
    label = "llama.cpp"
    defaults = EngineDefaults(
        newest_version=NEWEST,
        block_size=CELLS,
        memory_pct=None,
        memory_option="--n-gpu-layers",
        memory_meaning="of the free memory: it allocates what the context needs and fails if that is not there",
        source="llama.cpp tools/server/README.md: https://github.com/ggml-org/llama.cpp",
    )

    def frees_windows(self, spec: ModelSpec) -> bool:
        """Always, unless told otherwise."""
        return True

    def plan(self, spec: ModelSpec, settings: Settings) -> LlamacppPlan:
        """The model laid out by llama.cpp. Raises ScenarioError for a layout it refuses."""
        check_engine_layout(spec, settings)
        if settings.dcp > 1:
            raise ScenarioError("dcp", "1 for llama.cpp", settings.dcp, hint="Use vLLM or SGLang for this split.")
        kv, notes = stored_format(spec, settings, engine=self.id, label=self.label)
        parts = layers_per_stage(spec, settings.pp)
        cell_bits = max(_cell_bits(spec, stage, kv, settings) for stage in parts)
        windows = _windows(spec, settings, kv)
        slot_bytes = max(_slot_bytes(spec, stage, kv) for stage in parts)
        return LlamacppPlan(
            engine=self.id,
            bytes_per_block=ceil_bits(CELLS * (cell_bits or sum((w.bits for w in windows), Fraction(0)))),
            block_size=CELLS,
            rows=_rows(cell_bits, _kept_layers(spec, settings), windows),
            model_limit=spec.max_context_tokens,
            notes=(*notes, *_notes(spec, settings)),
            cell_bits=cell_bits,
            windows=windows,
            slot_bytes=slot_bytes,
        )


def _window(group: LayerGroup, settings: Settings) -> int:
    """Tokens a group with a cache of its own keeps; 0 for every other. [tokens]"""
    if isinstance(group, SlidingAttention | ChunkedAttention) and settings.hybrid_manager:
        return group.window_tokens if isinstance(group, SlidingAttention) else group.chunk_tokens
    return group.window_tokens if isinstance(group, CompressedAttention) else 0


def _cell_bits(spec: ModelSpec, stage: range, kv: KvFormat, settings: Settings) -> Fraction:
    """Bits of one cell on one stage. The heads are all on it: only layers are split."""
    total = Fraction(0)
    for group in spec.layer_groups:
        if isinstance(group, CompressedAttention) or not _window(group, settings):
            total += layers_on(group, stage) * group.bits_per_token(kv, tp=1)
    return total


def _kept_layers(spec: ModelSpec, settings: Settings) -> int:
    """Layers that keep the whole context. [layers]"""
    elsewhere = RecurrentState | CrossAttention | SharedKv | IndexerKeys
    return sum(
        len(group.layers)
        for group in spec.layer_groups
        if not isinstance(group, elsewhere) and (isinstance(group, CompressedAttention) or not _window(group, settings))
    )


def _windows(spec: ModelSpec, settings: Settings, kv: KvFormat) -> tuple[_Window, ...]:
    found: dict[int, _Window] = {}
    for tokens in dict.fromkeys(_window(group, settings) for group in spec.layer_groups):
        groups = [group for group in spec.layer_groups if _window(group, settings) == tokens]
        if tokens:
            bits = max(
                sum((layers_on(group, stage) * _entry_bits(group, kv) for group in groups), Fraction(0))
                for stage in layers_per_stage(spec, settings.pp)
            )
            found[tokens] = _Window(tokens, sum(len(group.layers) for group in groups), bits)
    return tuple(found.values())


def _entry_bits(group: LayerGroup, kv: KvFormat) -> Fraction:
    """Bits of one cell of one windowed layer."""
    return group.entry_bits(kv) if isinstance(group, CompressedAttention) else group.bits_per_token(kv, tp=1)


def _slot_bytes(spec: ModelSpec, stage: range, kv: KvFormat) -> int:
    """States are F32, convolutions too. [bytes/GPU]"""
    total = 0
    for group in spec.layer_groups:
        if isinstance(group, RecurrentState):
            values = group.conv_tokens * group.conv_channels_on_rank(1) + group.state_values
            total += layers_on(group, stage) * values * state_format("fp32").bytes_for(None)
        elif isinstance(group, CrossAttention):
            total += layers_on(group, stage) * ceil_bits(group.source_tokens * group.source_bits_per_token(kv, tp=1))
    return total


def _rows(cell_bits: Fraction, kept_layers: int, windows: tuple[_Window, ...]) -> tuple[Row, ...]:
    kept = (_row("whole context", kept_layers, cell_bits, Line(CELLS)),) if cell_bits else ()
    return kept + tuple(
        _row(
            f"window of {window.tokens:,} tokens",
            window.layers,
            window.bits,
            Line(CELLS, most_tokens=round_up(window.tokens + MICRO_BATCH, CELLS)),
        )
        for window in windows
    )


def _row(title: str, layers: int, bits: Fraction, line: Line) -> Row:
    block = ceil_bits(CELLS * bits)
    return Row(
        title=title,
        layers=layers,
        block_tokens=CELLS,
        page_bytes=ceil_div(block, max(1, layers)),
        block_bytes=block,
        charged=line,
        held=line,
    )


def _notes(spec: ModelSpec, settings: Settings) -> list[Note]:
    found = []
    if settings.tp > 1:
        text = "llama.cpp's row split keeps the whole cache on one GPU; its layer split (pp) divides it."
        found.append(Note(field="tp", text=text))
    if any(isinstance(group, CompressedAttention) for group in spec.layer_groups):
        found.append(Note(field="engine", text="llama.cpp's compressed caches are estimated."))
    return found
