"""Model shapes written by hand, so that tests of the engines need no config reader."""

from __future__ import annotations

from collections.abc import Iterable

from kvcalc.layers import (
    CompressedAttention,
    FullAttention,
    IndexerKeys,
    LatentAttention,
    LayerGroup,
    RecurrentState,
    SlidingAttention,
)
from kvcalc.model_spec import ModelSpec
from kvcalc.tensors import Quantization

GIB = 2**30


def model(*groups: LayerGroup, layers: int, mtp_layers: int = 0, max_context_tokens: int | None = None) -> ModelSpec:
    return ModelSpec(
        label="by hand",
        num_layers=layers,
        hidden_size=64,
        vocab_size=64,
        intermediate_size=64,
        max_context_tokens=max_context_tokens,
        layer_groups=groups,
        tensors=(),
        quantization=Quantization(),
        mtp_layers=mtp_layers,
    )


def full(layers: Iterable[int], *, kv_heads: int = 8, head_dim: int = 128, query_heads: int = 64) -> FullAttention:
    return FullAttention(
        layers=tuple(layers), query_heads=query_heads, kv_heads=kv_heads, key_dim=head_dim, value_dim=head_dim
    )


def sliding(
    layers: Iterable[int], window: int, *, kv_heads: int = 8, head_dim: int = 128, query_heads: int = 64
) -> SlidingAttention:
    return SlidingAttention(
        layers=tuple(layers),
        query_heads=query_heads,
        kv_heads=kv_heads,
        key_dim=head_dim,
        value_dim=head_dim,
        window_tokens=window,
    )


def latent(layers: Iterable[int], *, sparse: bool = False) -> LatentAttention:
    return LatentAttention(
        layers=tuple(layers),
        query_heads=128,
        latent_dim=512,
        rope_dim=64,
        reads_at_most_tokens=2048 if sparse else None,
    )


def delta_net(layers: Iterable[int], *, value_heads: int, precision: str | None = None) -> RecurrentState:
    """Gated delta net with 16 key heads of 128 and value heads of 128, kernel 4."""
    return RecurrentState(
        layers=tuple(layers),
        family="gated_delta_net",
        heads=16,
        conv_tokens=3,
        conv_channels=2 * 16 * 128 + value_heads * 128,
        state_values=value_heads * 128 * 128,
        state_precision=precision,
    )


def compressed(layers: Iterable[int], ratio: int, *, index_dim: int = 0) -> CompressedAttention:
    return CompressedAttention(
        layers=tuple(layers),
        query_heads=64,
        latent_dim=448,
        rope_dim=64,
        ratio=ratio,
        window_tokens=128,
        index_dim=index_dim,
    )


def every(step: int, count: int, *, offset: int) -> tuple[list[int], list[int]]:
    """(layers offset, offset + step, …; all the others) of ``count`` layers."""
    picked = list(range(offset, count, step))
    return picked, [layer for layer in range(count) if layer not in picked]


def llama_70b() -> ModelSpec:
    return model(full(range(80)), layers=80)


def gemma_27b() -> ModelSpec:
    """62 layers: every sixth keeps all, the rest a window of 1,024; 16 KV heads of 128."""
    whole, window = every(6, 62, offset=5)
    return model(full(whole, kv_heads=16), sliding(window, 1024, kv_heads=16), layers=62)


def gpt_oss_120b() -> ModelSpec:
    """36 layers, alternating a window of 128 and full attention; 8 KV heads of 64."""
    window, whole = every(2, 36, offset=0)
    return model(sliding(window, 128, head_dim=64), full(whole, head_dim=64), layers=36)


def deepseek_v3() -> ModelSpec:
    return model(latent(range(61)), layers=61, mtp_layers=1)


def deepseek_v32() -> ModelSpec:
    keys = IndexerKeys(layers=tuple(range(61)), key_dim=128)
    return model(latent(range(61), sparse=True), keys, layers=61, mtp_layers=1)


def deepseek_v4_flash() -> ModelSpec:
    """43 layers: two windows only, 21 of ratio 4 with index keys, 20 of ratio 128."""
    return model(
        compressed((0, 1), 0),
        compressed(range(2, 43, 2), 4, index_dim=128),
        compressed(range(3, 43, 2), 128),
        layers=43,
    )


def qwen3_next() -> ModelSpec:
    """48 layers: 12 of attention with 2 KV heads of 256, 36 gated delta nets with 32 value heads."""
    whole, states = every(4, 48, offset=3)
    return model(
        full(whole, kv_heads=2, head_dim=256, query_heads=16),
        delta_net(states, value_heads=32),
        layers=48,
        mtp_layers=1,
    )


def qwen35_27b() -> ModelSpec:
    """64 layers: 16 of attention with 4 KV heads of 256, 48 gated delta nets with 48 value heads, FP32 state."""
    whole, states = every(4, 64, offset=3)
    return model(
        full(whole, kv_heads=4, head_dim=256, query_heads=24),
        delta_net(states, value_heads=48, precision="fp32"),
        layers=64,
        mtp_layers=1,
    )
