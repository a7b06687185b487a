"""TensorRT-LLM: a share of what is left after a dry run.

    pool = fraction x (usable - weights - peak of the dry run over the weights)

Source: TensorRT-LLM ``_torch/pyexecutor/_util.py`` KvCacheCreator, KvCacheConfig.free_gpu_memory_fraction.
"""

from __future__ import annotations

from fractions import Fraction
from math import floor

from kvcalc.engines.tensorrt_llm import NEWEST
from kvcalc.overheads.base import Inputs, Ledger, Overhead, Plan, step_tokens, version_text
from kvcalc.overheads.tables import TensorRtTables, tables, whole_bytes
from kvcalc.units import fmt_count, fmt_gib, fmt_percent


def plan(inputs: Inputs) -> Plan:
    """How TensorRT-LLM would divide one GPU. The peak is rough: hardly any is published."""
    ledger = Ledger()
    known = tables().tensorrt_llm
    version_text(inputs, NEWEST, ledger)
    fraction = inputs.utilization
    if fraction is None:
        fraction = Fraction(known.free_pct, 100)
        ledger.note(
            "utilization_pct",
            f"{known.free_pct}%",
            "TensorRT-LLM's default share of what is left after loading.",
        )
    tokens = step_tokens(inputs, known.max_num_batched_tokens, "The engine's default.", ledger)
    if inputs.max_num_seqs is None:
        ledger.note("max_num_seqs", f"{fmt_count(known.max_num_seqs)} requests", "The engine's default.")
    peak = _peak(inputs, known, ledger)
    outside = inputs.as_measured("non_torch", "Outside PyTorch")
    lines = (peak,) if outside is None else (outside, peak)
    certain = sum(line.bytes for line in lines if line.measured)
    usable, weights, share = inputs.gpu.usable_bytes, inputs.weights_bytes, fraction
    return Plan(
        utilization=fraction,
        max_num_seqs=inputs.max_num_seqs or known.max_num_seqs,
        max_num_batched_tokens=tokens,
        overheads=lines,
        low_bytes=certain + (0 if peak.measured else whole_bytes(known.overhead_low_gib)),
        high_bytes=certain + (0 if peak.measured else whole_bytes(known.overhead_high_gib)),
        limit_bytes=lambda overhead: weights + overhead + _share_of(usable - weights - overhead, share),
        pool_formula=f"{fmt_percent(float(fraction))} of what {fmt_gib(usable, 2)} leaves after weights and overhead",
        pool_source=known.source,
        kept_free_label="Kept free",
        assumptions=tuple(ledger.entries),
        pool_share=fraction,
    )


def _peak(inputs: Inputs, known: TensorRtTables, ledger: Ledger) -> Overhead:
    """The dry run's peak over the weights."""
    label = "Runtime and activations"
    measured = inputs.as_measured("activations", label)
    if measured is not None:
        return measured
    peak = whole_bytes(known.overhead_gib)
    ledger.note(
        "activations",
        fmt_gib(peak, 1),
        f"Rough: published logs have {known.overhead_low_gib} to {known.overhead_high_gib} GiB.",
    )
    return Overhead(
        name="activations",
        label=label,
        bytes=peak,
        formula="peak of a dry run over the weights, rough",
        source=known.source,
    )


def _share_of(left: int, fraction: Fraction) -> int:
    """The fraction of what is left; all of it when nothing is, so that the shortfall is whole. [bytes]"""
    return floor(fraction * left) if left > 0 else left
