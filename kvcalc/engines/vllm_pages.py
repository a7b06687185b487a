"""Pages of vLLM: what one layer stores in one block, for every kind of cache.

Source: vLLM 0.32 ``v1/kv_cache_interface.py`` (page sizes), ``platforms/interface.py``
``_align_hybrid_block_size`` (attention page raised to the state page), ``models/deepseek_v4`` and
``v1/attention/backends/mla/sparse_swa.py`` (compressed caches).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from kvcalc.engines.base import Settings, round_up
from kvcalc.engines.vllm_versions import Rules
from kvcalc.errors import ScenarioError
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
from kvcalc.precision import KvFormat, StateFormat
from kvcalc.units import ceil_bits, ceil_div

# Tokens per block where nobody chooses: CacheConfig.DEFAULT_BLOCK_SIZE; the FlashMLA and FlashInfer MLA
# kernels; DeepSeek-V4's compressed caches and its window.
DEFAULT_BLOCK = 16
LATENT_BLOCK = 64
COMPRESSED_BLOCK = 256
COMPRESSED_WINDOW_BLOCK = 64
# MLA beside recurrent states keeps a multiple of this: its decode kernels want 128 / block kernel blocks.
LATENT_HYBRID_BLOCK = 128
# DeepSeek-V4 pages end on a multiple of this: the decode kernel's stride, or FlashInfer's for plain rows.
PACKED_ALIGNMENT, PLAIN_ALIGNMENT = 576, 512
# FP32 compressor states are kept as small windows: ratio -> tokens per block, windows of the ratio long.
_COMPRESSOR_BLOCKS = {4: 4}
# Compressor windows of this ratio overlap, so they span two of them.
_OVERLAPPING_RATIO = 4
_COMPRESSOR_BLOCK = 8
_WINDOW = "window of latents"
# Families whose convolution grows with speculative tokens (``mamba_utils.py``: num_spec).
_SPECULATIVE_CONV = frozenset({"mamba2", "gated_delta_net", "kda", "short_conv"})
_MAMBA = frozenset({"mamba1", "mamba2"})
# Tokens per chunk of the Mamba-2 kernel: blocks were multiples of it in the 'all' mode of 0.15 to 0.27.
_MAMBA_CHUNK = 256

Keeps = Literal["all", "window", "chunk", "state", "source"]


@dataclass(frozen=True, slots=True)
class Cache:
    """One kind of cache of some layers: equal ones share a bucket."""

    keeps: Keeps
    title: str
    layers: tuple[int, ...]
    block_tokens: int
    used_bytes: int
    """Bytes of one layer's block that hold something."""
    page_bytes: int
    """Bytes of one layer's block, padding included."""
    shape: tuple[object, ...]
    """What must be equal for two caches to merge."""
    span_tokens: int = 0
    """Window, chunk or source tokens."""
    splits_over_dcp: bool = False
    can_pad: bool = True
    """Whether its page may be padded to another layer's; sparse MLA rows may not."""

    def layers_on(self, stage: range | None) -> int:
        """Layers of it on one pipeline stage; None is all of them. [layers]"""
        return len(self.layers) if stage is None else sum(1 for layer in self.layers if layer in stage)

    def with_block(self, factor: int) -> Cache:
        """The same cache with blocks this many times as long."""
        return replace(
            self,
            block_tokens=self.block_tokens * factor,
            used_bytes=self.used_bytes * factor,
            page_bytes=self.page_bytes * factor,
        )


