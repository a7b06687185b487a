"""The arithmetic: each figure of a report as steps, formula first, then the same with the numbers put in."""

from __future__ import annotations

from fractions import Fraction

from kvcalc.arithmetic import Section, Step
from kvcalc.explain_memory import memory_section
from kvcalc.explain_speed import speed_sections
from kvcalc.layers import (
    ChunkedAttention,
    CompressedAttention,
    CrossAttention,
    FullAttention,
    IndexerKeys,
    LatentAttention,
    LayerGroup,
    RecurrentState,
    SlidingAttention,
)
from kvcalc.model_spec import ModelSpec
from kvcalc.precision import kv_format
from kvcalc.report import Report
from kvcalc.scenario import spec_of
from kvcalc.units import (
    fmt_bits,
    fmt_bytes,
    fmt_count,
    fmt_gib,
    fmt_ratio,
    fmt_tokens,
)

__all__ = ["Section", "Step", "steps"]

_PART_TITLES = {"lm_head": "Output head", "dense_ffn": "Feed-forward", "mtp": "Draft layers"}
_CACHE_SOURCE = "METHODOLOGY, KV cache by kind"


def steps(report: Report) -> tuple[Section, ...]:
    """Sections for requests at once, speed, traffic, longest context, memory and weights, as the report has them."""
    spec = spec_of(report.scenario)
    sections = [_requests(report, spec)]
    sections += speed_sections(report)
    sections.append(_longest(report))
    sections.append(memory_section(report))
    sections.append(_weights(report))
    return tuple(sections)


def _requests(report: Report, spec: ModelSpec) -> Section:
    lines = [*_per_kind(report, spec), _request(report), _per_gpu(report), *_pool(report), *_blocks(report)]
    return Section(title=f"Requests at once: {fmt_count(report.concurrency)}", steps=tuple(lines))


def _per_kind(report: Report, spec: ModelSpec) -> list[Step]:
    """KV per token (or per request) of each layer group, over the whole model."""
    kv = kv_format(report.scenario.kv_precision, declared=spec.quantization.kv_precision)
    rows = []
    for group in spec.layer_groups:
        shape = _shape(group)
        if shape is None:
            continue
        formula, numbers = shape
        bits = Fraction(group.bits_per_token(kv, tp=1)) * len(group.layers)
        rows.append(
            Step(
                title=f"KV per token, {group.title}" if len(spec.layer_groups) > 1 else "KV per token, all GPUs",
                formula=f"{formula} × bytes ({kv.label})",
                numbers=f"{numbers} × {_bytes_text(kv.row_bits(128) / 128)}",
                value=f"{fmt_bytes(_whole(bits), exact=True)} = {fmt_bytes(_whole(bits))}",
                source=_CACHE_SOURCE,
            )
        )
    for group in spec.layer_groups:
        if isinstance(group, RecurrentState):
            rows.append(_state(report, group))
        elif isinstance(group, CrossAttention) and group.source_tokens:
            rows.append(_cross(group, fmt_bytes(_fixed(report, group))))
    return rows


