"""Shape → layer groups: layers with the same cache behaviour, together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeVar

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
from kvcalc.reading.config import Config
from kvcalc.reading.layer_kinds import layers_of
from kvcalc.reading.shape import Mixer, Shape

_Key = TypeVar("_Key")

Family = Literal["mamba1", "mamba2", "gated_delta_net", "kda", "lightning", "rwkv", "short_conv"]
_FAMILIES: tuple[Family, ...] = ("mamba1", "mamba2", "gated_delta_net", "kda", "lightning", "rwkv", "short_conv")


def layer_groups(shape: Shape, config: Config) -> tuple[LayerGroup, ...]:
    """Every group of the model, the one that decides the growth first."""
    groups: list[LayerGroup] = []
    groups += _headed(shape)
    groups += _latent(shape)
    groups += _index_keys(shape)
    groups += _compressed(shape)
    groups += _states(shape, config)
    groups += _cross(shape)
    groups += _sharing(shape)
    return tuple(groups)


def _sharing(shape: Shape) -> list[LayerGroup]:
    """Layers without a cache of their own read that of the last earlier layer of their kind that has one.

    Source: transformers ``models/gemma3n/modeling_gemma3n.py`` kv_shared_layer_index; vLLM 0.32 ``gemma3n.py``.
    """
    shared = set(shape.shares_kv)

    def source(layer: int) -> int | None:
        kind = shape.layer_kinds[layer]
        return next((i for i in range(layer - 1, -1, -1) if i not in shared and shape.layer_kinds[i] == kind), None)

    return [SharedKv(layers=members, source_layer=found) for found, members in _split(shape.shares_kv, source)]


def _headed(shape: Shape) -> list[LayerGroup]:
    groups: list[LayerGroup] = []
    shared = set(shape.shares_kv)
    for kind in ("full_attention", "sliding_attention", "chunked_attention"):
        wanted: tuple[Mixer, ...] = (kind, "hybrid:mamba2") if kind == "full_attention" else (kind,)
        layers = [i for i in layers_of(shape.layer_kinds, *wanted) if i not in shared]
        for (query, kv, key, value), members in _split(layers, lambda i: _heads_of(shape, i)):
            facts = {"layers": members, "query_heads": query, "kv_heads": kv, "key_dim": key, "value_dim": value}
            if kind == "full_attention":
                groups.append(FullAttention.model_validate(facts))
            elif kind == "sliding_attention":
                groups.append(SlidingAttention.model_validate({**facts, "window_tokens": shape.window_tokens}))
            else:
                groups.append(ChunkedAttention.model_validate({**facts, "chunk_tokens": shape.window_tokens}))
    return groups


def _heads_of(shape: Shape, layer: int) -> tuple[int, int, int, int]:
    return shape.query_heads[layer], shape.kv_heads[layer], shape.key_dim[layer], shape.value_dim[layer]


def _split(layers: Sequence[int], key: Callable[[int], _Key]) -> Iterable[tuple[_Key, tuple[int, ...]]]:
    """Layers by key, in the order of each key's first layer."""
    found: dict[_Key, list[int]] = {}
    for layer in layers:
        found.setdefault(key(layer), []).append(layer)
    return ((value, tuple(members)) for value, members in found.items())


def _latent(shape: Shape) -> list[LayerGroup]:
    shared = set(shape.shares_kv)
    layers = [i for i in layers_of(shape.layer_kinds, "latent_attention") if i not in shared]
    indexed = bool(shape.indexer_layers)
    groups: list[LayerGroup] = []
    for heads, members in _split(layers, lambda i: shape.query_heads[i]):
        group = LatentAttention(
            layers=members,
            query_heads=heads,
            latent_dim=shape.kv_lora_rank,
            rope_dim=shape.qk_rope_head_dim,
            reads_at_most_tokens=shape.index_topk or None if indexed else None,
        )
        groups += [group] * shape.attention_per_layer
    return groups


