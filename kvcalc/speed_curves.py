"""Two curves about speed: time per token as conversations grow, and throughput as requests are added."""

from __future__ import annotations

from kvcalc.errors import Record
from kvcalc.inputs import Inputs, longest_held, resolve
from kvcalc.latency import StepPlan, decode_flops, matrix_rate
from kvcalc.report import Report
from kvcalc.units import ceil_div, fmt_count, fmt_ms, fmt_percent, fmt_tokens

_FIRST_TOKENS = 1_000
_POINTS = 25


class ConversationPoint(Record):
    """Time per token at one length of all conversations, the number of requests held."""

    context_tokens: int
    """Tokens each request has in cache. [tokens]"""
    typical_s: float
    """Typical time per token. [s]"""
    low_s: float
    """Fast end. [s]"""
    high_s: float
    """Slow end. [s]"""
    weights_s: float
    """Reading weights. [s]"""
    kv_s: float
    """Reading KV. [s]"""
    fits: bool
    """Whether the KV pool holds these requests at this length."""


class ConversationCurve(Record):
    """How time per token grows with conversation length at a flat batch."""

    requests: int
    """Requests decoding at once. [requests]"""
    longest_tokens: int
    """Longest length at which the KV pool holds all of them, at most the context limit. [tokens]"""
    points: tuple[ConversationPoint, ...]
    """Doubling from 1,000 tokens to the context limit, with the scenario's own, the longest, and every knee."""
    growth_s_per_1000_tokens: float
    """What one thousand more tokens in every conversation add, at the scenario's context. [s]"""
    sentence: str
    """The same in words."""


class ThroughputPoint(Record):
    """Output of a replica at one number of requests."""

    requests: int
    """Requests decoding at once. [requests]"""
    tokens_per_s: float
    """Typical output of the replica. [tokens/s]"""
    floor_tokens_per_s: float
    """Output at the physical floor of a step. [tokens/s]"""
    compute_share: float | None
    """Arithmetic of a step over what the GPUs could do in its typical time; None without a rate. [ratio]"""


class ThroughputCurve(Record):
    """Output against requests at once, up to where the KV pool or the engine stops more."""

    points: tuple[ThroughputPoint, ...]
    """Ascending by requests."""
    stops_at_requests: int
    """Requests past which the rest waits: output grows no more. [requests]"""
    memory_stops_it: bool
    """Whether that is the KV pool; else it is the engine's cap."""
    sentence: str
    """The same in words."""


def conversation_curve(report: Report) -> ConversationCurve | None:
    """Time per token from 1,000 tokens to the context limit, the requests at once held still.

    Those are the ones wanted when a target is set, else the report's. None when nothing fits or the bandwidth is
    unknown.
    """
    inputs = resolve(report.scenario)
    steps = inputs.steps
    if report.tpot is None or steps is None:
        return None
    requests = _held_still(report)
    longest = longest_held(inputs, requests, at_most=report.scenario.max_model_len)
    points = tuple(_conversation_point(inputs, steps, requests, tokens) for tokens in _lengths(report, longest))
    here = steps.at(batch=requests, context_tokens=report.context_tokens)
    later = steps.at(batch=requests, context_tokens=report.context_tokens + 1_000)
    return ConversationCurve(
        requests=requests,
        longest_tokens=longest,
        points=points,
        growth_s_per_1000_tokens=later.typical_s - here.typical_s,
        sentence=_conversation_sentence(points, requests, longest, limit=report.scenario.max_model_len),
    )


def _held_still(report: Report) -> int:
    """Requests on one replica that every length is asked for: the wanted ones as far as they run. [requests]"""
    running, wanted = max(report.concurrency, 1), report.scenario.target_requests
    return running if wanted is None else min(running, ceil_div(wanted, report.scenario.replicas))


def _lengths(report: Report, longest: int) -> list[int]:
    limit = report.scenario.max_model_len
    lengths = [report.context_tokens, limit, longest]
    tokens = min(_FIRST_TOKENS, limit)
    lengths += [knee for _, knee in report.knees if tokens < knee < limit]
    while tokens < limit:
        lengths.append(tokens)
        tokens *= 2
    return sorted({length for length in lengths if length})


def _conversation_sentence(points: tuple[ConversationPoint, ...], requests: int, longest: int, *, limit: int) -> str:
    held = "1 request" if requests == 1 else f"{fmt_count(requests)} requests"
    drawn = [point for point in points if point.fits]
    if not drawn:
        return f"{held} do not fit at any length."
    first, last = drawn[0], drawn[-1]
    text = (
        f"With {held} throughout, a token takes {fmt_ms(first.typical_s)} at {fmt_tokens(first.context_tokens)} tokens"
    )
    if last is not first:
        text += f" and {fmt_ms(last.typical_s)} at {fmt_tokens(last.context_tokens)}"
    if longest < limit:
        return f"{text}; past that the KV pool is full, and some would wait."
    return f"{text}."


def _conversation_point(inputs: Inputs, steps: StepPlan, requests: int, tokens: int) -> ConversationPoint:
    step = steps.at(batch=requests, context_tokens=tokens)
    return ConversationPoint(
        context_tokens=tokens,
        typical_s=step.typical_s,
        low_s=step.low_s,
        high_s=step.high_s,
        weights_s=step.weights_s,
        kv_s=step.kv_s,
        fits=inputs.plan.requests_at(inputs.budget.kv_pool_bytes, tokens) >= requests,
    )


def throughput_curve(report: Report) -> ThroughputCurve | None:
    """Output of one replica from one request to where memory or the engine's cap stops more.

    None when nothing fits or the bandwidth is unknown.
    """
    steps = resolve(report.scenario).steps
    memory, cap = report.capacities.reserved_requests, report.budget.max_num_seqs
    full = min(memory, cap)
    if report.tpot is None or steps is None or not full:
        return None
    evenly = (1 + round((full - 1) * i / (_POINTS - 1)) for i in range(_POINTS))
    chosen = sorted({max(1, report.concurrency), *evenly})
    points = tuple(_throughput_point(steps, requests, report.context_tokens) for requests in chosen)
    return ThroughputCurve(
        points=points,
        stops_at_requests=full,
        memory_stops_it=memory <= cap,
        sentence=_throughput_sentence(points[-1], full, memory_stops_it=memory <= cap),
    )


def _throughput_point(steps: StepPlan, requests: int, context_tokens: int) -> ThroughputPoint:
    step = steps.at(batch=requests, context_tokens=context_tokens)
    rate = matrix_rate(steps.spec, steps.card, steps.weight_precision)
    share = None
    if rate is not None:
        work = requests * decode_flops(steps.spec, context_tokens)
        share = work / (steps.tp * steps.pp * rate * step.typical_s)
    return ThroughputPoint(
        requests=requests,
        tokens_per_s=requests / step.typical_s,
        floor_tokens_per_s=requests / step.floor_s,
        compute_share=share,
    )


def _throughput_sentence(last: ThroughputPoint, full: int, *, memory_stops_it: bool) -> str:
    why = "the KV pool is full" if memory_stops_it else "the engine's cap is reached"
    text = f"Output stops growing at {fmt_count(full)} requests, where {why}"
    if last.compute_share is None:
        return f"{text}."
    return f"{text}; decoding then uses {fmt_percent(last.compute_share)} of the compute."
