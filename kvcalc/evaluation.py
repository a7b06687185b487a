"""``evaluate``: the one door from a scenario to its report.

The page, the exports, the command line and the tests all read what it returns.
"""

from __future__ import annotations

from typing import NamedTuple

from kvcalc import changes, scenario_notes
from kvcalc.budget_notes import budget_notes
from kvcalc.cache import GroupBytes, bytes_by_group, knees, kv_bytes_per_sequence
from kvcalc.engines import Capacity
from kvcalc.errors import KvcalcError, Note
from kvcalc.first_token import busy_first_token, most_requests_in_time, prompt_alone
from kvcalc.inputs import Inputs, requests_in, resolve
from kvcalc.latency import StepTime
from kvcalc.precision import kv_format
from kvcalc.prefix_cache import PrefixSaving, prefix_saving
from kvcalc.report import Capacities, Limit, ModelFacts, Report, WouldFit
from kvcalc.request_sizes import RequestSizes, request_sizes
from kvcalc.scenario import Scenario
from kvcalc.speculative import DraftedSpeed, drafted_speed
from kvcalc.units import fmt_seconds
from kvcalc.verdict import FITS, Facts, LimitName, Verdict, verdict_of
from kvcalc.weights import PartBytes, weights_by_part

_MOST_WOULD_FIT = 3


class Answer(NamedTuple):
    """The few numbers a comparison of scenarios needs."""

    inputs: Inputs
    verdict: Verdict
    binds: LimitName
    sentence: str
    memory_requests: int
    speed_requests: int | None
    first_token_requests: int | None
    concurrency: int
    capacity: Capacity


def speed_limit(inputs: Inputs, *, context_tokens: int, at_most: int) -> int | None:
    """Most requests whose typical time per token meets the target; None without a target. [requests]"""
    target = inputs.scenario.target_tpot_ms
    if target is None or inputs.steps is None:
        return None
    return inputs.steps.most_requests(context_tokens=context_tokens, target_s=target / 1000, at_most=at_most)


def answer(scenario: Scenario) -> Answer:
    """Verdict and requests at once, without the rest of a report. Raises KvcalcError."""
    inputs = resolve(scenario)
    spec, budget = inputs.spec, inputs.budget
    memory = requests_in(inputs, budget.kv_pool_bytes)
    cap = budget.max_num_seqs
    admitted = min(memory, cap)
    # Looked for past what memory admits, so that the table of limits can show how far away it is.
    speed = speed_limit(inputs, context_tokens=scenario.context_tokens, at_most=4 * admitted) if admitted else None
    single = _step(inputs, requests=1) if speed == 0 else None
    alone = prompt_alone(inputs) if admitted and scenario.target_ttft_ms is not None else None
    first = most_requests_in_time(inputs, alone, at_most=4 * admitted)
    capacity = inputs.plan.capacity(pool_bytes=budget.kv_pool_bytes, max_model_len=scenario.max_model_len)
    each = inputs.plan.reserved_bytes(scenario.context_tokens)
    facts = Facts(
        context_tokens=scenario.context_tokens,
        model_limit=spec.max_context_tokens,
        engine_limit=scenario.max_model_len,
        longest_that_fits=capacity.longest_context_that_fits,
        shortfall_bytes=budget.shortfall_bytes,
        request_bytes=each,
        limit_bytes=capacity.needed_bytes,
        pool_bytes=budget.kv_pool_bytes,
        pool_low_bytes=budget.kv_pool_low_bytes,
        weights_share=budget.weights_bytes / budget.memory_bytes,
        memory_requests=memory,
        cap_requests=cap,
        speed_requests=speed,
        target_tpot_ms=scenario.target_tpot_ms,
        single_tpot_s=None if single is None else single.typical_s,
        target_requests=scenario.target_requests,
        replicas=scenario.replicas,
        state_bound=_state_dominates(inputs),
        first_token_requests=first,
        target_ttft_ms=scenario.target_ttft_ms,
        single_ttft_s=None if alone is None else alone.typical_s,
    )
    verdict, binds, sentence = verdict_of(facts)
    runs = verdict in FITS
    count = min(limit for limit in (admitted, speed, first) if limit is not None) if runs else 0
    return Answer(inputs, verdict, binds, sentence, memory, speed, first, count, capacity)


def _state_dominates(inputs: Inputs) -> bool:
    """Whether most of a request's memory does not grow with its length."""
    if not inputs.spec.has_recurrent_state:
        return False
    whole = kv_bytes_per_sequence(inputs.spec, context_tokens=inputs.scenario.context_tokens)
    return 2 * kv_bytes_per_sequence(inputs.spec, context_tokens=0) > whole


