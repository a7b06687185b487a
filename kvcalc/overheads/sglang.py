"""SGLang: a static share for weights and KV; activations and graphs live in the rest.

    pool = fraction x (usable - what is gone before loading) - weights

Source: SGLang 0.5.23 ``model_executor/model_runner.py`` profile_max_num_token, ``server_args.py``.
"""

from __future__ import annotations

from fractions import Fraction
from math import floor

from kvcalc.engines.sglang import NEWEST
from kvcalc.overheads.activations import expert_workspace_bytes, forward_bytes
from kvcalc.overheads.base import Inputs, Ledger, Overhead, Plan, step_tokens, version_text
from kvcalc.overheads.tables import BeforeLoadRow, SglangBatchingRow, SglangTables, sizes_in, tables, whole_bytes
from kvcalc.units import GIB, MIB, fmt_count, fmt_gib


def plan(inputs: Inputs) -> Plan:
    """How SGLang would divide one GPU."""
    ledger = Ledger()
    known = tables().sglang
    version_text(inputs, NEWEST, ledger)
    row = _class_of(inputs, known)
    reason = "SGLang's default for a GPU of this size."
    tokens = step_tokens(inputs, row.max_num_batched_tokens, reason, ledger)
    seqs = inputs.max_num_seqs or known.max_running_requests
    if inputs.max_num_seqs is None:
        ledger.note(
            "max_num_seqs",
            f"{fmt_count(seqs)} requests",
            "The least SGLang's rule for max_running_requests gives.",
        )
    fraction = inputs.utilization
    if fraction is None:
        chunk = tokens if inputs.chunked_prefill else known.reserve.unchunked_prefill_tokens
        fraction = _auto_fraction(inputs, known, row, chunk)
        ledger.note(
            "utilization_pct",
            f"{float(fraction * 100):.1f}%",
            "SGLang's rule for an unset mem_fraction_static.",
        )
    before = next(line for line in known.before_load if line.tp_to is None or inputs.tp <= line.tp_to)
    gone = _before_load(inputs, before, ledger)
    usable = inputs.gpu.usable_bytes
    return Plan(
        utilization=fraction,
        max_num_seqs=seqs,
        max_num_batched_tokens=tokens,
        overheads=(gone,),
        low_bytes=gone.bytes if gone.measured else whole_bytes(before.low_gib),
        high_bytes=gone.bytes if gone.measured else whole_bytes(before.high_gib),
        limit_bytes=lambda overhead: overhead + floor(fraction * (usable - overhead)),
        pool_formula=f"{float(fraction):.3f} × ({fmt_gib(usable, 2)} − {fmt_gib(gone.bytes, 2)}), less weights",
        pool_source=known.source,
        kept_free_label="Left for activations and graphs",
        assumptions=tuple(ledger.entries),
        pool_share=fraction,
        beside_bytes=forward_bytes(inputs, tokens) + expert_workspace_bytes(inputs, tokens),
    )


def _before_load(inputs: Inputs, row: BeforeLoadRow, ledger: Ledger) -> Overhead:
    measured = inputs.as_measured("non_torch", "Outside PyTorch")
    if measured is not None:
        return measured
    gone = whole_bytes(row.gib)
    ledger.note("outside PyTorch", fmt_gib(gone, 2), f"{row.source}.")
    return Overhead(
        name="non_torch",
        label="Outside PyTorch",
        bytes=gone,
        formula="CUDA context and communication buffers, gone before the weights load",
        source=row.source,
    )


def _class_of(inputs: Inputs, known: SglangTables) -> SglangBatchingRow:
    return next(
        row
        for row in known.batching
        if row.memory_below_gib is None or inputs.gpu.memory_bytes < row.memory_below_gib * GIB
    )


def _auto_fraction(inputs: Inputs, known: SglangTables, row: SglangBatchingRow, tokens: int) -> Fraction:
    """The share SGLang picks itself, to three decimals as it rounds. [ratio]"""
    rule = known.reserve
    latent = any(group.kind == "latent_attention" for group in inputs.spec.layer_groups)
    buckets = sum(1 for size in sizes_in(rule.prefill_graph_ranges) if size <= tokens)
    prefill_graphs = rule.latent_prefill_graphs_mib if latent else rule.mib_per_prefill_graph * buckets
    reserved = (
        rule.base_mib
        + Fraction(rule.mib_per_prefill_token) * max(tokens, rule.smallest_prefill_tokens)
        + rule.mib_per_parallel_gpu * inputs.tp * inputs.pp
    )
    if not inputs.enforce_eager:
        seqs = row.decode_graph_seqs_tp4 if inputs.tp >= 4 else row.decode_graph_seqs
        reserved += rule.mib_per_decode_seq * seqs + prefill_graphs
    card = Fraction(inputs.gpu.memory_bytes, MIB)
    if inputs.gpu.memory_bytes > rule.large_card_from_gib * GIB:
        reserved = max(reserved, Fraction(rule.large_card_floor_mib))
    fraction = Fraction(round((card - reserved) / card, 3))
    if inputs.spec.image_tokens is not None and inputs.images:
        fraction *= Fraction(rule.vision_factor)
    return max(fraction, Fraction(0))
