"""Bytes of KV cache that a decode step reads: not always what is stored."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import lcm
from typing import NamedTuple

from kvcalc.layers import (
    ChunkedAttention,
    CompressedAttention,
    CrossAttention,
    FullAttention,
    IndexerKeys,
    LatentAttention,
    LayerGroup,
    RecurrentState,
    SharedKv,
    SlidingAttention,
)
from kvcalc.model_spec import ModelSpec
from kvcalc.precision import KvFormat, StateFormat
from kvcalc.units import ceil_div


class KvReads(NamedTuple):
    """Cache a decode step reads for one sequence, as a function of its context: a sum of lines that stop rising."""

    fixed: int
    lines: tuple[tuple[int, int | None], ...]
    """(units per token, tokens from which it stays level or None)."""
    units_per_byte: int

    def bytes_at(self, context_tokens: int) -> int:
        """At this context, rounded up. [bytes/GPU]"""
        units = self.fixed
        for slope, most in self.lines:
            units += slope * (context_tokens if most is None or context_tokens < most else most)
        return ceil_div(units, self.units_per_byte)


def kv_bytes_read(
    spec: ModelSpec, *, context_tokens: int, kv: KvFormat, state: StateFormat, tp: int, dcp: int = 1
) -> int:
    """Bytes one sequence's cache costs a decode step, over all layers on one TP rank. [bytes/GPU]

    Windows and chunks are read as far as they are kept. A sparse indexer reads every index key and the tokens
    it picks. Recurrent states are read and written back. A layer that shares another's cache stores nothing and
    reads all of it again.

    context_tokens : prompt plus generated so far. [tokens]
    dcp : decode context parallel ranks that share the reading of what they split. [GPUs]
    """
    return kv_reads(spec, kv=kv, state=state, tp=tp, dcp=dcp).bytes_at(context_tokens)


@lru_cache(maxsize=512)
def kv_reads(spec: ModelSpec, *, kv: KvFormat, state: StateFormat, tp: int, dcp: int = 1) -> KvReads:
    """The same for any context; parameters as ``kv_bytes_read``."""
    fixed = Fraction(0)
    rising: dict[int | None, Fraction] = {}
    for group, layers in reading_groups(spec):
        share = Fraction(layers, dcp if group.splits_over_dcp() else 1)
        for bits, most in _lines(group, kv, tp):
            rising[most] = rising.get(most, Fraction(0)) + share * bits
        fixed += share * _fixed_bits(group, kv, state, tp)
    scale = lcm(fixed.denominator, *(bits.denominator for bits in rising.values()))
    lines = tuple((int(bits * scale), most) for most, bits in rising.items())
    return KvReads(int(fixed * scale), lines, 8 * scale)


_SHARED = FullAttention | SlidingAttention | ChunkedAttention | LatentAttention | CompressedAttention


@lru_cache(maxsize=256)
def reading_groups(spec: ModelSpec) -> tuple[tuple[LayerGroup, int], ...]:
    """Each group that keeps a cache, with the layers that read it: its own and those that share it. [layers]"""
    sources = [(group.source_layer, len(group.layers)) for group in spec.layer_groups if isinstance(group, SharedKv)]
    return tuple(
        (
            group,
            len(group.layers) + sum(n for layer, n in sources if isinstance(group, _SHARED) and layer in group.layers),
        )
        for group in spec.layer_groups
        if not isinstance(group, SharedKv)
    )


def _fixed_bits(group: LayerGroup, kv: KvFormat, state: StateFormat, tp: int) -> int:
    """Bits of one layer for one sequence, whatever its length."""
    if isinstance(group, RecurrentState):
        return 2 * 8 * group.fixed_bytes(kv, state, tp=tp)
    return 8 * group.fixed_bytes(kv, state, tp=tp) if isinstance(group, CrossAttention) else 0


def _lines(group: LayerGroup, kv: KvFormat, tp: int) -> list[tuple[Fraction, int | None]]:
    """(bits per token of one layer, tokens from which no more are read)."""
    if isinstance(group, CompressedAttention):
        return _compressed_lines(group, kv)
    if isinstance(group, RecurrentState | CrossAttention):
        return []
    most = group.reads_at_most_tokens if isinstance(group, LatentAttention) else group.knee_tokens
    return [(group.bits_per_token(kv, tp=tp), most)]


def _compressed_lines(group: CompressedAttention, kv: KvFormat) -> list[tuple[Fraction, int | None]]:
    """The window, every compressed index key, and the compressed latents picked."""
    latent = kv.latent_bits(group.latent_dim, group.rope_dim)
    lines: list[tuple[Fraction, int | None]] = [(latent, group.window_tokens)]
    if group.ratio:
        most = None if group.reads_at_most_tokens is None else group.reads_at_most_tokens * group.ratio
        lines.append((latent / group.ratio, most))
        if group.index_dim:
            keys = IndexerKeys(layers=group.layers, key_dim=group.index_dim)
            lines.append((keys.bits_per_token(kv, tp=1) / group.ratio, None))
    return lines