@dataclass(frozen=True, slots=True)
class Storage:
    """What decides a page's bytes, apart from the layers themselves."""

    settings: Settings
    rules: Rules
    kv: KvFormat
    state: StateFormat

    def page(self, block: int, bits_per_token: Fraction) -> int:
        """Bytes of one layer's block. [bytes/GPU]"""
        return ceil_bits(block * bits_per_token)

    def state_page(self, group: RecurrentState) -> int:
        """Bytes of one layer's recurrent state, convolution included. [bytes/GPU]"""
        extra = self.settings.speculative_tokens if group.family in _SPECULATIVE_CONV else 0
        if group.family == "gated_delta_net" and not self.rules.gdn_state_as_declared:
            group = group.model_copy(update={"state_precision": None})
        conv = group.conv_bytes(self.state, tp=self.settings.tp, extra_tokens=extra)
        return conv + group.state_bytes(self.state, tp=self.settings.tp)

    def copies_per_block(self, spec: ModelSpec) -> bool:
        """Whether prefix caching keeps a state for every block of tokens (mode 'all' of 0.15 to 0.27)."""
        wanted = self.settings.prefix_caching and self.rules.prefix_copies == "all"
        return wanted and any(group.family in _MAMBA for group in recurrent(spec))


def recurrent(spec: ModelSpec) -> list[RecurrentState]:
    """The model's groups of recurrent states."""
    return [group for group in spec.layer_groups if isinstance(group, RecurrentState)]


def caches_of(spec: ModelSpec, storage: Storage) -> tuple[Cache, ...]:
    """Every cache of the model with its page, drafter layers included, equal ones merged."""
    block = storage.settings.block_size or default_block(spec)
    if spec.has_recurrent_state:
        block = _block_beside_states(spec, storage, block)
    found: list[Cache] = []
    for group in spec.layer_groups:
        layers = group.layers + _drafter_layers(spec, storage.settings, group)
        if isinstance(group, CompressedAttention):
            found += _compressed(group, layers, block, storage)
        else:
            found += _caches(group, layers, block, storage)
    return _merged(_pad_states(found))


def default_block(spec: ModelSpec) -> int:
    """Tokens per block when nobody chooses: the attention backend's preference. [tokens]"""
    if any(isinstance(group, CompressedAttention) for group in spec.layer_groups):
        return COMPRESSED_BLOCK
    if any(isinstance(group, LatentAttention) for group in spec.layer_groups):
        return LATENT_BLOCK
    return DEFAULT_BLOCK


def _merged(caches: list[Cache]) -> tuple[Cache, ...]:
    """Equal caches of different layers as one, in order of appearance."""
    found: dict[tuple[object, ...], Cache] = {}
    for cache in caches:
        key = (cache.keeps, cache.block_tokens, cache.page_bytes, cache.span_tokens, cache.shape)
        known = found.get(key)
        layers = cache.layers if known is None else tuple(sorted(known.layers + cache.layers))
        found[key] = replace(known or cache, layers=layers)
    return tuple(found.values())


def _drafter_layers(spec: ModelSpec, settings: Settings, group: LayerGroup) -> tuple[int, ...]:
    """Multi-token-prediction layers cache like the model's layers that keep every token; a compressed
    model's drafter keeps the window alone."""
    drafter = tuple(range(spec.num_layers, spec.num_layers + spec.mtp_layers)) if settings.speculative_tokens else ()
    if isinstance(group, FullAttention | LatentAttention | IndexerKeys):
        return drafter
    if isinstance(group, CompressedAttention):
        ratios = [other.ratio for other in spec.layer_groups if isinstance(other, CompressedAttention)]
        return drafter if group.ratio == min(ratios) else ()
    return ()


def _caches(group: LayerGroup, layers: tuple[int, ...], block: int, storage: Storage) -> list[Cache]:
    tp = storage.settings.tp
    keeps: Keeps
    if isinstance(group, RecurrentState):
        keeps, span, page = "state", 0, storage.state_page(group)
    elif isinstance(group, CrossAttention):
        keeps, span = "source", group.source_tokens
        page = storage.page(block, group.source_bits_per_token(storage.kv, tp=tp))
    elif isinstance(group, SlidingAttention):
        keeps, span, page = "window", group.window_tokens, storage.page(block, group.bits_per_token(storage.kv, tp=tp))
    elif isinstance(group, ChunkedAttention):
        keeps, span, page = "chunk", group.chunk_tokens, storage.page(block, group.bits_per_token(storage.kv, tp=tp))
    else:
        keeps, span, page = "all", 0, storage.page(block, group.bits_per_token(storage.kv, tp=tp))
    if not page:
        return []
    return [
        Cache(
            keeps=keeps,
            title=group.title,
            layers=layers,
            block_tokens=block,
            used_bytes=page,
            page_bytes=page,
            shape=_shape(group, tp),
            span_tokens=span,
            splits_over_dcp=group.splits_over_dcp(),
            can_pad=not isinstance(group, LatentAttention | IndexerKeys),
        )
    ]


