"""vLLM: its share of the memory a process sees, less what its start-up profile measures.

    requested = ceil(usable x utilization)
    pool      = requested - weights - (outside PyTorch + activations + CUDA graphs)

A measured line replaces its estimate. The engine's activation figure holds the encoder cache as well.

Source: vLLM 0.32 ``vllm/v1/worker/gpu_worker.py`` determine_available_memory; constants in overheads.toml.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from kvcalc.engines.base import Version, parse_version
from kvcalc.engines.vllm_versions import NEWEST
from kvcalc.errors import Note
from kvcalc.overheads.activations import expert_workspace_bytes, forward_bytes, value_bytes
from kvcalc.overheads.base import Inputs, Ledger, Overhead, Plan, is_irregular, step_tokens, version_text
from kvcalc.overheads.tables import (
    BatchingRow,
    NonTorchRow,
    VllmTables,
    gib_bytes,
    portion,
    ratio,
    sizes_in,
    tables,
    whole_bytes,
)
from kvcalc.units import GIB, ceil_div, fmt_count, fmt_gib, fmt_percent, fmt_tokens

_POOL_SOURCE = "vLLM 0.32 vllm/v1/worker/gpu_worker.py determine_available_memory"


@dataclass(frozen=True)
class _Run:
    """The inputs with every default resolved."""

    given: Inputs
    version: Version
    utilization: Fraction
    tokens: int
    seqs: int
    known: VllmTables

    @property
    def charges_graphs(self) -> bool:
        return self.known.cuda_graphs.holds_for(self.version) and not self.given.enforce_eager

    @property
    def item_tokens(self) -> int:
        """Tokens of the largest image; 0 when pictures are off or the model takes none. [tokens]"""
        image = self.given.spec.image_tokens
        if image is None or not self.given.images:
            return 0
        return image.tokens_per_image or image.largest_image_tokens or self.known.encoder.default_item_tokens


def plan(inputs: Inputs) -> Plan:
    """How vLLM would divide one GPU. Raises ScenarioError for a version that is not one."""
    ledger = Ledger()
    run = _resolve(inputs, ledger)
    lines = (_non_torch(run, ledger), *_activation_lines(run, ledger), _graphs(run))
    overheads = tuple(line for line in lines if line is not None)
    low, high = _band(run, overheads, ledger)
    requested = ceil(inputs.gpu.usable_bytes * run.utilization)
    return Plan(
        utilization=run.utilization,
        max_num_seqs=run.seqs,
        max_num_batched_tokens=run.tokens,
        overheads=overheads,
        low_bytes=low,
        high_bytes=high,
        limit_bytes=lambda overhead: requested,
        pool_formula=f"{fmt_percent(float(run.utilization))} of {fmt_gib(inputs.gpu.usable_bytes, 2)}, "
        "less weights and overhead",
        pool_source=_POOL_SOURCE,
        kept_free_label="Kept free",
        assumptions=tuple(ledger.entries),
        notes=_start_check(run, requested),
    )


def _start_check(run: _Run, requested: int) -> tuple[Note, ...]:
    """vLLM refuses to start when its share is not free, before it counts anything else."""
    gpu = run.given.gpu
    row = next(row for row in run.known.gone_at_start if row.tp_to is None or run.given.tp <= row.tp_to)
    free = gpu.usable_bytes - whole_bytes(row.gib)
    if requested <= free or gpu.unified_memory:
        return ()
    text = f"vLLM starts only when its share, {fmt_gib(requested, 2)}, is free; an empty card has about "
    return (Note(field="utilization_pct", text=f"{text}{fmt_gib(max(0, free), 2)}. Lower the memory share."),)


def _resolve(inputs: Inputs, ledger: Ledger) -> _Run:
    known = tables().vllm
    version = parse_version(version_text(inputs, NEWEST, ledger))
    utilization = inputs.utilization
    if utilization is None:
        row = next(row for row in known.utilization if row.holds_for(version))
        utilization = Fraction(row.pct, 100)
        ledger.note("utilization_pct", f"{row.pct}%", f"vLLM's default for this release ({row.source}).")
    tokens, seqs = _batching(inputs, known, version, ledger)
    return _Run(
        given=inputs,
        version=version,
        utilization=utilization,
        tokens=tokens,
        seqs=min(seqs, tokens),
        known=known,
    )


def _batching(inputs: Inputs, known: VllmTables, version: Version, ledger: Ledger) -> tuple[int, int]:
    row = next(row for row in known.batching if _holds_for_gpu(row, inputs))
    tokens, seqs, reason = row.max_num_batched_tokens, row.max_num_seqs, f"vLLM's default for {row.text}."
    old = known.unchunked
    if old.holds_for(version):
        context = inputs.longest_prompt_tokens or inputs.spec.max_context_tokens or 0
        tokens = max(old.smallest_batch_tokens, context if context <= old.longest_unchunked_tokens else 0)
        seqs = old.max_num_seqs
        reason = "Releases up to 0.8 put a whole prompt in one batch unless the context was long."
    tokens = step_tokens(inputs, tokens, reason, ledger)
    if inputs.max_num_seqs is None:
        ledger.note("max_num_seqs", f"{fmt_count(seqs)} requests", reason)
    return tokens, inputs.max_num_seqs or seqs


def _holds_for_gpu(row: BatchingRow, inputs: Inputs) -> bool:
    if row.not_compute_capability and row.not_compute_capability == inputs.gpu.compute_capability:
        return False
    return inputs.gpu.memory_bytes >= row.memory_from_gib * GIB


def _non_torch(run: _Run, ledger: Ledger) -> Overhead:
    measured = run.given.as_measured("non_torch", "Outside PyTorch")
    if measured is not None:
        return measured
    row = next(row for row in run.known.non_torch if _non_torch_holds(row, run))
    ledger.note("outside PyTorch", fmt_gib(whole_bytes(row.gib), 2), f"{row.text}.")
    return Overhead(
        name="non_torch",
        label="Outside PyTorch",
        bytes=whole_bytes(row.gib),
        formula=f"measured: {row.text}",
        source=row.source,
    )


def _non_torch_holds(row: NonTorchRow, run: _Run) -> bool:
    gpu, tp = run.given.gpu, run.given.tp
    return (
        row.holds_for(run.version)
        and (not row.pipeline_only or (tp == 1 and run.given.pp > 1))
        and (row.tp_to is None or tp <= row.tp_to)
        and (not row.links or gpu.link in row.links)
        and (not row.vendors or gpu.vendor in row.vendors)
    )


def _activation_lines(run: _Run, ledger: Ledger) -> tuple[Overhead | None, ...]:
    """The profiling step's peak and what stays beside it; a measured peak holds the encoder cache too."""
    measured = run.given.as_measured("activations", "Activations")
    if measured is not None:
        return measured, _delta_net(run, ledger)
    return _activations(run), _encoder_cache(run, ledger), _delta_net(run, ledger)


