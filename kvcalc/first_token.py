"""Time to the first token of a scenario: the prompt alone, and what a busy replica adds to it."""

from __future__ import annotations

from kvcalc.errors import Record
from kvcalc.inputs import Inputs, cached_tokens
from kvcalc.latency import Band, prefill_time
from kvcalc.units import ceil_div


class BusyFirstToken(Record):
    """Time to the first token where other requests are decoding and their prompts arrive: typical, by cause."""

    requests: int
    """Requests in flight, this one included. [requests]"""
    prefill_s: float
    """Computing the prompt, as on an idle replica. [s]"""
    decode_s: float
    """Decoding the others in the steps that compute the prompt. [s]"""
    queue_s: float
    """Waiting on average for prompts that came before. [s]"""
    typical_s: float
    """All three. [s]"""


def prompt_alone(inputs: Inputs) -> Band | None:
    """Prefill of the scenario's prompt on an idle replica, cached blocks left out; None where rates are unknown."""
    scenario, gpu = inputs.scenario, inputs.gpu
    if gpu.bf16_flops_per_s is None or gpu.bandwidth_bytes_per_s is None or not scenario.prompt_tokens:
        return None
    return prefill_time(
        inputs.spec,
        gpu=gpu,
        tp=scenario.tp,
        pp=scenario.pp,
        prompt_tokens=scenario.prompt_tokens,
        cached_tokens=cached_tokens(scenario, inputs.plan),
        chunk_tokens=inputs.budget.max_num_batched_tokens if scenario.chunked_prefill else None,
        weight_precision=scenario.weight_precision,
    )


def busy_first_token(inputs: Inputs, alone: Band | None, *, requests: int) -> BusyFirstToken | None:
    """First token on a replica that keeps this many requests in flight, each replaced when it ends.

    Equation   prefill + steps of the prompt x decode step of the others + queue
               queue = rho x prefill / (2 x (1 - rho)),   rho = prefill share of a step

    The queue is the mean wait of Poisson arrivals for a server with one fixed service time (M/D/1). None when
    the scenario is not busy or its prefill is unknown.

    Parameters
    ----------
    alone : prefill on an idle replica.
    requests : in flight, this one included. [requests]

    Source
    ------
    Pollaczek-Khinchine formula for constant service time.
    """
    scenario, steps = inputs.scenario, inputs.steps
    if not scenario.busy or alone is None or steps is None:
        return None
    decode = queue = 0.0
    if requests > 1:
        others = steps.at(batch=requests - 1, context_tokens=scenario.context_tokens)
        decode = _prompt_steps(inputs, requests) * (others.typical_s - others.prefill_mix_s)
        share = others.prefill_mix_s / others.typical_s
        queue = share * alone.typical_s / (2 * (1 - share))
    return BusyFirstToken(
        requests=requests,
        prefill_s=alone.typical_s,
        decode_s=decode,
        queue_s=queue,
        typical_s=alone.typical_s + decode + queue,
    )


def _prompt_steps(inputs: Inputs, requests: int) -> int:
    """Steps a prompt is spread over, beside the tokens that the other requests decode. [steps]"""
    scenario = inputs.scenario
    if not scenario.chunked_prefill:
        return 1
    room = max(1, inputs.budget.max_num_batched_tokens - (requests - 1))
    return max(1, ceil_div(scenario.prompt_tokens - cached_tokens(scenario, inputs.plan), room))


def most_requests_in_time(inputs: Inputs, alone: Band | None, *, at_most: int) -> int | None:
    """Most requests whose typical first token meets the target; None where they do not matter. [requests]

    On an idle replica the first token does not depend on how many decode: met for all (None) or for none (0).
    On a busy one it never falls as requests are added, so bisection finds the edge.
    """
    target_ms = inputs.scenario.target_ttft_ms
    if target_ms is None or alone is None:
        return None
    if alone.typical_s > target_ms / 1000:
        return 0
    if not inputs.scenario.busy or inputs.steps is None:
        return None
    fits, too_many = 1, at_most + 1
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        fits, too_many = (middle, too_many) if in_time(inputs, alone, requests=middle) else (fits, middle)
    return fits


def in_time(inputs: Inputs, alone: Band | None, *, requests: int) -> bool:
    """Whether the typical first token meets the target with this many in flight; it does where none is known."""
    target_ms = inputs.scenario.target_ttft_ms
    if target_ms is None or alone is None:
        return True
    busy = busy_first_token(inputs, alone, requests=requests)
    return (alone.typical_s if busy is None else busy.typical_s) <= target_ms / 1000
