"""Where one GPU's memory goes: named bytes that sum to the card, and the KV pool they leave."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Literal

from kvcalc.cache import check_layout
from kvcalc.catalogue import gpu as find_gpu
from kvcalc.errors import Assumption, Note, Record, ScenarioError
from kvcalc.hardware import GpuSpec
from kvcalc.model_spec import ModelSpec
from kvcalc.overheads import llamacpp, sglang, tensorrt_llm, vllm
from kvcalc.overheads.base import AS_MEASURED, MEASURED_BY, Inputs, Plan
from kvcalc.overheads.division import BudgetLine, Division, estimated, fixed, logged
from kvcalc.parallelism import Parallelism
from kvcalc.units import fmt_gib
from kvcalc.weights import weight_bytes

__all__ = ["Budget", "BudgetLine", "BudgetVerdict", "memory_budget"]

_PLANS: dict[str, Callable[[Inputs], Plan]] = {
    "vllm": vllm.plan,
    "sglang": sglang.plan,
    "tensorrt_llm": tensorrt_llm.plan,
    "llamacpp": llamacpp.plan,
}

_BESIDE = {"non_torch": "Outside PyTorch", "activations": "Activations", "cuda_graphs": "CUDA graphs"}

BudgetVerdict = Literal["fits", "may_not_start", "does_not_fit"]


class Budget(Record):
    """One GPU's memory, line by line."""

    lines: tuple[BudgetLine, ...]
    """Named bytes that sum exactly to ``memory_bytes``."""
    memory_bytes: int
    """What the driver reports for the card. [bytes/GPU]"""
    usable_bytes: int
    """What a process sees. [bytes/GPU]"""
    requested_bytes: int
    """Weights, overhead and KV pool together, as far as the engine may go. [bytes/GPU]"""
    weights_bytes: int
    """Weights of the busiest GPU. [bytes/GPU]"""
    overhead_bytes: int
    """Everything in the request that is neither weights nor KV pool, estimated. [bytes/GPU]"""
    overhead_low_bytes: int
    """Least overhead the measurements allow. [bytes/GPU]"""
    overhead_high_bytes: int
    """Most overhead the measurements allow. [bytes/GPU]"""
    kv_pool_bytes: int
    """What is left for KV cache; 0 when it does not fit. [bytes/GPU]"""
    kv_pool_low_bytes: int
    """The pool at the highest overhead. [bytes/GPU]"""
    kv_pool_high_bytes: int
    """The pool at the lowest overhead. [bytes/GPU]"""
    shortfall_bytes: int
    """What weights and overhead exceed the request by; 0 when they fit. [bytes/GPU]"""
    verdict: BudgetVerdict
    """fits; may_not_start when the band of the pool reaches zero; does_not_fit."""
    utilization_pct: float
    """Share the engine asks for: of the memory a process sees; for TensorRT-LLM of what is left after loading;
    for SGLang of what is free before loading. [%]"""
    max_num_seqs: int
    """Requests of one step, given or the engine's default. [requests]"""
    max_num_batched_tokens: int
    """Tokens of one step, given or the engine's default. [tokens]"""
    beside_bytes: int | None
    """Activations of one step that must fit in what is kept free, where the pool does not pay. [bytes/GPU]"""
    assumptions: tuple[Assumption, ...]
    """Every default used, with its reason."""
    notes: tuple[Note, ...] = ()
    """What the measured figures say that the estimates do not, and what may stop the engine."""