def _shape(group: LayerGroup, tp: int) -> tuple[object, ...]:
    if isinstance(group, RecurrentState):
        return ("mamba2" if group.family == "mamba2" else "state",)
    dims = [getattr(group, name, 0) for name in ("key_dim", "value_dim", "latent_dim", "rope_dim")]
    return (isinstance(group, LatentAttention | IndexerKeys), group.heads_on_rank(tp), *dims)


def _block_beside_states(spec: ModelSpec, storage: Storage, block: int) -> int:
    """Tokens per block beside recurrent states: grown until an attention page holds a whole state."""
    attention = next(
        (g for g in spec.layer_groups if isinstance(g, FullAttention | LatentAttention | SlidingAttention)), None
    )
    if attention is None:
        return block
    if isinstance(attention, LatentAttention):
        block = max(block, LATENT_HYBRID_BLOCK)
    if storage.copies_per_block(spec):
        block = round_up(_MAMBA_CHUNK, block)
    largest = max(storage.state_page(group) for group in recurrent(spec))
    token_bytes = storage.page(1, attention.bits_per_token(storage.kv, tp=storage.settings.tp))
    return max(block, block * ceil_div(largest, block * token_bytes))


def _pad_states(caches: list[Cache]) -> list[Cache]:
    """State pages padded to the first attention page."""
    page = next((cache.page_bytes for cache in caches if cache.keeps != "state"), 0)
    return [
        replace(cache, page_bytes=max(page, cache.page_bytes)) if cache.keeps == "state" else cache for cache in caches
    ]


def _compressed(group: CompressedAttention, layers: tuple[int, ...], block: int, storage: Storage) -> list[Cache]:
    """The up to five caches of a DeepSeek-V4 layer: window, latents, index keys and FP32 compressor states."""
    if group.ratio and block % group.ratio:
        raise ScenarioError(
            "block_size", f"a multiple of the compression ratio ({group.ratio})", block, hint=f"Use {COMPRESSED_BLOCK}."
        )
    align = PACKED_ALIGNMENT if storage.kv.rope_bits else PLAIN_ALIGNMENT
    latent = ceil_bits(group.entry_bits(storage.kv))
    overlap = 2 if group.ratio == _OVERLAPPING_RATIO else 1
    span, small = overlap * group.ratio, _COMPRESSOR_BLOCKS.get(group.ratio, _COMPRESSOR_BLOCK)
    width = group.latent_dim + group.rope_dim

    def cache(keeps: Keeps, title: str, tokens: int, entry: int, window: int = 0) -> Cache:
        used = tokens // (group.ratio if keeps == "all" else 1) * entry
        own = layers if title == _WINDOW else group.layers
        return Cache(keeps, title, own, tokens, used, round_up(used, align), (title, entry), window, False, False)

    found = [cache("window", _WINDOW, COMPRESSED_WINDOW_BLOCK, latent, group.window_tokens)]
    if group.ratio:
        found.append(cache("all", "compressed latents", block, latent))
        found.append(cache("window", "compressor state", small, _compressor_bytes(overlap, width), span))
    if group.ratio and group.index_dim:
        found.append(cache("all", "index keys", block, group.index_dim + 4))
        found.append(
            cache("window", "index compressor state", small, _compressor_bytes(overlap, group.index_dim), span)
        )
    return found


def _compressor_bytes(overlap: int, width: int) -> int:
    """One token's key and score, each FP32 and ``overlap`` vectors wide. [bytes]"""
    return 2 * overlap * width * 4
