"""What the reader of a report must know: repeats, unsupported formats, and what the three capacities are."""

from __future__ import annotations

from kvcalc.engines import Capacity, Plan
from kvcalc.errors import Assumption, Note
from kvcalc.hardware import GpuSpec
from kvcalc.latency import Band
from kvcalc.model_spec import ModelSpec
from kvcalc.precision import kv_format
from kvcalc.scenario import Scenario
from kvcalc.units import ceil_div, fmt_bytes, fmt_count, fmt_factor, fmt_tokens
from kvcalc.weights import weight_bytes

ENGINE_NAMES = {"vllm": "vLLM", "sglang": "SGLang", "tensorrt_llm": "TensorRT-LLM", "llamacpp": "llama.cpp"}


_PAST_CAPACITY = {
    "vllm": "vLLM lets them wait, and preempts running ones, to compute them again, when the KV pool runs full.",
    "sglang": "SGLang lets them wait, and retracts running ones when the KV pool runs full.",
    "tensorrt_llm": "TensorRT-LLM lets them wait until running ones have ended.",
    "llamacpp": "llama.cpp lets them wait for a free slot.",
}


def first_token(scenario: Scenario, alone: Band | None) -> tuple[Assumption, ...]:
    """That a first token is the prompt alone, where the scenario does not ask for a busy replica's."""
    if alone is None or scenario.busy:
        return ()
    return (_FIRST_TOKEN_ALONE,)


_FIRST_TOKEN_ALONE = Assumption(
    field="first token",
    value="the prompt alone",
    reason="On a busy server add the wait for prompts that came before; the busy setting estimates it.",
)


def waiting(scenario: Scenario, oversubscription: float | None) -> tuple[Note, ...]:
    """What happens to requests past what runs at once: a queue, not a slower token."""
    if oversubscription is None or oversubscription <= 1:
        return ()
    wanted = fmt_count(scenario.target_requests or 0)
    text = (
        f"{wanted} requests are {fmt_factor(oversubscription)} what runs at once: the rest has no time per token yet."
    )
    return (Note(field="target_requests", text=f"{text} {_PAST_CAPACITY[scenario.engine]}"),)


def capacities(plan: Plan, capacity: Capacity, scenario: Scenario) -> tuple[str, str, str]:
    """One sentence each for ideal, reserved and reported: what it is and why it differs."""
    engine = ENGINE_NAMES[scenario.engine]
    context, limit = fmt_tokens(scenario.context_tokens), fmt_tokens(scenario.max_model_len)
    block = fmt_tokens(capacity.block_size)
    ideal = f"Only the bytes attention needs for {context} tokens, with no rounding."
    reserved = f"What {engine} sets aside while such a request decodes: whole blocks of {block} tokens."
    if plan.needed_bytes(scenario.context_tokens) > plan.reserved_bytes(scenario.context_tokens):
        reserved += " Its log charges more, for tokens in flight."
    reported = f"What its log prints at start-up, for requests of the context limit, {limit} tokens."
    return ideal, reserved, reported


def notes(
    scenario: Scenario, spec: ModelSpec, gpu: GpuSpec, capacity: Capacity, *, whole_bytes: int, distinct_bytes: int
) -> tuple[Note, ...]:
    """Notes on this scenario, most important first.

    whole_bytes     one request's KV over the replica, repeats included [bytes]
    distinct_bytes  the same without repeats [bytes]
    """
    found = list(capacity.notes)
    if whole_bytes > distinct_bytes:
        found.append(_repeats(scenario, spec, gpu, whole_bytes=whole_bytes, distinct_bytes=distinct_bytes))
    precision = kv_format(scenario.kv_precision, declared=spec.quantization.kv_precision)
    if scenario.engine not in precision.engines:
        text = f"{ENGINE_NAMES[scenario.engine]} does not store {precision.label}; the figures are what it would take."
        found.append(Note(field="kv_precision", text=text))
    if precision.id in ("fp8", "nvfp4") and gpu.vendor == "NVIDIA" and gpu.fp8_flops_per_s is None:
        text = f"{gpu.name} has no FP8 arithmetic; engines convert on the fly or refuse. Check your engine's release."
        found.append(Note(field="kv_precision", text=text))
    if scenario.weight_precision != "checkpoint" and spec.quantization.is_quantized:
        method = spec.quantization.method or "a quantised format"
        text = f"The checkpoint is stored as {method}; {scenario.weight_precision} is a what-if on its shapes."
        found.append(Note(field="weight_precision", text=text))
    if scenario.tp > gpu.max_gpus_per_node:
        text = f"TP {scenario.tp} spans nodes of {gpu.max_gpus_per_node} GPUs: all-reduce will be slower than shown."
        found.append(Note(field="tp", text=text))
    return tuple(found)


def _weights_fit(scenario: Scenario, spec: ModelSpec, gpu: GpuSpec, *, tp: int) -> bool:
    weights = weight_bytes(spec, precision=scenario.weight_precision, tp=tp, pp=scenario.pp)
    return weights < gpu.usable_bytes * _ROOM_PCT // 100


_ROOM_PCT = 80
"""Weights above this share of a GPU leave no useful KV pool. [%]"""


def _repeats(scenario: Scenario, spec: ModelSpec, gpu: GpuSpec, *, whole_bytes: int, distinct_bytes: int) -> Note:
    """KV that tensor parallelism stores more than once, and a layout that would not."""
    heads = [group.heads_on_rank(1) for group in spec.layer_groups if group.grows]
    useful = max(heads, default=1)
    extra = fmt_bytes(whole_bytes - distinct_bytes)
    ratio = fmt_factor(whole_bytes / distinct_bytes)
    text = f"TP {scenario.tp} stores each request's KV {ratio} over: {extra} of it are repeats."
    copies = ceil_div(scenario.tp, useful)
    ways = []
    if scenario.tp % useful == 0 and _weights_fit(scenario, spec, gpu, tp=useful):
        ways.append(f"{copies} replicas of TP {useful}")
    if scenario.dcp == 1 and scenario.engine == "vllm" and any(group.splits_over_dcp() for group in spec.layer_groups):
        ways.append(f"decode context parallelism of {copies}")
    if ways:
        either = " or ".join(ways)
        text += f" {either[0].upper()}{either[1:]} would store none twice."
    return Note(field="tp", text=text)