def memory_budget(
    spec: ModelSpec,
    *,
    gpu: str | GpuSpec,
    engine: str = "vllm",
    engine_version: str | None = None,
    weight_precision: str = "checkpoint",
    tp: int = 1,
    pp: int = 1,
    ep: int = 1,
    utilization_pct: int | Fraction | None = None,
    max_num_seqs: int | None = None,
    max_num_batched_tokens: int | None = None,
    enforce_eager: bool = False,
    images: bool = True,
    weights_bytes: int | None = None,
    draft: bool = False,
    chunked_prefill: bool = True,
    max_model_len: int | None = None,
    kv_pool_bytes: int | None = None,
    non_torch_bytes: int | None = None,
    activations_bytes: int | None = None,
    cuda_graphs_bytes: int | None = None,
) -> Budget:
    """Where the memory of the busiest GPU goes, and the KV pool that leaves.

    Equation   pool = requested - weights - overhead, requested as the engine defines it
               (``kvcalc.overheads``); rounded down once, to a whole byte

    Lines sum to the card. What does not fit is shown, not clipped: weights and overhead keep their size, the
    pool is 0, and when they exceed the whole card a line ``over_the_card`` holds the excess, negative.

    What was measured replaces its estimate and has no band. With a measured pool the pool is exactly that, and the
    overhead is what it leaves of the request, when the estimates allow as much; else the pool was set by hand, and
    the rest is kept free. A pool that does not fit on the card beside the weights is still the answer: a negative
    line ``unexplained`` and a note say so.

    Parameters
    ----------
    gpu : id, name, alias or GpuSpec.
    engine : vllm, sglang, tensorrt_llm or llamacpp.
    engine_version : the engine's release; None is the newest known.
    weight_precision : weight format id; 'checkpoint' is as published.
    tp, pp, ep : tensor, pipeline and expert parallel sizes. [GPUs]
    utilization_pct : share the engine may take, above 0 up to 100; None is the engine's default. [%]
    max_num_seqs, max_num_batched_tokens : requests and tokens of one step; None is the engine's default.
    enforce_eager : no CUDA graphs.
    images : whether a vision model accepts pictures.
    weights_bytes : weights of one GPU as a log states them, instead of the computed figure. [bytes/GPU]
    chunked_prefill : whether prompts are computed in steps of max_num_batched_tokens; else a step holds the longest.
    max_model_len : longest prompt admitted, for when they are not; None is the model's limit. [tokens]
    kv_pool_bytes : the pool, as a log states it or as --kv-cache-memory-bytes sets it. [bytes/GPU]
    non_torch_bytes, activations_bytes, cuda_graphs_bytes : overheads as measured. [bytes/GPU]
    draft : whether the checkpoint's MTP layers are loaded, to draft tokens with.

    Returns
    -------
    Budget. Not fitting is an answer: ``kv_pool_bytes`` 0 and ``shortfall_bytes`` above 0.

    Raises
    ------
    ScenarioError    an engine, share, size or layout that cannot be.
    CatalogueError   an unknown GPU or precision.

    Source
    ------
    The engines' memory profiling; constants and their error in model_presets/overheads.toml.
    """
    make_plan = _PLANS.get(str(engine))
    if make_plan is None:
        raise ScenarioError("engine", f"one of {', '.join(_PLANS)}", engine, hint="Choose one of these.")
    layout = Parallelism(tp=tp, pp=pp, ep=ep)
    check_layout(spec, layout)
    _check_sizes(
        1,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        weights_bytes=weights_bytes,
        max_model_len=max_model_len,
    )
    given = {"non_torch": non_torch_bytes, "activations": activations_bytes, "cuda_graphs": cuda_graphs_bytes}
    _check_sizes(0, kv_pool_bytes=kv_pool_bytes, **{f"{name}_bytes": size for name, size in given.items()})
    measured = {name: size for name, size in given.items() if size is not None}
    card = find_gpu(gpu)
    weights = weights_bytes
    if weights is None:
        weights = weight_bytes(spec, precision=weight_precision, tp=tp, pp=pp, ep=ep, draft=draft)
    plan = make_plan(
        Inputs(
            spec=spec,
            gpu=card,
            weights_bytes=weights,
            engine_version=engine_version,
            tp=tp,
            pp=pp,
            ep=ep,
            utilization=_share(utilization_pct),
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            enforce_eager=enforce_eager,
            images=images,
            runs_in_fp32=weight_precision == "fp32",
            mxfp4_experts=_has_mxfp4_experts(spec, weight_precision),
            chunked_prefill=chunked_prefill,
            longest_prompt_tokens=max_model_len,
            measured=measured,
        )
    )
    division = estimated(weights, plan) if kv_pool_bytes is None else logged(card, weights, plan, kv_pool_bytes)
    return _budget(card, plan, division, measured, _stage_assumption(pp))


