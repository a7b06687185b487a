"""What if the model had been built with another attention: MHA, GQA-n, MQA or MLA instead of its own.

Only what the variant decides is changed: the key/value heads of layers that store heads, and the projections
that produce them. Quality is out of scope, and the page says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kvcalc.errors import Assumption, ScenarioError
from kvcalc.layers import FullAttention, LatentAttention, LayerGroup
from kvcalc.model_spec import ModelSpec
from kvcalc.tensors import TensorClass

AS_TRAINED = "as_trained"
_GQA = re.compile(r"gqa-([1-9]\d{0,4})")
_LATENT_DIM, _ROPE_DIM = 512, 64
"""DeepSeek-V2 and V3's latent (arXiv 2405.04434, section 2.1.2; 2412.19437, section 4.2)."""
_SOURCE = "A what-if: no such checkpoint exists, and quality is not known."


@dataclass(frozen=True)
class _Variant:
    kv_heads: int | None
    """None for MHA (one per query head), 0 for MLA."""


def _read(variant: str) -> _Variant:
    if variant == "mha":
        return _Variant(None)
    if variant == "mqa":
        return _Variant(1)
    if variant == "mla":
        return _Variant(0)
    found = _GQA.fullmatch(variant)
    if found is None:
        raise ScenarioError("attention", "as_trained, mha, mqa, mla or gqa-<kv heads>", variant, hint="Use gqa-8.")
    return _Variant(int(found[1]))


def choices(spec: ModelSpec) -> tuple[str, ...]:
    """Variants that make sense for this model: the group counts that divide its query heads, most heads first."""
    headed = [group for group in spec.layer_groups if isinstance(group, (FullAttention, LatentAttention))]
    if not headed:
        return (AS_TRAINED,)
    query_heads = min(group.query_heads for group in headed)
    groups = [n for n in (64, 32, 16, 8, 4, 2) if n < query_heads and query_heads % n == 0]
    return (AS_TRAINED, "mha", *(f"gqa-{n}" for n in groups), "mqa", "mla")


def with_attention(spec: ModelSpec, variant: str) -> ModelSpec:
    """The model with its unbounded attention layers changed to the variant.

    Sliding-window, recurrent and cross-attention layers stay as trained: their cost hardly grows with
    context, and replacing them would be another model. Raises ScenarioError for an unknown variant, one that
    does not divide the query heads, or a model with no layer to change.
    """
    if variant == AS_TRAINED:
        return spec
    wanted = _read(variant)
    if not any(isinstance(group, (FullAttention, LatentAttention)) for group in spec.layer_groups):
        raise ScenarioError("attention", "as_trained for this model", variant, hint="No layer keeps every token.")
    changed = tuple(_group(group, wanted) for group in spec.layer_groups if group.kind != "indexer_keys")
    fields = {name: getattr(spec, name) for name in ModelSpec.model_fields} | {
        "layer_groups": changed,
        "tensors": tuple(_tensor(tensor, changed, wanted) for tensor in spec.tensors),
        "assumptions": (*spec.assumptions, _assumption(spec, variant, wanted)),
    }
    # Built anew, not copied: a copy would keep the census of the old tensors.
    return ModelSpec(**fields)


def _kv_heads(query_heads: int, wanted: _Variant) -> int:
    heads = query_heads if wanted.kv_heads is None else wanted.kv_heads
    if heads > query_heads or query_heads % heads:
        raise ScenarioError(
            "attention", f"key/value heads to divide the {query_heads} query heads", heads, hint="Try gqa-8."
        )
    return heads


def _group(group: LayerGroup, wanted: _Variant) -> LayerGroup:
    if isinstance(group, LatentAttention):
        if wanted.kv_heads == 0:
            return group
        # Without the latent, each head stores its own key and value; MLA's widths are 128 + rope and 128.
        heads = _kv_heads(group.query_heads, wanted)
        return FullAttention(
            layers=group.layers,
            query_heads=group.query_heads,
            kv_heads=heads,
            key_dim=_UNCOMPRESSED_DIM + group.rope_dim,
            value_dim=_UNCOMPRESSED_DIM,
        )
    if isinstance(group, FullAttention):
        if wanted.kv_heads == 0:
            return LatentAttention(
                layers=group.layers, query_heads=group.query_heads, latent_dim=_LATENT_DIM, rope_dim=_ROPE_DIM
            )
        return group.model_copy(update={"kv_heads": _kv_heads(group.query_heads, wanted)})
    return group


_UNCOMPRESSED_DIM = 128
"""Head width of DeepSeek-V2 and V3 before compression, qk_nope_head_dim and v_head_dim (same sources)."""


def _tensor(tensor: TensorClass, groups: tuple[LayerGroup, ...], wanted: _Variant) -> TensorClass:
    """Key and value projections follow their heads; MLA what-ifs keep the weights as trained."""
    if tensor.shard != "kv_heads" or wanted.kv_heads == 0 or not tensor.shard_units:
        return tensor
    full = {layer: group for group in groups if isinstance(group, FullAttention) for layer in group.layers}
    if not all(layer in full for layer in tensor.layers):
        return tensor
    heads = full[tensor.layers[0]].kv_heads
    return tensor.model_copy(update={"rows": tensor.rows * heads // tensor.shard_units, "shard_units": heads})


def _assumption(spec: ModelSpec, variant: str, wanted: _Variant) -> Assumption:
    layers = sum(
        len(group.layers) for group in spec.layer_groups if isinstance(group, (FullAttention, LatentAttention))
    )
    stays = "" if layers == spec.num_layers else f"; the other {spec.num_layers - layers} layers stay as trained"
    if wanted.kv_heads == 0:
        what = f"{layers} layers keep one latent of {_LATENT_DIM} + {_ROPE_DIM} values per token, weights as trained"
    else:
        what = f"{layers} layers keep {variant.upper()} heads, key and value projections resized to match"
    return Assumption(field="attention", value=what + stays, reason=_SOURCE)
