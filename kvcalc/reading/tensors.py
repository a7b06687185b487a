"""Config and shape → the list of weight tensors.

The layouts are data (``model_presets/tensors``): a family says which blocks a layer has, a block which
matrices, a matrix how large. This file puts the facts of each layer in and joins equal tensors of several
layers into one class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from kvcalc.reading.config import Config
from kvcalc.reading.families import FactBook, Family, blocks, family
from kvcalc.reading.shape import Shape
from kvcalc.reading.tensor_list import TensorList
from kvcalc.reading.towers import tower_tensors
from kvcalc.tensors import Part, TensorClass

BEFORE, AFTER = -1, -2
"""Layer index of what comes before the first layer and after the last."""
_STATE_ONLY = {"mlp_only", "none"}


def tensor_classes(config: Config, shape: Shape) -> tuple[TensorClass, ...]:
    """Every weight tensor of the model, towers and MTP layers included.

    Raises ConfigError naming a key whose value cannot be a size. What the config does not say is taken from
    the family's layout; an unknown model type gets Llama's, as an assumption.
    """
    layout, is_known = family(shape.model_type)
    if not is_known:
        config.assume(
            "model_type",
            "Llama's tensor layout",
            f"{shape.model_type or 'This model type'} is not in the catalogue: three feed-forward matrices unless "
            "the activation says two, biases only where a key says so.",
        )
    tensors = TensorList(layout.rename)
    outside = FactBook(_model_facts(shape) | _layer(shape, 0).facts(), layout.facts, config)
    _add(tensors, layout.first, outside, (BEFORE,))
    for layer, places in _layer_groups(shape).items():
        _add_layer(tensors, layout, layer, FactBook(_model_facts(shape) | layer.facts(), layout.facts, config), places)
    _add(tensors, layout.last, outside, (AFTER,))
    if shape.mtp_layers:
        _add_mtp(tensors, layout, shape, config)
    return (*tensors.classes(), *tower_tensors(config, shape))


class _Layer(NamedTuple):
    """Facts that may differ from layer to layer."""

    kind: str
    heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    inter: int
    ratio: int
    routed: int
    owns_kv: int
    windowed: int
    has_indexer: int
    has_mixer: int
    has_ffn: int
    has_attention: int

    def facts(self) -> dict[str, int]:
        """The numbers by name, for the rows."""
        return {name: value for name, value in self._asdict().items() if name != "kind"}


def _layer(shape: Shape, index: int) -> _Layer:
    kind = shape.layer_kinds[index]
    routed = index in shape.moe_layers
    return _Layer(
        kind=kind,
        heads=shape.query_heads[index],
        kv_heads=shape.kv_heads[index],
        key_dim=shape.key_dim[index],
        value_dim=shape.value_dim[index],
        inter=shape.intermediate_size[index],
        ratio=shape.compress_ratios[index] if shape.compress_ratios else 0,
        routed=int(routed),
        owns_kv=int(index not in shape.shares_kv),
        windowed=int(kind in ("sliding_attention", "chunked_attention")),
        has_indexer=int(index in shape.indexer_layers),
        has_mixer=int(kind not in _STATE_ONLY),
        has_ffn=int(routed or shape.intermediate_size[index] > 0),
        has_attention=int(shape.query_heads[index] > 0),
    )


def _layer_groups(shape: Shape) -> dict[_Layer, list[int]]:
    groups: dict[_Layer, list[int]] = {}
    for index in range(shape.num_layers):
        groups.setdefault(_layer(shape, index), []).append(index)
    return groups


def _model_facts(shape: Shape) -> dict[str, int]:
    return {
        "hidden": shape.hidden_size,
        "vocab": shape.vocab_size,
        "num_layers": shape.num_layers,
        "tied": int(shape.tie_word_embeddings),
        "gated": int(shape.gated_ffn),
        "blocks": shape.attention_per_layer,
        "experts": shape.num_experts,
        "expert_width": shape.expert_intermediate_size,
        "shared_width": shape.shared_intermediate_size,
        "q_rank": shape.q_lora_rank,
        "kv_rank": shape.kv_lora_rank,
        "nope": shape.qk_nope_head_dim,
        "rope": shape.qk_rope_head_dim,
        "v_dim": shape.v_head_dim,
        "index_heads": shape.index_heads,
        "index_dim": shape.index_head_dim,
        "s_heads": shape.state_heads,
        "s_head_dim": shape.state_head_dim,
        "s_key_heads": shape.state_key_heads,
        "s_key_dim": shape.state_key_dim,
        "taps": shape.conv_kernel,
        "inner": shape.state_inner,
        "encoder_layers": shape.encoder_layers,
        "mtp_layers": shape.mtp_layers,
    }


def _add(
    tensors: TensorList,
    names: Iterable[str] | None,
    fact: Callable[[str], int],
    places: Iterable[int],
    *,
    part: Part | None = None,
) -> None:
    for name in names or ():
        tensors.add(blocks()[name], fact, places, part=part)


def _add_layer(
    tensors: TensorList,
    layout: Family,
    layer: _Layer,
    fact: Callable[[str], int],
    places: Iterable[int],
    *,
    part: Part | None = None,
) -> None:
    names = [*layout.mixers[layer.kind], *(layout.each or ())]
    if layer.inter:
        names += layout.dense or ()
    if layer.routed:
        names += layout.moe or ()
    _add(tensors, names, fact, places, part=part)


def _add_mtp(tensors: TensorList, layout: Family, shape: Shape, config: Config) -> None:
    """The last decoder layer once per MTP layer, and its joining projection. Engines skip them unless asked."""
    layer = _layer(shape, shape.num_layers - 1)
    fact = FactBook(_model_facts(shape) | layer.facts(), layout.facts, config)
    places = (AFTER,) * shape.mtp_layers
    _add_layer(tensors, layout, layer, fact, places, part="mtp")
    _add(tensors, ("mtp",), fact, (AFTER,))