def evaluate(scenario: Scenario) -> Report:
    """The scenario's report: verdict, requests at once, memory, speed, and every intermediate.

    Parameters
    ----------
    scenario : every choice, each field explicit.

    Returns
    -------
    Report. Not fitting is an answer: ``fits`` is False, with the shortfall and what would fit.

    Raises
    ------
    KvcalcError    an input that cannot be used, named by field.

    Source
    ------
    METHODOLOGY.md, with the source of each formula.
    """
    found = answer(scenario)
    inputs = found.inputs
    spec, gpu, budget = inputs.spec, inputs.gpu, inputs.budget
    context = scenario.context_tokens
    fits = found.verdict in FITS
    capacity = found.capacity
    sizes = request_sizes(scenario, spec)
    # With a target nobody can meet, the speed shown is that of one request alone.
    step = _step(inputs, requests=max(found.concurrency, 1)) if fits else None
    alone = prompt_alone(inputs) if fits else None
    waiting = _oversubscription(found)
    return Report(
        scenario=scenario,
        model=_model_facts(inputs),
        gpu=gpu,
        gpus_per_replica=scenario.tp * scenario.pp,
        context_tokens=context,
        fits=fits,
        verdict=found.verdict,
        sentence=found.sentence,
        binding_limit=found.binds,
        limits=_limits(found),
        concurrency=found.concurrency,
        total_concurrency=found.concurrency * scenario.replicas,
        capacities=_capacities(found, sizes),
        kv_bytes_per_request=sizes.whole,
        kv_bytes_per_request_per_gpu=sizes.ideal_per_gpu,
        reserved_bytes_per_request_per_gpu=inputs.plan.reserved_bytes(context),
        kv_bytes_per_token=sizes.per_token,
        kv_fixed_bytes=sizes.fixed,
        replication_ratio=sizes.whole / sizes.distinct if sizes.distinct else 1.0,
        groups=_groups(inputs),
        knees=knees(spec),
        weight_lines=_weight_lines(inputs),
        budget=budget,
        capacity=capacity,
        requests_low=requests_in(inputs, budget.kv_pool_low_bytes),
        requests_high=requests_in(inputs, budget.kv_pool_high_bytes),
        longest_context_tokens=min(
            capacity.longest_context_that_fits, spec.max_context_tokens or capacity.longest_context_that_fits
        ),
        tpot=step,
        ttft=alone,
        first_token=busy_first_token(inputs, alone, requests=max(found.concurrency, 1)),
        prefix=_prefix(inputs) if fits else None,
        drafted=_drafted(inputs, step, requests=max(found.concurrency, 1)),
        tokens_per_s=None if step is None or not found.concurrency else found.concurrency / step.typical_s,
        oversubscription=waiting,
        shortfall_bytes=_shortfall(found, capacity.needed_bytes),
        would_fit=() if fits else _would_fit(inputs),
        notes=_notes(found, sizes, waiting),
        assumptions=(*spec.assumptions, *budget.assumptions, *scenario_notes.first_token(scenario, alone)),
    )


def _capacities(found: Answer, sizes: RequestSizes) -> Capacities:
    inputs, capacity = found.inputs, found.capacity
    return Capacities(
        ideal_requests=inputs.budget.kv_pool_bytes // sizes.ideal_per_gpu if sizes.ideal_per_gpu else 0,
        reserved_requests=found.memory_requests,
        reported_concurrency=capacity.max_concurrency,
        reported_tokens=capacity.reported_tokens,
        why=scenario_notes.capacities(inputs.plan, capacity, inputs.scenario),
    )


def _notes(found: Answer, sizes: RequestSizes, oversubscription: float | None) -> tuple[Note, ...]:
    scenario, spec, gpu = found.inputs.scenario, found.inputs.spec, found.inputs.gpu
    return (
        *scenario_notes.waiting(scenario, oversubscription),
        *budget_notes(found.inputs),
        *scenario_notes.notes(
            scenario, spec, gpu, found.capacity, whole_bytes=sizes.whole, distinct_bytes=sizes.distinct
        ),
    )


def _weight_lines(inputs: Inputs) -> tuple[PartBytes, ...]:
    scenario = inputs.scenario
    return weights_by_part(
        inputs.spec,
        precision=scenario.weight_precision,
        tp=scenario.tp,
        pp=scenario.pp,
        ep=scenario.ep,
        draft=scenario.speculative_tokens > 0,
    )


def _groups(inputs: Inputs) -> tuple[GroupBytes, ...]:
    scenario = inputs.scenario
    return bytes_by_group(
        inputs.spec,
        context_tokens=scenario.context_tokens,
        kv_precision=scenario.kv_precision,
        state_precision=scenario.state_precision,
        tp=scenario.tp,
        pp=scenario.pp,
        dcp=scenario.dcp,
    )


