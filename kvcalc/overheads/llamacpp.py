"""llama.cpp: no pool and no fraction. What weights, compute buffer and context leave can hold n_ctx.

    compute buffer = n_ubatch x 4 x (vocabulary + hidden)          with flash attention

Source: compute-buffer lines of llama.cpp start-up logs; constants in overheads.toml.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from kvcalc.engines.llamacpp import NEWEST
from kvcalc.overheads.base import Inputs, Ledger, Overhead, Plan, version_text
from kvcalc.overheads.tables import LlamaCppTables, ratio, tables, whole_bytes
from kvcalc.units import fmt_count, fmt_gib, fmt_percent, fmt_tokens


def plan(inputs: Inputs) -> Plan:
    """How llama.cpp would use one GPU, flash attention on."""
    ledger = Ledger()
    known = tables().llamacpp
    version_text(inputs, NEWEST, ledger)
    tokens = inputs.max_num_batched_tokens or known.ubatch_tokens
    if inputs.max_num_batched_tokens is None:
        ledger.note(
            "max_num_batched_tokens",
            f"{fmt_tokens(tokens)} tokens",
            "llama.cpp's default physical batch, n_ubatch.",
        )
    if inputs.max_num_seqs is None:
        ledger.note("max_num_seqs", f"{fmt_count(known.slots)} requests", "Slots of the server's default.")
    spec = inputs.spec
    lines = (_context(inputs, known, ledger), _buffer(inputs, known, tokens, ledger))
    buffer = lines[1]
    share = inputs.utilization if inputs.utilization is not None else Fraction(1)
    requested = ceil(inputs.gpu.usable_bytes * share)
    regular = all(group.kind == "full_attention" for group in spec.layer_groups)
    widest = 1 if regular or buffer.measured else ratio(known.high_factor)
    context = lines[0].bytes if lines[0].measured else None
    return Plan(
        utilization=share,
        max_num_seqs=inputs.max_num_seqs or known.slots,
        max_num_batched_tokens=tokens,
        overheads=lines,
        low_bytes=(whole_bytes(known.context_low_gib) if context is None else context) + buffer.bytes,
        high_bytes=(whole_bytes(known.context_high_gib) if context is None else context) + ceil(buffer.bytes * widest),
        limit_bytes=lambda overhead: requested,
        pool_formula=f"{fmt_percent(float(share))} of {fmt_gib(inputs.gpu.usable_bytes, 2)}, less weights and overhead",
        pool_source="llama.cpp allocates the whole context up front; there is no fraction",
        kept_free_label="Kept free",
        assumptions=tuple(ledger.entries),
    )


def _context(inputs: Inputs, known: LlamaCppTables, ledger: Ledger) -> Overhead:
    measured = inputs.as_measured("non_torch", "CUDA context")
    if measured is not None:
        return measured
    context = whole_bytes(known.context_gib)
    ledger.note("CUDA context", fmt_gib(context, 2), "Never printed; 0.3 to 0.6 GiB per GPU.")
    return Overhead(
        name="non_torch",
        label="CUDA context",
        bytes=context,
        formula=f"{known.context_low_gib} to {known.context_high_gib} GiB",
        source=known.source,
    )


def _buffer(inputs: Inputs, known: LlamaCppTables, tokens: int, ledger: Ledger) -> Overhead:
    measured = inputs.as_measured("activations", "Compute buffer")
    if measured is not None:
        return measured
    ledger.note("flash attention", "on", "Without it the compute buffer grows with the context.")
    spec = inputs.spec
    return Overhead(
        name="activations",
        label="Compute buffer",
        bytes=tokens * known.bytes_per_ubatch_value * (spec.vocab_size + spec.hidden_size),
        formula=f"{fmt_tokens(tokens)} × {known.bytes_per_ubatch_value} B × "
        f"({fmt_count(spec.vocab_size)} + {fmt_count(spec.hidden_size)})",
        source=known.source,
    )
