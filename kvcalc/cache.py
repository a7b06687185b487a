"""Ideal KV cache: only the bytes that attention needs, for one sequence, on the busiest GPU."""

from __future__ import annotations

from fractions import Fraction

from kvcalc.errors import Record, check_whole
from kvcalc.layers import LayerGroup
from kvcalc.model_spec import ModelSpec
from kvcalc.parallelism import Parallelism, check, stages
from kvcalc.precision import KvFormat, StateFormat, kv_format, state_format
from kvcalc.units import ceil_bits, ceil_div


class GroupBytes(Record):
    """One layer group's share of a sequence, on the busiest GPU."""

    kind: str
    """Kind of the group."""
    title: str
    """Kind as a person calls it."""
    layers: int
    """Layers of the group on this GPU. [layers]"""
    fixed_bytes: int
    """Bytes held whatever the length. [bytes/GPU]"""
    bytes_per_token: Fraction
    """Bytes one more token costs while the group still grows. [bytes/token/GPU]"""
    kept_tokens: int
    """Tokens kept at the context asked for. [tokens]"""
    total_bytes: int
    """Bytes of this group at that context, rounded up. [bytes/GPU]"""


def check_layout(spec: ModelSpec, layout: Parallelism, *, cache_alone: bool = False) -> None:
    """Refuse a layout this model cannot run with. Raises ScenarioError.

    cache_alone leaves out the query heads: they decide whether an engine starts, not what a token keeps.
    """
    groups = spec.layer_groups
    heads = {pair for group in groups for pair in group.heads_that_split}
    if not cache_alone:
        heads |= {pair for group in groups for pair in group.query_heads_that_split}
    repeated = {pair for group in groups for pair in group.heads_that_repeat}
    check(
        layout,
        num_layers=spec.num_layers,
        heads=sorted(heads),
        repeated_heads=sorted(repeated),
        num_experts=spec.num_experts,
    )


def _stage_bits(
    groups: tuple[LayerGroup, ...],
    layers: range,
    *,
    context_tokens: int,
    kv: KvFormat,
    state: StateFormat,
    tp: int,
    dcp: int,
) -> Fraction | int:
    bits: Fraction | int = 0
    for group in groups:
        count = sum(1 for index in group.layers if index in layers) if len(layers) < _ALL else len(group.layers)
        if not count:
            continue
        tokens = group.kept_tokens(context_tokens)
        if dcp > 1 and group.splits_over_dcp():
            tokens = ceil_div(tokens, dcp)
        bits += count * (tokens * group.bits_per_token(kv, tp=tp) + 8 * group.fixed_bytes(kv, state, tp=tp))
    return bits


_ALL = 10**9


def kv_bytes_per_sequence(
    spec: ModelSpec,
    *,
    context_tokens: int,
    kv_precision: str = "auto",
    state_precision: str = "auto",
    tp: int = 1,
    pp: int = 1,
    dcp: int = 1,
) -> int:
    """Bytes of cache one sequence needs on the busiest GPU: the ideal, before any engine's rounding.

    Equation   max over stages of sum over groups of
               layers x (kept_tokens(context) x bits_per_token(tp) / 8 + fixed_bytes(tp))
    Shapes     GQA [2, S, L, K, H]; MLA [S, L, R + P]

    Parameters
    ----------
    context_tokens : prompt plus generated so far. [tokens]
    kv_precision : KV format id; 'auto' is what the checkpoint declares, else 16-bit.
    state_precision : precision of recurrent states; 'auto' is what the model declares, else 16-bit.
    tp, pp, dcp : tensor, pipeline and decode context parallel sizes. [GPUs]

    Returns
    -------
    int. Rounded up to a whole byte once. [bytes/GPU]

    Raises
    ------
    ScenarioError    context_tokens below 0, or a layout the cached heads do not allow. Query heads are the engine's
                     concern: ``capacity`` and ``weight_bytes`` refuse a TP that does not divide them.
    CatalogueError   an unknown precision id.

    Source
    ------
    config_keys of each model family; DeepSeek-V2 (arXiv 2405.04434) for MLA.
    """
    check_whole("context_tokens", context_tokens, 0, hint="Count prompt and output.")
    check_layout(spec, Parallelism(tp=tp, pp=pp, dcp=dcp), cache_alone=True)
    kv = kv_format(kv_precision, declared=spec.quantization.kv_precision)
    state = state_format(state_precision)
    parts = (range(_ALL),) if pp == 1 else stages(spec.num_layers, pp)
    return max(
        ceil_bits(
            Fraction(
                _stage_bits(spec.layer_groups, part, context_tokens=context_tokens, kv=kv, state=state, tp=tp, dcp=dcp)
            )
        )
        for part in parts
    )


def bytes_by_group(
    spec: ModelSpec,
    *,
    context_tokens: int,
    kv_precision: str = "auto",
    state_precision: str = "auto",
    tp: int = 1,
    pp: int = 1,
    dcp: int = 1,
) -> tuple[GroupBytes, ...]:
    """The same bytes, group by group, for the busiest stage. Rounding is per group, for showing."""
    kv = kv_format(kv_precision, declared=spec.quantization.kv_precision)
    state = state_format(state_precision)
    stage = busiest_stage(
        spec, context_tokens=context_tokens, kv=kv, state=state, layout=Parallelism(tp=tp, pp=pp, dcp=dcp)
    )
    rows = []
    for group in spec.layer_groups:
        count = sum(1 for index in group.layers if index in stage)
        tokens = group.kept_tokens(context_tokens)
        if dcp > 1 and group.splits_over_dcp():
            tokens = ceil_div(tokens, dcp)
        per_token = Fraction(group.bits_per_token(kv, tp=tp)) * count / 8
        fixed = count * group.fixed_bytes(kv, state, tp=tp)
        rows.append(
            GroupBytes(
                kind=group.kind,
                title=group.title,
                layers=count,
                fixed_bytes=fixed,
                bytes_per_token=per_token,
                kept_tokens=tokens,
                total_bytes=ceil_bits(tokens * per_token * 8) + fixed,
            )
        )
    return tuple(rows)


def busiest_stage(
    spec: ModelSpec, *, context_tokens: int, kv: KvFormat, state: StateFormat, layout: Parallelism
) -> range:
    """Layers of the pipeline stage that holds the most cache for one sequence."""
    if layout.pp == 1:
        return range(spec.num_layers)
    return max(
        stages(spec.num_layers, layout.pp),
        key=lambda part: _stage_bits(
            spec.layer_groups,
            part,
            context_tokens=context_tokens,
            kv=kv,
            state=state,
            tp=layout.tp,
            dcp=layout.dcp,
        ),
    )


def knees(spec: ModelSpec) -> tuple[tuple[str, int], ...]:
    """(kind, tokens) where a group stops growing, ascending and without repeats."""
    found = {(group.title, group.knee_tokens) for group in spec.layer_groups if group.knee_tokens is not None}
    return tuple(sorted(((title, tokens) for title, tokens in found), key=lambda pair: pair[1]))
