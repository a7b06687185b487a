"""GGUF mixes: which block format each tensor of a model takes. Data in ``model_presets/gguf_mixes.toml``."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from kvcalc.data import load_table
from kvcalc.errors import CatalogueError, Record
from kvcalc.tensors import TensorClass

_When = Literal["always", "gqa_4", "layers_80", "experts_8"]
_Layers = Literal["all", "more_bits", "first_8th", "first_16th", "first_2", "first_4"]


class BlockFormat(Record):
    """A ggml block."""

    bits: str
    """Bits per value, scales included. [bits]"""
    values: int
    """Values of one block: a row that is not a multiple takes the fallback. [values]"""
    otherwise: str | None = None
    """Fallback block."""


class MixRule(Record):
    """A tensor that a mix stores differently."""

    tensor: str
    """Role of the tensor."""
    block: str
    """Block it takes."""
    layers: _Layers = "all"
    """In which of the layers that have one."""
    when: _When = "always"
    """For which models."""


class Mix(Record):
    """One mix."""

    id: str
    """Weight precision id."""
    base: str
    """Block of every other matrix."""
    head: str
    """Block of the output matrix and of a table tied to it."""
    rules: tuple[MixRule, ...] = ()
    """Exceptions; the last that fits wins."""


class _Mixes(Record):
    source: str
    checked: str
    blocks: dict[str, BlockFormat]
    mixes: tuple[Mix, ...]


@lru_cache(maxsize=1)
def _data() -> _Mixes:
    return load_table("gguf_mixes.toml", _Mixes)


@lru_cache(maxsize=1)
def _by_id() -> dict[str, Mix]:
    return {mix.id: mix for mix in _data().mixes}


class MixedModel(Record):
    """What a mix looks at besides the tensor."""

    num_layers: int
    """Decoder layers. [layers]"""
    query_heads_per_kv_head: int
    """Grouping of the attention. [heads]"""
    num_experts: int
    """Routed experts. [experts]"""
    is_tied: bool
    """Whether the head is the embedding table."""


def mixed_bits_per_value(mix_id: str, tensor: TensorClass, layer: int, model: MixedModel) -> Fraction:
    """Bits per value of one tensor in one layer. [bits]

    Raises CatalogueError when the mix is not in the data file.
    Source: llama.cpp ``src/llama-quant.cpp``, llama_tensor_get_type.
    """
    mix = _by_id().get(mix_id)
    if mix is None:
        raise CatalogueError("precision", f"one of {', '.join(_by_id())}", mix_id, hint="Choose one of these.")
    if tensor.part in ("vision", "audio"):  # towers are a file of their own, kept at 16 bits
        return Fraction(_data().blocks["f16"].bits)
    if tensor.rows == 1 or not (tensor.quantizable or tensor.role in ("embedding", "head")):
        return Fraction(_data().blocks["f32"].bits)
    name = mix.base
    if tensor.role == "head" or (tensor.role == "embedding" and model.is_tied):
        name = mix.head
    for rule in mix.rules:
        if rule.tensor == tensor.role and _APPLIES[rule.when](model) and _in_layers(rule.layers, tensor, layer):
            name = rule.block
    return _fitting(name, tensor.columns)


def _fitting(name: str, columns: int) -> Fraction:
    block = _data().blocks[name]
    while columns % block.values:
        block = _data().blocks[block.otherwise or "f16"]
    return Fraction(block.bits)


_APPLIES: dict[_When, Callable[[MixedModel], bool]] = {
    "always": lambda model: True,
    "gqa_4": lambda model: model.query_heads_per_kv_head >= 4,
    "layers_80": lambda model: model.num_layers == 80,
    "experts_8": lambda model: model.num_experts == 8,
}


def _in_layers(which: _Layers, tensor: TensorClass, layer: int) -> bool:
    """Whether the layer is among those: counted over the layers that have the tensor."""
    count = len(tensor.layers)
    index = tensor.layers.index(layer)
    match which:
        case "more_bits":
            return index < count // 8 or index >= 7 * count // 8 or (index - count // 8) % 3 == 2
        case "first_8th":
            return index < count // 8
        case "first_16th":
            return index < count // 16
        case "first_2" | "first_4":
            return index < int(which[-1])
    return True
