"""The two curves of the capacity page: requests against context, and time per token against requests."""

from __future__ import annotations

from kvcalc.cache import kv_bytes_per_sequence
from kvcalc.errors import Record
from kvcalc.evaluation import speed_limit
from kvcalc.inputs import Inputs, resolve
from kvcalc.latency import StepPlan
from kvcalc.report import Report

_FIRST_TOKENS = 256
_CONTEXTS = 36
_SPEED_CONTEXTS = 10
_REQUESTS = 25
_SAME_RATIO = 1.01
_BLOCKS_HARDLY_SHOW = 1_600
"""From here on whole blocks of 16 tokens are within that ratio of the tokens themselves. [tokens]"""


class ContextPoint(Record):
    """Requests at one context."""

    context_tokens: int
    """Prompt and output. [tokens]"""
    reserved_requests: float
    """What the engine holds, engine cap applied. [requests]"""
    ideal_requests: float
    """If only the bytes attention needs were kept. [requests]"""
    slab_requests: float
    """If every request reserved the context limit. [requests]"""
    within_engine_limit: bool
    """Whether the engine would admit it."""


class SpeedPoint(Record):
    """Most requests that meet the speed target at one context."""

    context_tokens: int
    """Prompt and output. [tokens]"""
    requests: int
    """Requests whose typical time per token meets the target. [requests]"""


class ContextCurve(Record):
    """Requests at once against context."""

    points: tuple[ContextPoint, ...]
    """Ascending by context."""
    speed: tuple[SpeedPoint, ...]
    """The speed target; empty without one."""
    engine_cap: int
    """max_num_seqs. [requests]"""
    engine_limit: int
    """max_model_len. [tokens]"""
    model_limit: int | None
    """Longest context the model states. [tokens]"""
    knees: tuple[tuple[str, int], ...]
    """Where groups stop growing: (kind, tokens)."""
    ideal_is_reserved: bool
    """Whether ideal and reserved are within 1 % everywhere."""


class TpotPoint(Record):
    """Time per token at one number of requests."""

    requests: int
    """Requests decoding at once. [requests]"""
    weights_s: float
    """Reading weights. [s]"""
    kv_s: float
    """Reading KV. [s]"""
    floor_s: float
    """Physical floor. [s]"""
    low_s: float
    """Fast end. [s]"""
    typical_s: float
    """Typical. [s]"""
    high_s: float
    """Slow end. [s]"""


class TpotCurve(Record):
    """Time per token against requests at once, up to where the KV pool is full."""

    points: tuple[TpotPoint, ...]
    """Ascending by requests; empty when nothing fits or the bandwidth is unknown."""
    capacity_requests: int
    """Requests at which memory or the engine's cap stops more. [requests]"""
    target_s: float | None
    """Speed target. [s]"""


def _contexts(report: Report) -> list[int]:
    """Contexts to draw: even steps on a log axis, and every place where something happens. [tokens]"""
    scenario = report.scenario
    last = max(report.model.max_context_tokens or 0, scenario.max_model_len, 2 * _FIRST_TOKENS)
    first = min(_FIRST_TOKENS, report.context_tokens)
    steps = [round(first * (last / first) ** (i / (_CONTEXTS - 1))) for i in range(_CONTEXTS)]
    marks = [report.context_tokens, scenario.max_model_len, *(tokens for _, tokens in report.knees)]
    return sorted({*steps, *(tokens for tokens in marks if first <= tokens <= last)})


def context_curve(report: Report) -> ContextCurve:
    """Requests at once from 256 tokens to the model's limit."""
    inputs = resolve(report.scenario)
    scenario, pool, cap = report.scenario, report.budget.kv_pool_bytes, report.budget.max_num_seqs
    slab = min(float(inputs.plan.side_by_side(pool, scenario.max_model_len)), float(cap))
    points = []
    for tokens in _contexts(report):
        ideal = kv_bytes_per_sequence(
            inputs.spec,
            context_tokens=tokens,
            kv_precision=scenario.kv_precision,
            state_precision=scenario.state_precision,
            tp=scenario.tp,
            pp=scenario.pp,
            dcp=scenario.dcp,
        )
        points.append(
            ContextPoint(
                context_tokens=tokens,
                reserved_requests=min(float(inputs.plan.side_by_side(pool, tokens)), float(cap)),
                ideal_requests=pool / ideal if ideal else 0.0,
                slab_requests=slab,
                within_engine_limit=tokens <= scenario.max_model_len,
            )
        )
    return ContextCurve(
        points=tuple(points),
        speed=_speed_curve(inputs, [point.context_tokens for point in points]) if pool else (),
        engine_cap=cap,
        engine_limit=scenario.max_model_len,
        model_limit=report.model.max_context_tokens,
        knees=report.knees,
        ideal_is_reserved=_nearly_equal(points, cap),
    )


def _nearly_equal(points: list[ContextPoint], cap: int) -> bool:
    return all(
        point.ideal_requests <= _SAME_RATIO * point.reserved_requests
        for point in points
        if point.reserved_requests < cap and point.context_tokens >= _BLOCKS_HARDLY_SHOW
    )


def _speed_curve(inputs: Inputs, contexts: list[int]) -> tuple[SpeedPoint, ...]:
    if inputs.scenario.target_tpot_ms is None or inputs.steps is None:
        return ()
    chosen = contexts[:: max(1, len(contexts) // _SPEED_CONTEXTS)]
    chosen = sorted({*chosen, contexts[-1]})
    most = 4 * inputs.budget.max_num_seqs
    found = [(tokens, speed_limit(inputs, context_tokens=tokens, at_most=most)) for tokens in chosen]
    return tuple(SpeedPoint(context_tokens=tokens, requests=requests) for tokens, requests in found if requests)


def tpot_curve(report: Report) -> TpotCurve:
    """Time per token from one request to where memory or the engine's cap stops more."""
    target = report.scenario.target_tpot_ms
    full = min(report.capacities.reserved_requests, report.budget.max_num_seqs)
    points: tuple[TpotPoint, ...] = ()
    steps = resolve(report.scenario).steps if report.tpot is not None and full else None
    if steps is not None:
        evenly = (1 + round((full - 1) * i / (_REQUESTS - 1)) for i in range(_REQUESTS))
        chosen = sorted({max(1, report.concurrency), *evenly})
        points = tuple(_tpot_point(steps, requests, report.context_tokens) for requests in chosen)
    return TpotCurve(points=points, capacity_requests=full, target_s=None if target is None else target / 1000)


def _tpot_point(steps: StepPlan, requests: int, context_tokens: int) -> TpotPoint:
    step = steps.at(batch=requests, context_tokens=context_tokens)
    return TpotPoint(
        requests=requests,
        weights_s=step.weights_s,
        kv_s=step.kv_s,
        floor_s=step.floor_s,
        low_s=step.low_s,
        typical_s=step.typical_s,
        high_s=step.high_s,
    )
