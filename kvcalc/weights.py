"""Weight bytes on the busiest GPU: every tensor as stored, cut as the layout cuts it.

Equation   max over pipeline stages of sum over tensors of
           layers in the stage x bytes of one layer's share on one rank
"""

from __future__ import annotations

from bisect import bisect_left
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from kvcalc.cache import check_layout
from kvcalc.errors import CatalogueError, Record, check_whole
from kvcalc.model_spec import ModelSpec
from kvcalc.parallelism import Parallelism, stages
from kvcalc.storage import CHECKPOINT, Stored, stored_tensors
from kvcalc.tensors import Part
from kvcalc.units import ceil_div

_BEFORE, _AFTER = -1, -2
_VOCAB_MULTIPLE = 64
"""Rows of a table are padded to this before ranks share them. Source: vLLM 0.32
``model_executor/layers/vocab_parallel_embedding.py`` DEFAULT_VOCAB_PADDING_SIZE."""
_NOT_RUN_TO_DECODE: frozenset[Part] = frozenset(("mtp", "vision", "audio"))


class PartBytes(Record):
    """One part of the model on the busiest GPU."""

    part: Part
    """What it is."""
    parameters: int
    """Parameters of the part in the whole model. [parameters]"""
    bits_per_weight: Fraction
    """Bits per parameter as stored, scales included. [bits]"""
    bytes: int
    """Bytes on the busiest GPU. [bytes/GPU]"""


def weight_bytes(
    spec: ModelSpec, *, precision: str = CHECKPOINT, tp: int = 1, pp: int = 1, ep: int = 1, draft: bool = False
) -> int:
    """Bytes of weights on the busiest GPU.

    Parameters
    ----------
    precision : weight precision id; 'checkpoint' is what the file declares. Another one replaces the format of
        the quantisable matrices; MXFP4 that of the routed experts only, where there are any.
    tp, pp, ep : tensor, pipeline and expert parallel sizes. [GPUs]
    draft : whether the checkpoint's MTP layers are loaded, to draft tokens with.

    Returns
    -------
    int. Each tensor's share is rounded up to a byte. [bytes/GPU]

    Raises
    ------
    CatalogueError   an unknown precision id.
    ScenarioError    a layout no engine would start.

    Source
    ------
    Sharding: vLLM 0.32 ``model_executor/layers/linear.py``; formats: model_presets/precisions.toml.
    """
    _check_types(precision, tp=tp, pp=pp, ep=ep)
    return sum(size for _, size in _busiest(spec, precision, tp, pp, ep, draft=draft))


def _check_types(precision: object, **sizes: int) -> None:
    """Refuse what the caches below could not look up, or would take for an equal number (True for 1)."""
    if not isinstance(precision, str):
        raise CatalogueError("precision", "a weight precision's id", precision, hint=f"Use {CHECKPOINT!r}.")
    Parallelism(**sizes)


@lru_cache(maxsize=512)
def weights_by_part(
    spec: ModelSpec, *, precision: str = CHECKPOINT, tp: int = 1, pp: int = 1, ep: int = 1, draft: bool = False
) -> tuple[PartBytes, ...]:
    """The same bytes by part, in the order of the model; ``bytes`` sum to ``weight_bytes``."""
    loads: dict[Part, int] = {}
    for stored, size in _busiest(spec, precision, tp, pp, ep, draft=draft):
        loads[stored.tensor.part] = loads.get(stored.tensor.part, 0) + size
    values: dict[Part, int] = {}
    bits: dict[Part, Fraction] = {}
    for stored in stored_tensors(spec, precision):
        part, count = stored.tensor.part, len(stored.layers)
        # A tied head is a table of its own where another stage holds the embedding.
        if not stored.tensor.tied_to or part in loads:
            values[part] = values.get(part, 0) + stored.tensor.values_per_layer * count
            bits[part] = bits.get(part, Fraction(0)) + stored.bits * count
    return tuple(
        PartBytes(part=part, parameters=count, bits_per_weight=Fraction(bits[part], count), bytes=loads.get(part, 0))
        for part, count in values.items()
    )


def streamed_weight_bytes(
    spec: ModelSpec, *, precision: str = CHECKPOINT, tp: int = 1, pp: int = 1, ep: int = 1, batch: int
) -> int:
    """Bytes of weights one decode step reads on the busiest GPU. [bytes/GPU]

    Equation   every other tensor once; routed experts x expected share of distinct ones,
               1 - (1 - k/E)^batch for k of E experts per token
    Embedding tables are looked up, not read, unless the head is tied to one. Towers and MTP layers do not run.

    Parameters
    ----------
    batch : sequences decoded together. [sequences]

    Raises ScenarioError for a batch below 1 or a bad layout, CatalogueError for an unknown precision.
    """
    check_whole("batch", batch, 1, hint="A step decodes at least one sequence.")
    _check_types(precision, tp=tp, pp=pp, ep=ep)
    picked, of = _expert_share(spec.num_experts, spec.experts_per_token, batch)
    return max(once + ceil_div(experts * picked, of) for once, experts in _reads(spec, precision, tp, pp, ep))


