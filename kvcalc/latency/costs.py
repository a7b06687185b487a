"""What a decode step costs beside the bytes it reads: the constants of one GPU, engine, layout and model."""

from __future__ import annotations

from dataclasses import dataclass

from kvcalc.hardware import GpuSpec
from kvcalc.latency.flops import linear_flops, matrix_rate
from kvcalc.latency.tables import LatencyException, StepBand, StepConstants, latency_tables
from kvcalc.model_spec import ModelSpec
from kvcalc.units import GB

_US = 1e-6
_ALL_REDUCES_PER_LAYER = 2
_ACTIVATION_BYTES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCosts:
    """The step of a model on its GPUs, all but the bytes."""

    bandwidth_efficiency: float
    """Share of the bandwidth reached. [ratio]"""
    overhead_s: float
    """Scheduling, launches and the latency of collectives. [s/step]"""
    decode_token_s: float
    """Matrix work and all-reduce traffic of one decoded token. [s/token]"""
    prompt_token_s: float
    """The same of one prompt token. [s/token]"""
    band: StepBand
    """How far measurements lie from this."""
    exceptions: tuple[LatencyException, ...]
    """What differs from the rest here."""
    splits_layers: bool
    """Whether GPUs work one after the other, whatever the layout says."""


def step_costs(
    spec: ModelSpec, card: GpuSpec, *, tp: int, pp: int, weight_precision: str, engine: str | None
) -> StepCosts:
    """The constants that hold here.

    Equation   token  = factor x 2 x active parameters / (tp x dense rate) + all-reduced bytes / all-reduce rate
               bytes  = 2 (tp - 1) / tp x 2 all-reduces x layers x hidden size x 2 bytes
    Prompts of different requests keep all pipeline stages busy at once; a decoded token passes them in turn.
    A GPU that states no compute rate computes in no time.
    """
    tables = latency_tables()
    constants, memory = tables.step, tables.memory.kind(card)
    found = tuple(
        row for row in tables.exceptions if row.holds(gpu_id=card.id, engine=engine, memory=memory, routed=spec.is_moe)
    )
    efficiency: float = getattr(constants, f"{memory}_efficiency")
    for row in found:
        efficiency /= row.slowdown
    splits_layers = tp > 1 and any(row.splits_layers for row in found)
    if splits_layers:
        tp, pp = 1, tp * pp
    rate = matrix_rate(spec, card, weight_precision)
    compute_s = constants.compute_factor * linear_flops(spec, 1) / (tp * rate) if rate else 0.0
    traffic_s = _all_reduced_bytes(spec, tp) / (_all_reduce_gb_s(constants, card) * GB)
    return StepCosts(
        bandwidth_efficiency=efficiency,
        overhead_s=_overhead_s(spec, constants, found, card, tp),
        decode_token_s=compute_s + traffic_s,
        prompt_token_s=compute_s / pp + traffic_s,
        band=tables.routed if spec.is_moe else tables.dense,
        exceptions=found,
        splits_layers=splits_layers,
    )


def _overhead_s(
    spec: ModelSpec, constants: StepConstants, found: tuple[LatencyException, ...], card: GpuSpec, tp: int
) -> float:
    step_us, layer_us = constants.step_us, constants.per_layer_us
    for row in found:
        step_us = step_us if row.step_us is None else row.step_us
        layer_us = layer_us if row.per_layer_us is None else row.per_layer_us
    if tp > 1:
        layer_us += constants.tp_pcie_per_layer_us if card.link == "pcie" else constants.tp_per_layer_us
    if tp > card.max_gpus_per_node:
        layer_us += constants.node_per_layer_us
    return (step_us + spec.num_layers * layer_us) * _US


def _all_reduced_bytes(spec: ModelSpec, tp: int) -> float:
    """Bytes each GPU sends and receives for one token. [bytes/token]"""
    width = _ALL_REDUCES_PER_LAYER * spec.num_layers * spec.hidden_size * _ACTIVATION_BYTES
    return 2 * (tp - 1) / tp * width


def _all_reduce_gb_s(constants: StepConstants, card: GpuSpec) -> float:
    return constants.all_reduce_pcie_gb_s if card.link == "pcie" else constants.all_reduce_gb_s
