"""The arithmetic: each figure of a report as steps, formula first, then the same with the numbers put in."""

from __future__ import annotations

from fractions import Fraction

from kvcalc.arithmetic import Section, Step
from kvcalc.explain_memory import memory_section
from kvcalc.explain_speed import speed_sections
from kvcalc.inputs import resolve
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
from kvcalc.precision import KvFormat, kv_format, state_format
from kvcalc.report import Report
from kvcalc.scenario import spec_of
from kvcalc.units import (
    fmt_bits,
    fmt_bytes,
    fmt_count,
    fmt_gib,
    fmt_ratio,
    fmt_tokens,
    in_sentence,
)

__all__ = ["Section", "Step", "steps"]

_PART_TITLES = {"lm_head": "Output head", "dense_ffn": "Feed-forward", "mtp": "Draft layers"}
_CACHE_SOURCE = "METHODOLOGY, KV cache by kind"
_ENGINES_SOURCE = "METHODOLOGY, Engines"


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
    lines = [*_per_kind(report, spec), _request(report, spec), _per_gpu(report, spec), *_pool(report), *_blocks(report)]
    return Section(title=f"Requests at once: {fmt_count(report.concurrency)}", steps=tuple(lines))


def _per_kind(report: Report, spec: ModelSpec) -> list[Step]:
    """KV per token (or per request) of each layer group, over the whole model."""
    kv = kv_format(report.scenario.kv_precision, declared=spec.quantization.kv_precision)
    rows = []
    for group in spec.layer_groups:
        shape = _shape(group)
        if shape is None:
            continue
        formula, numbers, values = shape
        bits = Fraction(group.bits_per_token(kv, tp=1)) * len(group.layers)
        each = bits / 8 / values
        rows.append(
            Step(
                title=f"KV per token, {group.title}" if len(spec.layer_groups) > 1 else "KV per token, all GPUs",
                formula=f"{formula} × bytes ({_stored(group, kv)})",
                numbers=f"{numbers} × {fmt_ratio(float(each), 6)}",
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


def _stored(group: LayerGroup, kv: KvFormat) -> str:
    """What one value takes its bytes from."""
    if isinstance(group, IndexerKeys):
        return f"{group.key_bits} bits and a scale for each key"
    scaled = kv.group_size or kv.row_scale_bits
    return f"{kv.label}{', scales included' if scaled else ''}"


def _shape(group: LayerGroup) -> tuple[str, str, Fraction] | None:
    """The formula of one token's values, the same in numbers, and their count; None for groups without tokens."""
    layers = len(group.layers)
    if isinstance(group, (FullAttention, SlidingAttention, ChunkedAttention)):
        values = Fraction(layers * group.kv_heads * (group.key_dim + group.value_dim))
        if group.key_dim == group.value_dim:
            numbers = f"2 × {layers} × {group.kv_heads} × {group.key_dim}"
            return "2 × layers × KV heads × head size", numbers, values
        widths = f"({group.key_dim} + {group.value_dim})"
        return "layers × KV heads × (key + value size)", f"{layers} × {group.kv_heads} × {widths}", values
    if isinstance(group, LatentAttention):
        values = Fraction(layers * (group.latent_dim + group.rope_dim))
        return "layers × (latent + rotary key)", f"{layers} × ({group.latent_dim} + {group.rope_dim})", values
    if isinstance(group, IndexerKeys):
        values = Fraction(layers * group.key_dim, group.tokens_per_key)
        if group.tokens_per_key == 1:
            return "layers × index key", f"{layers} × {group.key_dim}", values
        return "layers × index key ÷ tokens per key", f"{layers} × {group.key_dim} ÷ {group.tokens_per_key}", values
    if isinstance(group, CompressedAttention) and group.ratio:
        width = group.latent_dim + group.rope_dim
        values = Fraction(layers * (width + group.index_dim), group.ratio)
        if not group.index_dim:
            return "layers × latent ÷ tokens per latent", f"{layers} × {width} ÷ {group.ratio}", values
        numbers = f"{layers} × ({width} + {group.index_dim}) ÷ {group.ratio}"
        return "layers × (latent + index key) ÷ tokens per latent", numbers, values
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


def _request(report: Report, spec: ModelSpec) -> Step:
    """One request over the replica: every kind of layer, times the copies that tensor parallelism keeps."""
    kv = kv_format(report.scenario.kv_precision, declared=spec.quantization.kv_precision)
    state = state_format(report.scenario.state_precision)
    terms = []
    for group in spec.layer_groups:
        kept, layers = group.kept_tokens(report.context_tokens), len(group.layers)
        each = _whole(Fraction(group.bits_per_token(kv, tp=1)) * layers)
        terms += [f"{fmt_tokens(kept)} × {fmt_bytes(each, exact=True)}"] if kept and each else []
        fixed = layers * group.fixed_bytes(kv, state, tp=1)
        terms += [fmt_bytes(fixed, exact=True)] if fixed else []
    numbers = " + ".join(terms)
    if report.replication_ratio > 1:
        numbers = f"{f'({numbers})' if len(terms) > 1 else numbers} × {fmt_ratio(report.replication_ratio)} copies"
    return Step(
        title="KV per request, all GPUs",
        formula="tokens kept × KV per token, by kind, plus what is held whatever the length",
        numbers=numbers,
        value=fmt_gib(report.kv_bytes_per_request, 2),
        source=_CACHE_SOURCE,
    )


def _per_gpu(report: Report, spec: ModelSpec) -> Step:
    """The share of one request on the GPU that holds most of it."""
    held = [row for row in report.groups if row.total_bytes]
    if len(held) > 1:
        formula = "the same on one GPU, by kind: heads are split over TP and repeat past their number"
        numbers = " + ".join(f"{row.title} {fmt_bytes(row.total_bytes)}" for row in held)
    else:
        formula = "heads are split over TP and repeat past their number; the busiest pipeline stage counts"
        numbers = f"{fmt_gib(report.kv_bytes_per_request, 2)} ÷ TP {report.scenario.tp}"
        if report.scenario.pp > 1 and held:
            layers = sum(len(group.layers) for group in spec.layer_groups if group.kind == held[0].kind)
            numbers += f" × {held[0].layers} of {layers} layers"
    return Step(
        title="KV per request, busiest GPU",
        formula=formula,
        numbers=numbers,
        value=fmt_gib(report.kv_bytes_per_request_per_gpu, 2),
        source="METHODOLOGY, Parallelism",
    )


def _pool(report: Report) -> list[Step]:
    budget = report.budget
    named = [line for line in budget.lines if line.name not in ("kv_pool", "kept_free")]
    free = sum(line.bytes for line in budget.lines if line.name == "kept_free")
    # What is over the card is negative: it is put back, so that the pool comes to 0.
    taken = "".join(f" {'−' if line.bytes >= 0 else '+'} {_gib(abs(line.bytes))}" for line in named)
    names = "".join(f" {'−' if line.bytes >= 0 else '+'} {in_sentence(line.label)}" for line in named)
    return [
        Step(
            title="KV pool, each GPU",
            formula=f"card − kept free{names}",
            numbers=f"{_gib(budget.memory_bytes)} − {_gib(free)}{taken}",
            value=fmt_gib(budget.kv_pool_bytes, 2),
            source="METHODOLOGY, Memory budget",
        )
    ]


def _gib(size: int) -> str:
    return fmt_gib(size, 2).removesuffix(" GiB")


def _blocks(report: Report) -> list[Step]:
    capacity, plan = report.capacity, resolve(report.scenario).plan
    pool, context = report.budget.kv_pool_bytes, report.context_tokens
    lines = []
    if plan.has_one_pool and capacity.bytes_per_block:
        lines = [
            Step(
                title="Blocks in the pool",
                formula="pool ÷ bytes per block, rounded down",
                numbers=f"{fmt_bytes(pool, exact=True)} ÷ {fmt_bytes(capacity.bytes_per_block, exact=True)}",
                value=fmt_count(capacity.num_blocks),
                source=_ENGINES_SOURCE,
            ),
            Step(
                title="Blocks per request",
                formula="tokens kept ÷ tokens per block, rounded up, over the block tables",
                numbers=f"{fmt_tokens(context)} tokens in blocks of {fmt_tokens(capacity.block_size)}",
                value=fmt_count(plan.reserved_bytes(context) // capacity.bytes_per_block),
                source=_ENGINES_SOURCE,
            ),
        ]
    formula, numbers = plan.handed_out(pool, context)
    return [
        *lines,
        Step(
            title="Requests the KV pool holds",
            formula=formula,
            numbers=numbers,
            value=fmt_count(report.capacities.reserved_requests),
            source=_ENGINES_SOURCE,
        ),
        Step(
            title="Requests at once",
            formula="the smallest limit" if report.fits else "none: the verdict says why",
            numbers="; ".join(f"{limit.title}: {fmt_count(limit.requests)}" for limit in report.limits),
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