def _model_facts(inputs: Inputs) -> ModelFacts:
    spec = inputs.spec
    return ModelFacts(
        label=spec.label,
        num_layers=spec.num_layers,
        max_context_tokens=spec.max_context_tokens,
        parameters=spec.parameters,
        is_moe=spec.is_moe,
        attention_kinds=tuple(group.title for group in spec.layer_groups),
        kv_precision=kv_format(inputs.scenario.kv_precision, declared=spec.quantization.kv_precision).id,
        checkpoint_format=spec.quantization.method or spec.quantization.base_precision,
        sizing_facts=spec.sizing_facts,
    )


def _limits(found: Answer) -> tuple[Limit, ...]:
    scenario = found.inputs.scenario
    rows: list[tuple[LimitName, str, int]] = [
        ("kv_memory", "KV memory", found.memory_requests),
        ("engine_cap", "Engine cap", found.inputs.budget.max_num_seqs),
    ]
    if found.speed_requests is not None:
        rows.append(("speed_target", f"Speed target, {scenario.target_tpot_ms} ms", found.speed_requests))
    if found.first_token_requests is not None:
        title = f"First token, {fmt_seconds((scenario.target_ttft_ms or 0) / 1000)}"
        rows.append(("first_token_target", title, found.first_token_requests))
    rows.sort(key=lambda row: row[2])
    # What binds may be no limit on requests at all (weights): then the smallest of them is shown as binding.
    binding = found.binds if any(name == found.binds for name, _, _ in rows) else rows[0][0]
    return tuple(Limit(name=name, title=title, requests=count, binds=name == binding) for name, title, count in rows)


def _step(inputs: Inputs, *, requests: int) -> StepTime | None:
    if inputs.steps is None:
        return None
    return inputs.steps.at(batch=requests, context_tokens=inputs.scenario.context_tokens)


def _prefix(inputs: Inputs) -> PrefixSaving | None:
    scenario = inputs.scenario
    if not scenario.cached_prompt_tokens:
        return None
    return prefix_saving(
        inputs.plan,
        pool_bytes=inputs.budget.kv_pool_bytes,
        cached_prompt_tokens=scenario.cached_prompt_tokens,
        prompt_tokens=scenario.prompt_tokens,
        context_tokens=scenario.context_tokens,
        prefix_caching=scenario.prefix_caching,
    )


def _drafted(inputs: Inputs, step: StepTime | None, *, requests: int) -> DraftedSpeed | None:
    """What drafting is measured to gain, and the memory it takes beside the same scenario without it."""
    scenario = inputs.scenario
    if not scenario.speculative_tokens or step is None:
        return None
    without = resolve(scenario.model_copy(update={"speculative_tokens": 0}))
    context = scenario.context_tokens
    return drafted_speed(
        step,
        requests=requests,
        draft_layers=inputs.spec.mtp_layers,
        weights_bytes=inputs.budget.weights_bytes - without.budget.weights_bytes,
        kv_bytes_per_request=inputs.plan.reserved_bytes(context) - without.plan.reserved_bytes(context),
    )


def _oversubscription(found: Answer) -> float | None:
    """Requests wanted over those that run at once; None without a target or when none runs. [ratio]"""
    scenario = found.inputs.scenario
    if scenario.target_requests is None or not found.concurrency:
        return None
    return scenario.target_requests / (found.concurrency * scenario.replicas)


def _shortfall(found: Answer, needed_bytes: int) -> int:
    """Bytes missing per GPU for the state the verdict names. [bytes/GPU]"""
    budget = found.inputs.budget
    if found.verdict == "does_not_fit":
        return budget.shortfall_bytes
    if found.verdict == "one_request_too_big":
        return found.inputs.plan.reserved_bytes(found.inputs.scenario.context_tokens) - budget.kv_pool_bytes
    if found.verdict == "limit_too_long":
        return needed_bytes - budget.kv_pool_bytes
    return 0


def _would_fit(inputs: Inputs) -> tuple[WouldFit, ...]:
    """The first changes of different kinds under which it fits."""
    rows: list[WouldFit] = []
    kinds: set[str] = set()
    for change in changes.candidates(inputs.scenario, inputs.spec, inputs.gpu):
        if change.kind in kinds:
            continue
        try:
            changed = changes.apply(inputs.scenario, change)
            result = answer(changed)
        except KvcalcError:
            continue
        if result.verdict not in FITS or not result.concurrency:
            continue
        kinds.add(change.kind)
        rows.append(WouldFit(change=change.text, scenario=changed, requests=result.concurrency, pays=change.pays))
        if len(rows) == _MOST_WOULD_FIT:
            break
    return tuple(rows)
