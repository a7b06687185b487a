"""A scenario with everything it names looked up: model, GPU, memory budget, engine plan and decode step."""

from __future__ import annotations

from typing import NamedTuple

from kvcalc.budget import Budget, memory_budget
from kvcalc.cache import check_layout
from kvcalc.engines import Plan, Settings, engine_by_id
from kvcalc.hardware import GpuSpec
from kvcalc.latency import StepPlan, step_plan
from kvcalc.model_spec import ModelSpec
from kvcalc.parallelism import Parallelism
from kvcalc.prefix_cache import usable_cached_tokens
from kvcalc.scenario import Scenario, gpu_of, spec_of
from kvcalc.units import MIB


class Inputs(NamedTuple):
    """A scenario with what it names looked up."""

    scenario: Scenario
    spec: ModelSpec
    gpu: GpuSpec
    budget: Budget
    plan: Plan
    steps: StepPlan | None
    """None when the GPU's bandwidth is unknown."""


def resolve(scenario: Scenario) -> Inputs:
    """Look up the model and the GPU, and lay out budget and engine plan. Raises KvcalcError."""
    spec, gpu = spec_of(scenario), gpu_of(scenario)
    check_layout(spec, Parallelism(tp=scenario.tp, pp=scenario.pp, ep=scenario.ep, dcp=scenario.dcp))
    budget = budget_of(scenario, spec, gpu)
    plan = plan_of(scenario, spec, max_num_batched_tokens=budget.max_num_batched_tokens)
    return Inputs(scenario, spec, gpu, budget, plan, steps_of(scenario, spec, gpu, plan))


def budget_of(scenario: Scenario, spec: ModelSpec, gpu: GpuSpec) -> Budget:
    """Where the memory of one GPU goes. Raises KvcalcError."""
    return memory_budget(
        spec,
        gpu=gpu,
        engine=scenario.engine,
        engine_version=scenario.engine_version,
        weight_precision=scenario.weight_precision,
        tp=scenario.tp,
        pp=scenario.pp,
        ep=scenario.ep,
        utilization_pct=scenario.utilization_pct,
        max_num_seqs=scenario.max_num_seqs,
        max_num_batched_tokens=scenario.max_num_batched_tokens,
        enforce_eager=scenario.enforce_eager,
        images=scenario.images,
        draft=scenario.speculative_tokens > 0,
        chunked_prefill=scenario.chunked_prefill,
        max_model_len=scenario.max_model_len,
        weights_bytes=_mib(scenario.weights_mib),
        kv_pool_bytes=_mib(scenario.kv_pool_mib),
        non_torch_bytes=_mib(scenario.non_torch_mib),
        activations_bytes=_mib(scenario.activations_mib),
        cuda_graphs_bytes=_mib(scenario.cuda_graphs_mib),
    )


def plan_of(scenario: Scenario, spec: ModelSpec, *, max_num_batched_tokens: int) -> Plan:
    """The model laid out by the scenario's engine, for steps of this many tokens. Raises ScenarioError."""
    engine = engine_by_id(scenario.engine)
    settings = Settings(
        engine_version=scenario.engine_version,
        kv_precision=scenario.kv_precision,
        state_precision=scenario.state_precision,
        tp=scenario.tp,
        pp=scenario.pp,
        dcp=scenario.dcp,
        block_size=scenario.block_size,
        max_num_batched_tokens=max_num_batched_tokens,
        prefix_caching=scenario.prefix_caching,
        speculative_tokens=scenario.speculative_tokens,
        hybrid_manager=engine.frees_windows(spec) if scenario.hybrid_manager is None else scenario.hybrid_manager,
        async_scheduling=scenario.async_scheduling,
    )
    return engine.plan(spec, settings)


def _mib(figure: int | None) -> int | None:
    """Bytes of a figure in MiB that may be missing. [bytes]"""
    return None if figure is None else figure * MIB


def steps_of(scenario: Scenario, spec: ModelSpec, gpu: GpuSpec, plan: Plan) -> StepPlan | None:
    """The scenario's decode step, prompts of a busy server mixed in; None when the bandwidth is unknown."""
    if gpu.bandwidth_bytes_per_s is None:
        return None
    steps = step_plan(
        spec,
        gpu=gpu,
        tp=scenario.tp,
        pp=scenario.pp,
        ep=scenario.ep,
        dcp=scenario.dcp,
        weight_precision=scenario.weight_precision,
        kv_precision=scenario.kv_precision,
        state_precision=scenario.state_precision,
        engine=scenario.engine,
    )
    if not scenario.busy:
        return steps
    new = scenario.prompt_tokens - cached_tokens(scenario, plan)
    return steps.busy(prompt_tokens=new, output_tokens=max(1, scenario.output_tokens))


def cached_tokens(scenario: Scenario, plan: Plan) -> int:
    """Tokens of the scenario's prompt that the prefix cache spares. [tokens]"""
    if not scenario.cached_prompt_tokens:
        return 0
    return usable_cached_tokens(
        plan,
        cached_prompt_tokens=scenario.cached_prompt_tokens,
        prompt_tokens=scenario.prompt_tokens,
        prefix_caching=scenario.prefix_caching,
    )


def requests_in(inputs: Inputs, pool_bytes: int, context_tokens: int | None = None) -> int:
    """Whole requests a pool of this size holds at a context (the scenario's by default). [requests]"""
    tokens = inputs.scenario.context_tokens if context_tokens is None else context_tokens
    return inputs.plan.requests_at(pool_bytes, tokens)


def longest_held(inputs: Inputs, requests: int, *, at_most: int) -> int:
    """Longest context that the KV pool holds this many times, 0 when none; it holds fewer of longer ones. [tokens]"""
    fits, too_long = 0, at_most + 1
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        if inputs.plan.requests_at(inputs.budget.kv_pool_bytes, middle) >= requests:
            fits = middle
        else:
            too_long = middle
    return fits