def _activations(run: _Run) -> Overhead:
    """The peak of one profiling step: base + expert workspace + max(forward, encoder, sampler)."""
    spec, constants = run.given.spec, run.known.activation
    sampler, sampler_text = _sampler_bytes(run)
    hidden = constants.hidden_copies * run.tokens * spec.hidden_size * value_bytes(run.given)
    workspace = expert_workspace_bytes(run.given, run.tokens)
    persistent = run.version >= parse_version(constants.moe_persistent_from)
    peaks = [
        (sampler + hidden, f"{sampler_text} + {fmt_gib(hidden, 2)} hidden states"),
        (forward_bytes(run.given, run.tokens), f"forward pass of {fmt_tokens(run.tokens)} tokens"),
        (_encoder_peak_bytes(run), "vision encoder"),
        (0 if persistent else workspace, "expert workspace"),
    ]
    peak, name = max(peaks, key=lambda item: item[0])
    kept = workspace if persistent else 0
    base = whole_bytes(constants.base_gib)
    parts = [f"{fmt_gib(peak, 2)} ({name})", f"{fmt_gib(base, 2)} base"]
    if kept:
        parts.insert(1, f"{fmt_gib(kept, 2)} expert workspace")
    return Overhead(
        name="activations",
        label="Activations",
        bytes=base + kept + peak,
        formula=" + ".join(parts),
        source=constants.source,
    )


def _sampler_bytes(run: _Run) -> tuple[int, str]:
    """Bytes of the sampler's warm-up: it runs on every sequence's logits at once."""
    row = next(row for row in run.known.sampler if row.holds_for(run.version))
    per_logit = row.bytes_per_logit
    if run.given.runs_in_fp32:
        per_logit += run.known.activation.fp32_extra_bytes_per_logit
    vocab = run.given.spec.vocab_size
    text = f"sampler: {per_logit} B × {fmt_count(run.seqs)} requests × {fmt_count(vocab)} logits"
    return per_logit * run.seqs * vocab, text


