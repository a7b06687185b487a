"""What each lever makes of the KV of all sessions, one after the other, against what the GPUs hold."""

from __future__ import annotations

from typing import Literal

from kvcalc.cache import kv_bytes_per_sequence
from kvcalc.errors import Record
from kvcalc.evaluation import Answer
from kvcalc.inputs import Inputs
from kvcalc.kv_formats import smaller_formats
from kvcalc.layers import (
    ChunkedAttention,
    CompressedAttention,
    FullAttention,
    LatentAttention,
    LayerGroup,
    SlidingAttention,
)
from kvcalc.model_spec import ModelSpec
from kvcalc.precision import kv_format
from kvcalc.units import fmt_count, fmt_gib

StepId = Literal["every_head", "heads", "windows", "kv_now", "repeats", "kv_next", "offload"]
_UNCOMPRESSED_DIM = 128
"""Head width of DeepSeek-V2 and V3 before compression (arXiv 2405.04434 section 3.1.2)."""


class WaterfallStep(Record):
    """One bar: what a lever changes."""

    id: StepId
    """Which."""
    family: Literal["architecture", "quantisation", "layout", "offload"]
    """What kind of lever it is."""
    title: str
    """Name of the row."""
    before_bytes: int
    """KV of all sessions before it, over all GPUs. [bytes]"""
    after_bytes: int
    """The same after it. [bytes]"""
    is_applied: bool
    """Whether the scenario already has it."""

    @property
    def factor(self) -> float:
        """How many times smaller it makes the KV; below 1 when it makes it larger. [ratio]"""
        return self.before_bytes / self.after_bytes if self.after_bytes else 1.0


class Waterfall(Record):
    """KV of a number of sessions, lever by lever."""

    sessions: int
    """Sessions that keep their KV. [requests]"""
    active: int
    """Those of them that run at this moment. [requests]"""
    steps: tuple[WaterfallStep, ...]
    """In order; the first is a starting line with nothing before it."""
    now_bytes: int
    """KV of all sessions in this scenario. [bytes]"""
    end_bytes: int
    """KV after the last step. [bytes]"""
    pool_bytes: int
    """What the GPUs hold, all replicas. [bytes]"""
    sentence: str
    """The same in one sentence."""

    @property
    def spare_bytes(self) -> int:
        """What the GPUs hold beyond the last step; negative when it is still too much. [bytes]"""
        return self.pool_bytes - self.end_bytes


def waterfall(found: Answer, *, sessions: int | None = None, active: int | None = None) -> Waterfall:
    """KV of these sessions from a model whose heads all keep their own, down to what levers are left.

    sessions  sessions that keep their KV; None is the scenario's target, else what runs at once [requests]
    active    those that run at this moment; None is all of them, which leaves nothing to offload [requests]
    """
    inputs, scenario = found.inputs, found.inputs.scenario
    count = sessions or scenario.target_requests or max(1, found.concurrency * scenario.replicas)
    running = min(count, count if active is None else active)
    sizes = _architecture(inputs)
    steps = [_step("every_head", "architecture", "If every head kept its own KV", 0, sizes[0][1] * count)]
    for (_, before), (id, after, title) in zip(_pairs(sizes), sizes[1:], strict=True):
        family: Literal["architecture", "quantisation", "layout"] = _FAMILIES[id]
        if after != before:
            steps.append(_step(id, family, title, before * count, after * count))
    now = sizes[-1][1]
    smaller, _ = smaller_formats(inputs)
    each = now
    if smaller:
        each = _whole_bytes(inputs, inputs.spec, smaller[0].id, tp=scenario.tp)
        title = f"Quantisation: {_short(smaller[0].label)} KV"
        steps.append(_step("kv_next", "quantisation", title, now * count, each * count, is_applied=False))
    if running < count:
        title = f"Offload: {fmt_count(count - running)} idle to host"
        steps.append(_step("offload", "offload", title, each * count, each * running, is_applied=False))
    pool = inputs.budget.kv_pool_bytes * scenario.tp * scenario.pp * scenario.replicas
    return Waterfall(
        sessions=count,
        active=running,
        steps=tuple(steps),
        now_bytes=now * count,
        end_bytes=each * running,
        pool_bytes=pool,
        sentence=_sentence(steps, count, now * count, each * running, pool),
    )


_FAMILIES: dict[StepId, Literal["architecture", "quantisation", "layout"]] = {
    "heads": "architecture",
    "windows": "architecture",
    "kv_now": "quantisation",
    "repeats": "layout",
}
_Size = tuple[StepId, int, str]


def _pairs(sizes: list[_Size]) -> list[tuple[StepId, int]]:
    return [(id, size) for id, size, _ in sizes[:-1]]


def _step(
    id: StepId,
    family: Literal["architecture", "quantisation", "layout", "offload"],
    title: str,
    before: int,
    after: int,
    *,
    is_applied: bool = True,
) -> WaterfallStep:
    return WaterfallStep(
        id=id, family=family, title=title, before_bytes=before, after_bytes=after, is_applied=is_applied
    )


