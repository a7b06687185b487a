"""How long the prefill of one prompt takes, on an idle replica."""

from __future__ import annotations

from kvcalc.cache import check_layout
from kvcalc.catalogue import gpu as find_gpu
from kvcalc.errors import Record, ScenarioError
from kvcalc.hardware import GpuSpec
from kvcalc.latency.costs import step_costs
from kvcalc.latency.counts import check_count
from kvcalc.latency.flops import attention_flops, linear_flops, matrix_rate
from kvcalc.latency.tables import latency_tables
from kvcalc.model_spec import ModelSpec
from kvcalc.parallelism import Parallelism
from kvcalc.units import ceil_div
from kvcalc.weights import streamed_weight_bytes


class Band(Record):
    """A time with its uncertainty."""

    low_s: float
    """Fast end. [s]"""
    typical_s: float
    """Best estimate. [s]"""
    high_s: float
    """Slow end. [s]"""


def prefill_time(
    spec: ModelSpec,
    *,
    gpu: str | GpuSpec,
    tp: int = 1,
    pp: int = 1,
    prompt_tokens: int,
    cached_tokens: int = 0,
    chunk_tokens: int | None = None,
    weight_precision: str = "checkpoint",
) -> Band:
    """Time to compute one prompt's KV on an idle replica: prefill alone, no queue, no network.

    Equation   (2 x active parameters x new tokens + attention) / (GPUs x dense rate x efficiency),
               never below reading the weights once per step; but for the fast end, plus the launches of each step
    Attention  sum over layers of 2 x query heads x (key + value width) x pairs of tokens that see each other

    Parameters
    ----------
    gpu : id, name, alias or GpuSpec.
    tp, pp : tensor and pipeline parallel sizes; stages are taken to work on different chunks. [GPUs]
    prompt_tokens : length of the prompt. [tokens]
    cached_tokens : tokens of it whose KV is already there. [tokens]
    chunk_tokens : most tokens of one step, with chunked prefill; None computes the prompt in one. [tokens]
    weight_precision : weight format id; FP8 and FP4 rates count where weights and GPU both have them.

    Raises
    ------
    ScenarioError    no prompt, more cached than prompt tokens, a GPU without compute rate or bandwidth.
    CatalogueError   an unknown GPU or precision.

    Source
    ------
    Efficiency and the measurements behind it in model_presets/latency.toml.
    """
    check_count("prompt_tokens", prompt_tokens, least=1)
    check_count("cached_tokens", cached_tokens, least=0)
    if chunk_tokens is not None:
        check_count("chunk_tokens", chunk_tokens, least=1)
    if cached_tokens > prompt_tokens:
        raise ScenarioError(
            "cached_tokens", f"at most prompt_tokens ({prompt_tokens})", cached_tokens, hint="Count the prefix once."
        )
    check_layout(spec, Parallelism(tp=tp, pp=pp))
    card = find_gpu(gpu)
    rate = matrix_rate(spec, card, weight_precision)
    if rate is None:
        raise ScenarioError("gpu.bf16_flops_per_s", "a compute rate", hint="State the dense 16-bit rate.")
    new = max(1, prompt_tokens - cached_tokens)
    flops = linear_flops(spec, new) + attention_flops(spec, prompt_tokens) - attention_flops(spec, prompt_tokens - new)
    at_peak = flops / (tp * pp * rate)
    chunk = new if chunk_tokens is None else min(new, chunk_tokens)
    steps = ceil_div(new, chunk)
    least = streamed_weight_bytes(spec, precision=weight_precision, tp=tp, pp=1, ep=1, batch=chunk)
    reading = steps * least / card.stated_bandwidth_bytes_per_s
    low, typical, high = _efficiencies(spec)
    costs = step_costs(spec, card, tp=tp, pp=pp, weight_precision=weight_precision, engine=None)
    launches = steps * costs.overhead_s
    return Band(
        low_s=max(reading, at_peak / low),
        typical_s=max(reading, at_peak / typical) + launches,
        high_s=max(reading, at_peak / high) + launches,
    )


def _efficiencies(spec: ModelSpec) -> tuple[float, float, float]:
    """Share of the dense rate at the fast end, typically, and at the slow end. [ratio]"""
    known = latency_tables().prefill
    if spec.is_moe:
        return known.routed_efficiency_high, known.routed_efficiency, known.routed_efficiency_low
    return known.dense_efficiency_high, known.dense_efficiency, known.dense_efficiency_low
