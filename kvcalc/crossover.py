"""Where reading the KV cache costs a decode step more bandwidth than reading the weights."""

from __future__ import annotations

from collections.abc import Callable

from kvcalc.errors import Record
from kvcalc.inputs import longest_held, resolve
from kvcalc.latency import StepPlan
from kvcalc.report import Report
from kvcalc.units import fmt_count, fmt_tokens

_LONGEST = 2**40
"""Tokens nobody asks for. [tokens]"""
_MOST_REQUESTS = 2**16
"""Requests no replica decodes at once. [requests]"""


class Crossover(Record):
    """The two edges past which KV traffic is larger than weight traffic, on the busiest GPU."""

    requests: int
    """Requests decoding at once, for the edge in context. [requests]"""
    context_tokens: int
    """Context of each, for the edge in requests. [tokens]"""
    edge_context_tokens: int | None
    """Longest context at these requests whose KV costs no more than the weights; None when every one does. [tokens]"""
    edge_requests: int | None
    """Most requests at this context whose KV costs no more than the weights; None when any number does. [requests]"""
    kv_share: float
    """Share of KV in the bytes of a step at these requests and this context. [ratio]"""
    sentence: str
    """The same in words."""


def crossover(report: Report) -> Crossover | None:
    """Both edges of a report's scenario; None when nothing fits or the bandwidth is unknown."""
    inputs = resolve(report.scenario)
    steps = inputs.steps
    if report.tpot is None or steps is None:
        return None
    requests, context = max(report.concurrency, 1), report.context_tokens
    longest = longest_held(inputs, requests, at_most=report.longest_context_tokens)
    return crossover_of(steps, requests=requests, context_tokens=context, longest_tokens=longest)


def crossover_of(
    steps: StepPlan, *, requests: int, context_tokens: int, longest_tokens: int | None = None
) -> Crossover:
    """Both edges, exact to the token and to the request.

    Equation   requests x KV read per request(context) > weights read(requests)

    KV read never falls with context; weights read grow ever slower with requests while KV read is proportional to
    them: each side changes over once, so bisection finds it.

    Parameters
    ----------
    requests : decoding at once. [requests]
    context_tokens : of each. [tokens]
    longest_tokens : for the sentence: a context past it is not offered as an edge. [tokens]
    """
    weights = steps.weight_bytes(requests)
    edge_context = _last(lambda tokens: requests * steps.kv_bytes(tokens) <= weights, _LONGEST)
    each = steps.kv_bytes(context_tokens)
    edge_requests = _last(lambda count: count < 1 or count * each <= steps.weight_bytes(count), _MOST_REQUESTS)
    kv = requests * each
    return Crossover(
        requests=requests,
        context_tokens=context_tokens,
        edge_context_tokens=edge_context,
        edge_requests=edge_requests,
        kv_share=kv / (kv + weights),
        sentence=_sentence(edge_context, edge_requests, requests, context_tokens, longest_tokens),
    )


def _last(holds: Callable[[int], bool], most: int) -> int | None:
    """Last whole number from 0 for which it holds, -1 when it holds for none; None when it still does at ``most``."""
    if not holds(0):
        return -1
    low, high = 0, 1
    while holds(high):
        low, high = high, 2 * high
        if low >= most:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _sentence(
    edge_context: int | None, edge_requests: int | None, requests: int, context: int, longest: int | None
) -> str:
    at_once = _requests(requests)
    if edge_context is None or (longest is not None and edge_context >= longest):
        return f"At {at_once} the weights cost more bandwidth than the cache at every context that fits."
    if edge_context < 1:
        text = f"At {at_once} the cache costs more bandwidth than the weights at any length"
    else:
        text = f"Past {fmt_tokens(edge_context)} tokens at {at_once} the cache costs more bandwidth than the weights"
    if edge_requests is None:
        return f"{text}."
    if edge_requests < 1:
        return f"{text}; at {fmt_tokens(context)} tokens each, from the first request."
    return f"{text}; at {fmt_tokens(context)} tokens each, past {_requests(edge_requests)}."


def _requests(count: int) -> str:
    return "1 request" if count == 1 else f"{fmt_count(count)} requests"