@lru_cache(maxsize=512)
def _reads(spec: ModelSpec, precision: str, tp: int, pp: int, ep: int) -> tuple[tuple[int, int], ...]:
    """(bytes read once, bytes of all routed experts) by pipeline stage."""
    check_layout(spec, Parallelism(tp=tp, pp=pp, ep=ep))
    found = []
    for stage in _stages(spec, pp):
        once = experts = 0
        for stored in stored_tensors(spec, precision):
            tensor = stored.tensor
            if tensor.part in _NOT_RUN_TO_DECODE or tensor.role == "embedding":
                continue
            size = _layers_on(stage, stored) * _rank_bytes(stored, tp, ep)
            if tensor.shard == "experts":
                experts += size
            else:
                once += size
        found.append((once, experts))
    return tuple(found)


_EXACT_UP_TO = 32
_FIXED_POINT_BITS = 192


@lru_cache(maxsize=4096)
def _expert_share(num_experts: int, experts_per_token: int, batch: int) -> tuple[int, int]:
    """(numerator, denominator) of the expected share of experts that some token of the batch picks, routing taken
    as uniform: 1 - (1 - k/E)^batch. Past a batch of 32 in fixed point, too high by less than 2^-180."""
    if not num_experts:
        return 1, 1
    if batch <= _EXACT_UP_TO:
        every, missed = num_experts**batch, (num_experts - experts_per_token) ** batch
        return every - missed, every
    one = 1 << _FIXED_POINT_BITS
    power, missed = ((num_experts - experts_per_token) << _FIXED_POINT_BITS) // num_experts, one
    while batch:
        if batch & 1:
            missed = missed * power >> _FIXED_POINT_BITS
        power = power * power >> _FIXED_POINT_BITS
        batch >>= 1
    return one - missed, one


class _Stage(NamedTuple):
    layers: range
    is_first: bool
    is_last: bool


def _stages(spec: ModelSpec, pp: int) -> tuple[_Stage, ...]:
    parts = stages(spec.num_layers, pp)
    return tuple(_Stage(layers, i == 0, i == pp - 1) for i, layers in enumerate(parts))


@lru_cache(maxsize=512)
def _busiest(
    spec: ModelSpec, precision: str, tp: int, pp: int, ep: int, *, draft: bool
) -> tuple[tuple[Stored, int], ...]:
    """(tensor, bytes) on one GPU of the stage that holds the most."""
    check_layout(spec, Parallelism(tp=tp, pp=pp, ep=ep))
    shares = [
        (stored, _rank_bytes(stored, tp, ep))
        for stored in stored_tensors(spec, precision)
        if (draft or stored.tensor.part != "mtp") and (pp > 1 or not stored.tensor.tied_to)
    ]
    loads = (
        tuple((stored, size * count) for stored, size in shares if (count := _layers_on(stage, stored)))
        for stage in _stages(spec, pp)
    )
    return max(loads, key=lambda rows: sum(size for _, size in rows))


def _layers_on(stage: _Stage, stored: Stored) -> int:
    """Layers of the tensor that a stage holds. The embedding is on the first, norm and head on the last; a tied
    head is a table of its own there, since a stage cannot read another's."""
    layers = stored.layers
    count = bisect_left(layers, stage.layers.stop) - bisect_left(layers, stage.layers.start)
    if layers[0] < 0:
        count += stage.is_first * layers.count(_BEFORE) + stage.is_last * layers.count(_AFTER)
    return count


def _rank_bytes(stored: Stored, tp: int, ep: int) -> int:
    """Bytes of one layer's share on one rank.

    Experts are dealt whole over ep ranks; where tensor parallelism is wider, each is cut over the tp / ep ranks of
    its group. vLLM always deals over all ranks (EP = TP x DP).
    Source: vLLM 0.32 ``layers/fused_moe/config.py`` FusedMoEParallelConfig.make; SGLang ``moe_tp_size = tp_size //
    moe_ep_size``; TensorRT-LLM ``Mapping`` moe_tp_size x moe_ep_size = tp_size.
    """
    tensor = stored.tensor
    match tensor.shard:
        case "replicated":
            return _share(stored.bits, 1, 1)
        case "kv_heads":
            heads = max(tensor.shard_units, 1)
            return _share(stored.bits, ceil_div(heads, tp), heads)
        case "experts" if ep > 1:
            return _share(stored.bits, 1, ep * max(1, tp // ep))
        case "vocab" if tp > 1:
            padded_rows = ceil_div(tensor.rows, _VOCAB_MULTIPLE) * _VOCAB_MULTIPLE
            return _share(stored.bits, padded_rows, tensor.rows * tp)
    return _share(stored.bits, 1, tp)


def _share(bits: Fraction, numerator: int, denominator: int) -> int:
    """Whole bytes of a share of these bits, rounded up. [bytes]"""
    return ceil_div(bits.numerator * numerator, 8 * bits.denominator * denominator)