def _index_keys(shape: Shape) -> list[LayerGroup]:
    """Beside latents FP8 with a scale; beside plain keys and values 16-bit.

    Source: vLLM 0.32 ``DeepseekV32IndexerCache`` and ``MiniMaxM3IndexerCache``.
    """
    if not shape.indexer_layers:
        return []
    beside_latents = "latent_attention" in shape.layer_kinds
    return [
        IndexerKeys(
            layers=shape.indexer_layers,
            key_dim=shape.index_head_dim,
            key_bits=8 if beside_latents else 16,
            scale_bits=32 if beside_latents else 0,
            tokens_per_key=shape.index_pool_tokens,
        )
    ]


_SPARSE_RATIO = 4
"""DeepSeek-V4 puts an indexer on the lightly compressed layers alone: vLLM 0.32 ``deepseek_v4/attention.py``."""


def _compressed(shape: Shape) -> list[LayerGroup]:
    layers = layers_of(shape.layer_kinds, "compressed_attention")
    groups: list[LayerGroup] = []
    for ratio, members in _split(layers, lambda i: shape.compress_ratios[i]):
        sparse = ratio == _SPARSE_RATIO and shape.index_head_dim > 0
        groups.append(
            CompressedAttention(
                layers=members,
                query_heads=shape.query_heads[members[0]],
                latent_dim=shape.key_dim[members[0]] - shape.qk_rope_head_dim,
                rope_dim=shape.qk_rope_head_dim,
                ratio=ratio,
                window_tokens=shape.window_tokens,
                index_dim=shape.index_head_dim if sparse else 0,
                reads_at_most_tokens=shape.index_topk or None if sparse else None,
            )
        )
    return groups


def _states(shape: Shape, config: Config) -> list[LayerGroup]:
    for family in _FAMILIES:
        layers = tuple(i for i, kind in enumerate(shape.layer_kinds) if kind.removeprefix("hybrid:") == family)
        if layers:
            return [_state(family, layers, shape, config)]
    return []


def _state(family: Family, layers: tuple[int, ...], shape: Shape, config: Config) -> RecurrentState:
    inner, key_dim = shape.state_inner, shape.state_key_dim
    channels = {
        "gated_delta_net": 2 * shape.state_key_heads * key_dim + inner,
        "kda": 3 * inner,
        "lightning": 0,
        "rwkv": shape.hidden_size,
    }.get(family, inner)
    return RecurrentState(
        layers=layers,
        family=family,
        # Key heads are the fewer: what divides them divides the value heads too.
        heads=min(shape.state_heads, shape.state_key_heads) if family == "gated_delta_net" else shape.state_heads,
        conv_tokens=max(0, shape.conv_kernel - 1),
        conv_channels=channels,
        conv_group_channels=2 * key_dim if family == "mamba2" else 0,
        conv_groups=shape.state_key_heads if family == "mamba2" else 0,
        state_values=0 if family == "short_conv" else inner * key_dim,
        state_precision=_state_precision(family, config),
    )


def _state_precision(family: Family, config: Config) -> str | None:
    """What the model declares; KDA and RWKV states are 32-bit in every engine that runs them."""
    if family in ("kda", "rwkv"):
        return "fp32"
    declared = config.string("mamba_ssm_dtype", "mamba_ssm_cache_dtype")
    return {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}.get(declared or "")


def _cross(shape: Shape) -> list[LayerGroup]:
    """Vision layers that only look at images; in an encoder-decoder every layer also looks at the source."""
    every = shape.encoder_layers > 0
    layers = tuple(range(shape.num_layers)) if every else layers_of(shape.layer_kinds, "cross_attention")
    return [
        CrossAttention(
            layers=members,
            query_heads=query,
            kv_heads=kv,
            key_dim=key,
            value_dim=value,
            source_tokens=shape.source_tokens,
        )
        for (query, kv, key, value), members in _split(layers, lambda i: _heads_of(shape, i))
    ]