def _encoder_peak_bytes(run: _Run) -> int:
    image = run.given.spec.image_tokens
    if not run.item_tokens or image is None:
        return 0
    for row in run.known.encoder.peak:
        if row.pixels_per_token_side == image.pixels_per_token_side:
            return ceil(gib_bytes(row.gib) * run.item_tokens / row.item_tokens)
    return 0


def _encoder_cache(run: _Run, ledger: Ledger) -> Overhead | None:
    if not run.item_tokens:
        return None
    ledger.note("images", "on", "The model takes pictures; turned off, their encoder and its cache cost nothing.")
    budget = max(run.tokens, run.item_tokens)
    hidden, size = run.given.spec.hidden_size, value_bytes(run.given)
    return Overhead(
        name="encoder_cache",
        label="Encoder cache",
        bytes=budget * hidden * size,
        formula=f"{fmt_tokens(budget)} image tokens × {fmt_count(hidden)} × {size} B",
        source=run.known.encoder.source,
    )


def _delta_net(run: _Run, ledger: Ledger) -> Overhead | None:
    row = run.known.delta_net_warm_up
    concerned = any(
        group.kind == "recurrent_state" and group.family in row.families for group in run.given.spec.layer_groups
    )
    capable = run.given.gpu.compute_capability == row.not_compute_capability
    measured = "non_torch" in run.given.measured
    if not concerned or capable or measured or run.given.enforce_eager or not row.holds_for(run.version):
        return None
    ledger.note(
        "linear-attention warm-up",
        fmt_gib(whole_bytes(row.gib), 2),
        f"This release keeps it; {row.text} GiB.",
    )
    return Overhead(
        name="linear_attention",
        label="Linear-attention warm-up",
        bytes=whole_bytes(row.gib),
        formula=f"measured: {row.text} GiB",
        source=row.source,
    )


def _graphs(run: _Run) -> Overhead | None:
    if not run.charges_graphs:
        return None
    measured = run.given.as_measured("cuda_graphs", "CUDA graphs")
    if measured is not None:
        return measured
    row, spec = run.known.cuda_graphs, run.given.spec
    sizes = row.small_sizes + sizes_in(row.size_ranges)
    largest = min(row.seqs_factor * run.seqs, row.largest_size)
    graphs = bisect_right(sizes, largest) + bisect_right(sizes, min(run.seqs, largest))
    layers = ceil_div(spec.num_layers, run.given.pp)
    each = ratio(row.gib_per_layer_and_graph)
    if spec.is_moe:
        each *= ratio(row.moe_factor)
    return Overhead(
        name="cuda_graphs",
        label="CUDA graphs",
        bytes=whole_bytes(row.base_gib) + ceil_div(each.numerator * layers * graphs * GIB, each.denominator),
        formula=f"{row.base_gib} GiB + {float(each):.6f} GiB × {layers} layers × {graphs} graphs",
        source=row.source,
    )


def _band(run: _Run, overheads: tuple[Overhead, ...], ledger: Ledger) -> tuple[int, int]:
    """Least and most overhead, as wide as the start-up logs ask for; what was measured has no band. [bytes/GPU]"""
    rule = run.known.band
    measured = sum(line.bytes for line in overheads if line.measured)
    if all(line.measured for line in overheads):
        return measured, measured
    estimate = sum(line.bytes for line in overheads) - measured
    low = estimate - max(whole_bytes(rule.low_gib), portion(rule.low_share, estimate))
    high = estimate + max(whole_bytes(rule.high_gib), portion(rule.high_share, estimate))
    if run.known.cuda_graphs.holds_for(run.version):
        high = max(high, estimate + portion(rule.graphs_high_share, estimate))
    if run.given.tp > 1:
        low, high = low - whole_bytes(rule.tp_gib), high + whole_bytes(rule.tp_gib)
    if is_irregular(run.given.spec):
        high = max(high, estimate + whole_bytes(rule.hybrid_high_gib))
        ledger.note(
            "overhead band",
            f"up to {rule.hybrid_high_gib} GiB more",
            "Recurrent and sparse-attention models load with more than any rule predicts; compare with a start-up log.",
        )
    if run.given.gpu.unified_memory:
        low, high = low - whole_bytes(rule.unified_low_gib), high + whole_bytes(rule.unified_high_gib)
        ledger.note(
            "overhead band",
            f"up to {rule.unified_high_gib} GiB more",
            "Memory is shared with the host: page cache and other processes count as the engine's.",
        )
    return measured + max(0, low), measured + high