def _check_sizes(least: int, **sizes: object) -> None:
    for field, value in sizes.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
            raise ScenarioError(field, f"a whole number from {least}", value, hint="Leave it out for the default.")


def _share(utilization_pct: object) -> Fraction | None:
    if utilization_pct is None:
        return None
    if (
        isinstance(utilization_pct, bool)
        or not isinstance(utilization_pct, (int, Fraction))
        or not 0 < utilization_pct <= 100
    ):
        raise ScenarioError(
            "utilization_pct", "a whole per cent from 1 to 100", utilization_pct, hint="Use 90 for a share of 0.90."
        )
    return Fraction(utilization_pct) / 100


def _has_mxfp4_experts(spec: ModelSpec, weight_precision: str) -> bool:
    if weight_precision != "checkpoint":
        return weight_precision == "mxfp4"
    return any(rule.weight_format == "mxfp4" for rule in spec.quantization.rules)


def _stage_assumption(pp: int) -> tuple[Assumption, ...]:
    if pp == 1:
        return ()
    return (
        Assumption(
            field="pp",
            value="the heaviest stage with the sampler",
            reason="Only the last stage runs the sampler, and stages differ in weights: no stage needs more than both.",
        ),
    )


def _budget(
    card: GpuSpec, plan: Plan, found: Division, measured: Mapping[str, int], extra: tuple[Assumption, ...]
) -> Budget:
    return Budget(
        lines=_lines(card, plan, found, measured),
        memory_bytes=card.memory_bytes,
        usable_bytes=card.usable_bytes,
        requested_bytes=found.requested,
        weights_bytes=found.weights,
        overhead_bytes=found.overhead,
        overhead_low_bytes=found.overhead_low,
        overhead_high_bytes=found.overhead_high,
        kv_pool_bytes=found.pool,
        kv_pool_low_bytes=found.pool_low,
        kv_pool_high_bytes=found.pool_high,
        shortfall_bytes=found.shortfall,
        verdict=_verdict(found.pool_low, found.pool_high),
        utilization_pct=float(plan.utilization * 100),
        max_num_seqs=plan.max_num_seqs,
        max_num_batched_tokens=plan.max_num_batched_tokens,
        beside_bytes=plan.beside_bytes,
        assumptions=plan.assumptions + extra,
        notes=plan.notes + found.notes,
    )


def _verdict(pool_low: int, pool_high: int) -> BudgetVerdict:
    if pool_low > 0:
        return "fits"
    return "may_not_start" if pool_high > 0 else "does_not_fit"


def _lines(card: GpuSpec, plan: Plan, found: Division, measured: Mapping[str, int]) -> tuple[BudgetLine, ...]:
    left = card.usable_bytes - found.weights - found.overhead - found.pool
    lines = []
    if card.memory_bytes > card.usable_bytes:
        lines.append(
            fixed(
                "driver",
                "Held by the driver",
                card.memory_bytes - card.usable_bytes,
                f"{fmt_gib(card.memory_bytes, 2)} on the card − {fmt_gib(card.usable_bytes, 2)} a process sees",
                card.sources[0],
            )
        )
    lines.append(fixed("weights", "Weights", found.weights, "weights of the busiest GPU", "tensor census × precision"))
    lines.extend(found.overheads)
    lines.append(
        BudgetLine(
            name="kv_pool",
            label="KV cache",
            bytes=found.pool,
            low_bytes=found.pool_low,
            high_bytes=found.pool_high,
            formula=found.pool_formula,
            source=plan.pool_source,
        )
    )
    # What the engine does not take from the pool has to fit in what it keeps free.
    charged = {line.name for line in plan.overheads}
    for name, size in measured.items():
        if name not in charged and 0 <= size <= left:
            lines.append(fixed(name, _BESIDE[name], size, AS_MEASURED, MEASURED_BY))
            left -= size
    if left >= 0:
        lines.append(fixed("kept_free", plan.kept_free_label, left, "the rest of the card", plan.pool_source))
    elif found.pool:
        lines.append(fixed("unexplained", "Unexplained", left, "more than the card holds", MEASURED_BY))
    else:
        lines.append(fixed("over_the_card", "Over the card", left, "weights and overhead exceed the card", ""))
    return tuple(lines)
