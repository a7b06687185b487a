"""Changes worth trying on a scenario: which inputs to alter, what it is called, and what one pays for it.

Only the inputs are decided here; what a change brings is for ``evaluate`` to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from kvcalc import catalogue
from kvcalc.cache import check_layout
from kvcalc.errors import KvcalcError
from kvcalc.hardware import GpuSpec
from kvcalc.measured import changed
from kvcalc.model_spec import ModelSpec
from kvcalc.parallelism import Parallelism
from kvcalc.precision import kv_format, weight_format
from kvcalc.scenario import Scenario


class Change(NamedTuple):
    """One change to a scenario."""

    kind: str
    """What it touches: gpus, card, weights, kv, share, cap, limit, context."""
    text: str
    """The change in words."""
    pays: str
    """What one pays for it, in words."""
    update: dict[str, Any]
    """Scenario fields to replace."""


def apply(scenario: Scenario, change: Change) -> Scenario:
    """The scenario with the change. Raises KvcalcError when the two do not go together."""
    return changed(scenario, change.update)


def candidates(scenario: Scenario, spec: ModelSpec, gpu: GpuSpec) -> Iterator[Change]:
    """Changes this model, GPU and engine allow, in the order people try them."""
    yield from _precisions(scenario, spec, gpu)
    yield from _more_gpus(scenario, spec, gpu)
    yield from _bigger_cards(scenario, gpu)
    yield from engine_settings(scenario)


def _precisions(scenario: Scenario, spec: ModelSpec, gpu: GpuSpec) -> Iterator[Change]:
    now = kv_format(scenario.kv_precision, declared=spec.quantization.kv_precision)
    grows = any(group.grows for group in spec.layer_groups)
    if grows and now.row_bits(128) > kv_format("fp8").row_bits(128) and scenario.engine in kv_format("fp8").engines:
        yield Change("kv", "KV cache in FP8", "Check answers on your own tests", {"kv_precision": "fp8"})
    bits = weight_bits(scenario, spec)
    if bits > 8 and gpu.fp8_flops_per_s is not None:
        yield Change("weights", "FP8 weights", "Check answers on your own tests", {"weight_precision": "fp8"})
    elif bits > 8:
        yield Change("weights", "INT8 weights", "Check answers on your own tests", {"weight_precision": "int8"})
    if bits > 5:
        yield Change("weights", "INT4 weights", "Check answers more closely", {"weight_precision": "int4"})


def weight_bits(scenario: Scenario, spec: ModelSpec) -> float:
    """Bits of the main weights, as far as a comparison of formats needs them. [bits]"""
    if scenario.weight_precision != "checkpoint":
        return float(weight_format(scenario.weight_precision).bits_per_value)
    if not spec.quantization.rules:
        return 16.0
    return min(float(rule.bits or weight_format(rule.weight_format).bits_per_value) for rule in spec.quantization.rules)


def _more_gpus(scenario: Scenario, spec: ModelSpec, gpu: GpuSpec) -> Iterator[Change]:
    for factor, pays in ((2, "Twice the GPUs"), (4, "Four times the GPUs"), (8, "Eight times the GPUs")):
        for tp, pp in ((scenario.tp * factor, scenario.pp), (scenario.tp, scenario.pp * factor)):
            if tp > max(gpu.max_gpus_per_node or 8, scenario.tp):
                continue
            try:
                check_layout(spec, Parallelism(tp=tp, pp=pp, dcp=scenario.dcp))
            except KvcalcError:
                continue
            count = tp * pp
            yield Change("gpus", f"{count} GPUs instead of {scenario.tp * scenario.pp}", pays, {"tp": tp, "pp": pp})
            break


def _bigger_cards(scenario: Scenario, gpu: GpuSpec) -> Iterator[Change]:
    bigger = [
        row
        for row in catalogue.gpus()
        if row.vendor == gpu.vendor and row.memory_bytes > gpu.memory_bytes * 5 // 4 and row.id != gpu.id
    ]
    data_centre = [row for row in bigger if row.form_factor == gpu.form_factor] or bigger
    for row in sorted(data_centre, key=lambda row: (row.memory_bytes, row.release_year or 0))[:3]:
        count = scenario.tp * scenario.pp
        yield Change("card", f"{count} × {row.name}", "Another card", {"gpu": row.id, "custom_gpu": None})


def engine_settings(scenario: Scenario) -> Iterator[Change]:
    if scenario.engine in ("vllm", "sglang", "tensorrt_llm") and (scenario.utilization_pct or 90) < 95:
        yield Change("share", "GPU memory share 0.95", "Less room for peaks", {"utilization_pct": 95})
    if scenario.engine == "vllm" and (scenario.max_num_seqs is None or scenario.max_num_seqs > 256):
        yield Change("cap", "Engine cap of 256 requests", "No more than 256 at once", {"max_num_seqs": 256})
    if scenario.speculative_tokens:
        yield Change("draft", "No draft tokens", "Slower for a single request", {"speculative_tokens": 0})
    if scenario.context_tokens < scenario.max_model_len:
        yield Change(
            "limit",
            f"Context limit {scenario.context_tokens:,}",
            "Longer requests are refused",
            {"max_model_len": scenario.context_tokens},
        )
