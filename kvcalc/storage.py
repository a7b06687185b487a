"""How each tensor is stored: the checkpoint's rules, or a chosen precision, worked out per tensor and layer.

What quantisers leave alone (embedding, head, norms, biases, routers, towers) keeps the checkpoint's 16-bit.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from kvcalc.gguf_mixes import MixedModel, mixed_bits_per_value
from kvcalc.model_spec import ModelSpec
from kvcalc.module_patterns import ModulePatterns
from kvcalc.precision import WeightFormat, rational, weight_format
from kvcalc.tensors import QuantRule, TensorClass
from kvcalc.units import ceil_div

CHECKPOINT = "checkpoint"
_INDEX_BITS = 32
"""GPTQ's act-order index of one input column, an int32."""
_FULL_SCALE_BITS = 32
"""A bitsandbytes scale that is not itself quantised, FP32."""


class Stored(NamedTuple):
    """A tensor class in the layers that store it alike."""

    tensor: TensorClass
    bits: Fraction
    """Bits of all its copies in one layer."""
    layers: tuple[int, ...]
    """Ascending, -2 and -1 first."""


@lru_cache(maxsize=256)
def stored_tensors(spec: ModelSpec, precision: str) -> tuple[Stored, ...]:
    """Every tensor class with the bits it takes, split where layers differ.

    Raises CatalogueError for an unknown precision id.
    """
    plan = _checkpoint_plan(spec) if precision == CHECKPOINT else _what_if_plan(spec, weight_format(precision))
    return tuple(stored for tensor in spec.tensors for stored in plan.stored(tensor))


class _Plan:
    """Which rule stores which tensor."""

    def __init__(
        self,
        base: WeightFormat,
        rules: Iterable[QuantRule] = (),
        *,
        kept: ModulePatterns | None = None,
        tables: bool = False,
    ) -> None:
        self._base = QuantRule(weight_format=base.id)
        self._rules = [(rule, ModulePatterns(rule.targets) if rule.targets else None) for rule in rules]
        self._kept = kept or ModulePatterns(())
        self._tables = tables
        patterns = [self._kept, *(targets for _, targets in self._rules if targets is not None)]
        self._differs_by_layer = any(found.by_layer for found in patterns)

    def stored(self, tensor: TensorClass) -> list[Stored]:
        """The tensor as stored, layers of one format together."""
        if not self._rules or not self._may_quantize(tensor):
            return [Stored(tensor, tensor_bits(self._base, tensor), tensor.layers)]
        if not self._differs_by_layer:
            return [Stored(tensor, tensor_bits(self._rule(tensor, tensor.layers[-1]), tensor), tensor.layers)]
        layers: dict[QuantRule, list[int]] = {}
        for layer in tensor.layers:
            layers.setdefault(self._rule(tensor, layer), []).append(layer)
        return [Stored(tensor, tensor_bits(rule, tensor), tuple(places)) for rule, places in layers.items()]

    def _may_quantize(self, tensor: TensorClass) -> bool:
        """Linears always; embedding and head only under a rule that means them."""
        if tensor.quantizable or tensor.role not in ("embedding", "head"):
            return tensor.quantizable
        layer = tensor.layers[0]
        return self._tables or any(
            targets is not None and targets.match(tensor.name, layer) for _, targets in self._rules
        )

    def _rule(self, tensor: TensorClass, layer: int) -> QuantRule:
        if not self._kept.match(tensor.name, layer):
            for rule, targets in self._rules:
                if targets is None or targets.match(tensor.name, layer):
                    return rule
        return self._base


class _MixPlan:
    """A GGUF mix: every tensor by its role."""

    def __init__(self, mix: str, spec: ModelSpec) -> None:
        self._mix = mix
        self._model = MixedModel(
            num_layers=spec.num_layers,
            query_heads_per_kv_head=_grouping(spec),
            num_experts=spec.num_experts,
            is_tied=any(tensor.tied_to for tensor in spec.tensors),
        )

    def stored(self, tensor: TensorClass) -> list[Stored]:
        """The tensor as stored, layers of one block format together."""
        layers: dict[Fraction, list[int]] = {}
        for layer in tensor.layers:
            layers.setdefault(mixed_bits_per_value(self._mix, tensor, layer, self._model), []).append(layer)
        values = tensor.values_per_layer
        return [Stored(tensor, values * bits, tuple(places)) for bits, places in layers.items()]


def _checkpoint_plan(spec: ModelSpec) -> _Plan | _MixPlan:
    declared = spec.quantization
    for rule in declared.rules:
        if weight_format(rule.weight_format).scope == "mix":
            return _MixPlan(rule.weight_format, spec)
    return _Plan(
        weight_format(declared.base_precision),
        declared.rules,
        kept=ModulePatterns(declared.kept),
        tables=declared.quantizes_tables,
    )


def _what_if_plan(spec: ModelSpec, wanted: WeightFormat) -> _Plan | _MixPlan:
    if wanted.scope == "mix":
        return _MixPlan(wanted.id, spec)
    if wanted.scope == "everything":
        return _Plan(wanted)
    targets = ("experts",) if wanted.scope == "experts" and spec.is_moe else ()
    base = weight_format(spec.quantization.base_precision)
    return _Plan(base, (QuantRule(weight_format=wanted.id, targets=targets),))


def _grouping(spec: ModelSpec) -> int:
    """Query heads per KV head of the first attention group; 1 without one. [heads]"""
    for group in spec.layer_groups:
        heads, kv_heads = getattr(group, "query_heads", 0), getattr(group, "kv_heads", 0)
        if heads and kv_heads:
            return int(heads // kv_heads)
    return 1


def tensor_bits(rule: QuantRule, tensor: TensorClass) -> Fraction:
    """Bits of all copies of a tensor in one layer, with scales, zero points and indices. [bits]

    Equation   values x value_bits + scales x (scale_bits + zero_bits), where a scale serves group_size values of
               a row, a block of rows and columns, or a whole row; a tensor's single scale is not counted.
    """
    stored = weight_format(rule.weight_format)
    value_bits = Fraction(rule.bits) if rule.bits is not None else rational(stored.value_bits)
    bits = tensor.rows * tensor.columns * value_bits + _scales(rule, stored, tensor) * _bits_per_scale(rule, stored)
    if rule.act_order:
        bits += tensor.columns * _INDEX_BITS
    return bits * tensor.copies


def _scales(rule: QuantRule, stored: WeightFormat, tensor: TensorClass) -> int:
    block = rule.block_shape or stored.block_shape
    if block is not None:
        return ceil_div(tensor.rows, block[0]) * ceil_div(tensor.columns, block[1])
    group_size = stored.group_size if rule.group_size is None else rule.group_size
    if group_size > 0:
        return tensor.rows * ceil_div(tensor.columns, group_size)
    return tensor.rows if group_size else 0


def _bits_per_scale(rule: QuantRule, stored: WeightFormat) -> Fraction:
    scale_bits = stored.scale_bits if rule.scale_bits is None else rule.scale_bits
    zero_bits = stored.zero_bits if rule.zero_bits is None else rule.zero_bits
    if not stored.scales_per_group:
        return Fraction(scale_bits + zero_bits)
    if not rule.double_quant:
        return Fraction(_FULL_SCALE_BITS)
    return scale_bits + zero_bits + Fraction(stored.group_scale_bits, stored.scales_per_group)