def _architecture(inputs: Inputs) -> list[_Size]:
    """(step, bytes of one request, title), from every head and token kept to the scenario as it is."""
    spec, scenario = inputs.spec, inputs.scenario
    now = kv_format(scenario.kv_precision, declared=spec.quantization.kv_precision)
    every_head = _with_groups(spec, tuple(_all_tokens(_all_heads(group)) for group in spec.layer_groups))
    every_token = _with_groups(spec, tuple(_all_tokens(group) for group in spec.layer_groups))
    ranks = scenario.tp
    return [
        ("every_head", _whole_bytes(inputs, every_head, "bf16"), ""),
        ("heads", _whole_bytes(inputs, every_token, "bf16"), f"Architecture: {_heads_text(spec)}"),
        ("windows", _whole_bytes(inputs, spec, "bf16"), "Architecture: layers that forget old tokens"),
        ("kv_now", _whole_bytes(inputs, spec, now.id), f"Quantisation: {_short(now.label)} KV"),
        ("repeats", _whole_bytes(inputs, spec, now.id, tp=ranks), f"Layout: TP {ranks} repeats it"),
    ]


def _whole_bytes(inputs: Inputs, spec: ModelSpec, kv_precision: str, *, tp: int = 1) -> int:
    """Ideal KV of one request over a replica of this many ranks. [bytes]"""
    scenario = inputs.scenario
    return tp * kv_bytes_per_sequence(
        spec,
        context_tokens=scenario.context_tokens,
        kv_precision=kv_precision,
        state_precision=scenario.state_precision,
        tp=tp,
        dcp=scenario.dcp if tp > 1 else 1,
    )


def _with_groups(spec: ModelSpec, groups: tuple[LayerGroup, ...]) -> ModelSpec:
    return spec.model_copy(update={"layer_groups": groups})


def _all_heads(group: LayerGroup) -> LayerGroup:
    """The group with a key and a value per query head."""
    if isinstance(group, (FullAttention, SlidingAttention, ChunkedAttention)):
        return group.model_copy(update={"kv_heads": group.query_heads})
    if isinstance(group, LatentAttention):
        key, value = _UNCOMPRESSED_DIM + group.rope_dim, _UNCOMPRESSED_DIM
        return _full(group, kv_heads=group.query_heads, key_dim=key, value_dim=value)
    if isinstance(group, CompressedAttention):
        key, value = group.latent_dim + group.rope_dim, group.latent_dim
        return _full(group, kv_heads=group.query_heads, key_dim=key, value_dim=value)
    return group


def _all_tokens(group: LayerGroup) -> LayerGroup:
    """The group with every token kept."""
    if isinstance(group, (SlidingAttention, ChunkedAttention)):
        return _full(group, kv_heads=group.kv_heads, key_dim=group.key_dim, value_dim=group.value_dim)
    return group


def _full(
    group: SlidingAttention | ChunkedAttention | LatentAttention | CompressedAttention,
    *,
    kv_heads: int,
    key_dim: int,
    value_dim: int,
) -> FullAttention:
    return FullAttention(
        layers=group.layers, query_heads=group.query_heads, kv_heads=kv_heads, key_dim=key_dim, value_dim=value_dim
    )


def _heads_text(spec: ModelSpec) -> str:
    """How the model's layers share what they keep: '8 KV heads, not 64'."""
    if any(isinstance(group, (LatentAttention, CompressedAttention)) for group in spec.layer_groups):
        return "one latent for all heads"
    headed = [
        group for group in spec.layer_groups if isinstance(group, (FullAttention, SlidingAttention, ChunkedAttention))
    ]
    if len({(group.kv_heads, group.query_heads) for group in headed}) == 1:
        return f"{fmt_count(headed[0].kv_heads)} KV heads, not {fmt_count(headed[0].query_heads)}"
    return "query heads share KV heads"


def _short(label: str) -> str:
    """A format without how its scales are kept: 'FP8', not 'FP8 (per tensor)'."""
    return label.partition(" (")[0]


def _sentence(steps: list[WaterfallStep], count: int, now: int, end: int, pool: int) -> str:
    left = [
        _SHORT[step.id] if step.id in _SHORT else step.title.partition(": ")[2] for step in steps if not step.is_applied
    ]
    holds = f"these GPUs hold {fmt_gib(pool)}"
    sessions = "1 session" if count == 1 else f"{fmt_count(count)} sessions"
    if not left:
        return f"The KV of {sessions} takes {fmt_gib(now)}; {holds}."
    text = " and ".join(left)
    verb = "bring" if len(left) > 1 else "brings"
    before = fmt_gib(now).removesuffix(" GiB")
    return f"{text[0].upper()}{text[1:]} {verb} {sessions} from {before} to {fmt_gib(end)}; {holds}."


_SHORT: dict[StepId, str] = {"offload": "offload"}
