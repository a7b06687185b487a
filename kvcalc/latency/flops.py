"""Arithmetic of a prefill, and the rate a GPU does it at."""

from __future__ import annotations

from kvcalc.hardware import GpuSpec
from kvcalc.latency.kv_reads import reading_groups
from kvcalc.layers import (
    ChunkedAttention,
    CompressedAttention,
    CrossAttention,
    FullAttention,
    LatentAttention,
    LayerGroup,
    SlidingAttention,
)
from kvcalc.model_spec import ModelSpec


def linear_flops(spec: ModelSpec, tokens: int) -> int:
    """Multiplications and additions of the matrices a token passes, without embedding and head. [FLOP]"""
    counts = spec.parameters
    return 2 * (counts.active - counts.embedding - counts.lm_head) * tokens


def decode_flops(spec: ModelSpec, context_tokens: int) -> int:
    """Arithmetic of one decoded token, its head included, at a context. [FLOP]"""
    head = 2 * (spec.parameters.lm_head or spec.parameters.embedding)
    last = max(1, context_tokens)
    return linear_flops(spec, 1) + head + attention_flops(spec, last) - attention_flops(spec, last - 1)


def attention_flops(spec: ModelSpec, tokens: int) -> int:
    """Scores and weighted values of a causal prompt from its first token. [FLOP]

    A pair of tokens costs 2 x (key width + value width) per query head; MLA is expanded to heads. Recurrent
    layers and a sparse indexer's own scores are left out: they are small beside the matrices.
    """
    return sum(layers * _flops_per_layer(spec, group, tokens) for group, layers in reading_groups(spec))


def _flops_per_layer(spec: ModelSpec, group: LayerGroup, tokens: int) -> int:
    if isinstance(group, FullAttention):
        return _per_pair(group.query_heads, group.key_dim + group.value_dim) * _pairs(tokens, tokens)
    if isinstance(group, SlidingAttention):
        return _per_pair(group.query_heads, group.key_dim + group.value_dim) * _pairs(tokens, group.window_tokens)
    if isinstance(group, ChunkedAttention):
        whole, rest = divmod(tokens, group.chunk_tokens)
        pairs = whole * _pairs(group.chunk_tokens, group.chunk_tokens) + _pairs(rest, rest)
        return _per_pair(group.query_heads, group.key_dim + group.value_dim) * pairs
    if isinstance(group, LatentAttention):
        seen = tokens if group.reads_at_most_tokens is None else group.reads_at_most_tokens
        return _per_pair(group.query_heads, _expanded_width(spec, group)) * _pairs(tokens, seen)
    if isinstance(group, CompressedAttention):
        width = 2 * group.latent_dim + group.rope_dim
        return _per_pair(group.query_heads, width) * _compressed_pairs(group, tokens)
    if isinstance(group, CrossAttention):
        return _per_pair(group.query_heads, group.key_dim + group.value_dim) * tokens * group.source_tokens
    return 0


def _expanded_width(spec: ModelSpec, group: LatentAttention) -> int:
    """Key and value width of one head after a prefill expands the latent; the latent's own where not known."""
    here = [tensor for tensor in spec.tensors if group.layers[0] in tensor.layers]
    key = next((tensor.rows for tensor in here if tensor.role == "query"), 0) // group.query_heads
    value = next((tensor.columns for tensor in here if tensor.role == "output"), 0) // group.query_heads
    return key + value if key and value else 2 * group.latent_dim + group.rope_dim


def _per_pair(query_heads: int, width: int) -> int:
    return 2 * query_heads * width


def _pairs(tokens: int, window: int) -> int:
    """Pairs of a token and one it sees, itself included, when it sees at most ``window``.

    >>> _pairs(4, 4), _pairs(4, 2)
    (10, 7)
    """
    seen = min(tokens, window)
    return seen * (seen + 1) // 2 + (tokens - seen) * seen


def _compressed_pairs(group: CompressedAttention, tokens: int) -> int:
    pairs = _pairs(tokens, group.window_tokens)
    if not group.ratio:
        return pairs
    most = tokens if group.reads_at_most_tokens is None else group.reads_at_most_tokens * group.ratio
    return pairs + _pairs(tokens, most) // group.ratio


def matrix_rate(spec: ModelSpec, card: GpuSpec, weight_precision: str) -> int | None:
    """Dense matrix rate of one GPU for these weights: FP8 or FP4 where both have it, else 16-bit. [FLOP/s]"""
    stored = _matrix_format(spec, weight_precision)
    if stored == "nvfp4" and card.fp4_flops_per_s is not None:
        return card.fp4_flops_per_s
    if stored in ("fp8", "mxfp8") and card.fp8_flops_per_s is not None:
        return card.fp8_flops_per_s
    return card.bf16_flops_per_s


def _matrix_format(spec: ModelSpec, weight_precision: str) -> str:
    if weight_precision != "checkpoint":
        return weight_precision
    rules = spec.quantization.rules
    return rules[0].weight_format if rules else spec.quantization.base_precision