def _whole(bits: Fraction) -> int:
    return -(-bits.numerator // (8 * bits.denominator))


def _bytes_text(bits: Fraction) -> str:
    return fmt_ratio(float(bits / 8))


def _shape(group: LayerGroup) -> tuple[str, str] | None:
    """The formula of one token's values, and the same in numbers; None for groups without tokens."""
    layers = len(group.layers)
    if isinstance(group, (FullAttention, SlidingAttention, ChunkedAttention)):
        if group.key_dim == group.value_dim:
            return "2 × layers × KV heads × head size", f"2 × {layers} × {group.kv_heads} × {group.key_dim}"
        widths = f"({group.key_dim} + {group.value_dim})"
        return "layers × KV heads × (key + value size)", f"{layers} × {group.kv_heads} × {widths}"
    if isinstance(group, LatentAttention):
        return "layers × (latent + rotary key)", f"{layers} × ({group.latent_dim} + {group.rope_dim})"
    if isinstance(group, IndexerKeys):
        return "layers × (index key in FP8 + 4 B scale)", f"{layers} × ({group.key_dim} + 4) B; not"
    if isinstance(group, CompressedAttention) and group.ratio:
        return (
            "layers × latent ÷ tokens per latent",
            f"{layers} × {group.latent_dim + group.rope_dim} ÷ {group.ratio}",
        )
    return None


def _fixed(report: Report, group: LayerGroup) -> int:
    return next(row.fixed_bytes for row in report.groups if row.kind == group.kind)


def _state(report: Report, group: RecurrentState) -> Step:
    return Step(
        title=f"State per request, {group.family.replace('_', ' ')}",
        formula="layers × (convolution rows × channels + state values), each in its precision, each GPU",
        numbers=f"{len(group.layers)} × ({group.conv_tokens} × {group.conv_channels:,} + {group.state_values:,})",
        value=fmt_bytes(_fixed(report, group)),
        source=_CACHE_SOURCE,
    )


def _cross(group: CrossAttention, value: str) -> Step:
    return Step(
        title="Cross attention per request",
        formula="layers × source tokens × KV heads × (key + value size) × bytes, each GPU",
        numbers=f"{len(group.layers)} × {group.source_tokens:,} × {group.kv_heads} × "
        f"({group.key_dim} + {group.value_dim})",
        value=value,
        source=_CACHE_SOURCE,
    )


def _request(report: Report) -> Step:
    context = fmt_tokens(report.context_tokens)
    if len(report.groups) == 1 and not report.kv_fixed_bytes and not report.knees:
        numbers = f"{context} × {fmt_bytes(report.kv_bytes_per_token, exact=True)}"
    else:
        kept = " + ".join(f"{row.title} {fmt_bytes(row.total_bytes)}" for row in report.groups if row.total_bytes)
        numbers = f"at {context} tokens, each GPU: {kept}"
    return Step(
        title="KV per request, all GPUs",
        formula="tokens kept × KV per token, by kind, plus what is held whatever the length",
        numbers=numbers,
        value=fmt_gib(report.kv_bytes_per_request, 2),
        source=_CACHE_SOURCE,
    )


def _per_gpu(report: Report) -> Step:
    scenario = report.scenario
    repeats = f", {fmt_ratio(report.replication_ratio)} copies" if report.replication_ratio > 1 else ""
    return Step(
        title="KV per request, busiest GPU",
        formula="heads are split over TP and repeat past their number; the busiest pipeline stage counts",
        numbers=f"TP {scenario.tp}, PP {scenario.pp}, DCP {scenario.dcp}{repeats}",
        value=fmt_gib(report.kv_bytes_per_request_per_gpu, 2),
        source="METHODOLOGY, Parallelism",
    )


def _pool(report: Report) -> list[Step]:
    budget = report.budget
    named = [line for line in budget.lines if line.name not in ("kv_pool", "kept_free")]
    free = sum(line.bytes for line in budget.lines if line.name == "kept_free")
    minus = " − ".join(fmt_gib(line.bytes, 2).removesuffix(" GiB") for line in named)
    names = " − ".join(line.label.lower() for line in named)
    return [
        Step(
            title="KV pool, each GPU",
            formula=f"card − kept free − {names}",
            numbers=f"{fmt_gib(budget.memory_bytes, 2).removesuffix(' GiB')} − "
            f"{fmt_gib(free, 2).removesuffix(' GiB')} − {minus}",
            value=fmt_gib(budget.kv_pool_bytes, 2),
            source="METHODOLOGY, Memory budget",
        )
    ]


def _blocks(report: Report) -> list[Step]:
    capacity = report.capacity
    held = report.reserved_bytes_per_request_per_gpu // capacity.bytes_per_block if capacity.bytes_per_block else 0
    pool = fmt_bytes(report.budget.kv_pool_bytes, exact=True)
    return [
        Step(
            title="Blocks in the pool",
            formula="pool ÷ bytes per block, rounded down",
            numbers=f"{pool} ÷ {fmt_bytes(capacity.bytes_per_block, exact=True)}",
            value=fmt_count(capacity.num_blocks),
            source="METHODOLOGY, Engines",
        ),
        Step(
            title="Blocks per request",
            formula="tokens kept ÷ tokens per block, rounded up, over the block tables",
            numbers=f"{fmt_tokens(report.context_tokens)} tokens in blocks of {fmt_tokens(capacity.block_size)}",
            value=fmt_count(held),
            source="METHODOLOGY, Engines",
        ),
        Step(
            title="Requests the KV pool holds",
            formula="blocks the engine can hand out ÷ blocks per request, rounded down",
            numbers=f"{fmt_count(capacity.num_blocks)} ÷ {fmt_count(held)}",
            value=fmt_count(report.capacities.reserved_requests),
            source="METHODOLOGY, Engines",
        ),
        Step(
            title="Requests at once",
            formula="the smallest limit",
            numbers=", ".join(f"{limit.title} {fmt_count(limit.requests)}" for limit in report.limits),
            value=fmt_count(report.concurrency),
            source="METHODOLOGY, What binds",
        ),
    ]


def _longest(report: Report) -> Section:
    limit = report.model.max_context_tokens
    stated = "none stated" if limit is None else fmt_tokens(limit)
    return Section(
        title=f"Longest context: {fmt_tokens(report.longest_context_tokens)} tokens",
        steps=(
            Step(
                title="Longest single request",
                formula="most tokens whose blocks the pool holds, at most the model's limit",
                numbers=f"pool {fmt_tokens(report.capacity.longest_context_that_fits)}, model {stated}",
                value=f"{fmt_tokens(report.longest_context_tokens)} tokens",
                source="METHODOLOGY, Engines",
            ),
        ),
    )


def _weights(report: Report) -> Section:
    lines = tuple(
        Step(
            title=_PART_TITLES.get(line.part, line.part.replace("_", " ").capitalize()),
            formula="parameters × bits ÷ 8, the share of this GPU",
            numbers=f"{fmt_count(line.parameters)} × {fmt_bits(line.bits_per_weight)} bits",
            value=fmt_gib(line.bytes, 2),
            source="METHODOLOGY, Weights",
        )
        for line in report.weight_lines
    )
    if report.scenario.weights_mib is not None:
        counted = sum(line.bytes for line in report.weight_lines)
        measured = Step(
            title="As measured",
            formula="the engine's log, the file's list of tensors, or typed; in place of the sum",
            numbers=f"the sum is {fmt_gib(counted, 2)}",
            value=fmt_gib(report.budget.weights_bytes, 2),
            source="METHODOLOGY, Memory budget",
        )
        lines = (*lines, measured)
    return Section(title=f"Weights, busiest GPU: {fmt_gib(report.budget.weights_bytes, 2)}", steps=lines)
