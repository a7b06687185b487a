"""What one request of a scenario costs: KV, first token, time per token, GPU time and, with a price, money."""

from __future__ import annotations

from kvcalc.cache import kv_bytes_per_sequence
from kvcalc.errors import Record
from kvcalc.evaluation import Answer, answer
from kvcalc.first_token import prompt_alone
from kvcalc.inputs import Inputs
from kvcalc.latency import Band, StepTime
from kvcalc.scenario import Scenario

_HOURS_PER_MONTH = 730
"""365 days × 24 hours ÷ 12. [h]"""
_SECONDS_PER_HOUR = 3600


class RequestFigures(Record):
    """One request of a scenario, and how many of them run at once."""

    prompt_tokens: int
    """Prompt. [tokens]"""
    output_tokens: int
    """Output. [tokens]"""
    requests: int
    """Requests at once, over all replicas. [requests]"""
    requests_per_replica: int
    """The same on one replica. [requests]"""
    memory_requests: int
    """Requests the KV memory of one replica holds, whatever the speed target says. [requests]"""
    kv_bytes: int
    """Ideal KV of one request over the whole replica, repeats included. [bytes]"""
    reserved_bytes: int
    """What the engine sets aside for it on the busiest GPU. [bytes/GPU]"""
    ttft: Band | None
    """Prefill on an idle replica, without what the prefix cache holds; None when it cannot be known."""
    tpot: Band | None
    """Time per token with that many requests at once; None when none fits or the bandwidth is unknown."""
    gpu_s: float | None
    """GPU time of one request on a full replica: its prefill and its share of the decode steps. [GPU s]"""
    cents: float | None
    """Price of one request; None without a typed price. [US cents]"""

    @property
    def context_tokens(self) -> int:
        """Prompt and output. [tokens]"""
        return self.prompt_tokens + self.output_tokens


def request_figures(scenario: Scenario) -> RequestFigures:
    """What one request of this scenario costs. Raises KvcalcError."""
    return figures_of(answer(scenario))


def figures_of(found: Answer, *, requests_per_replica: int | None = None) -> RequestFigures:
    """The same from an answer at hand.

    requests_per_replica  another count than the answer's: what sharing a prefix allows, for one [requests]
    """
    inputs, scenario = found.inputs, found.inputs.scenario
    count = found.concurrency if requests_per_replica is None else requests_per_replica
    ttft = prompt_alone(inputs)
    step = step_of(inputs, count)
    seconds = gpu_seconds(scenario, ttft, step, count)
    return RequestFigures(
        prompt_tokens=scenario.prompt_tokens,
        output_tokens=scenario.output_tokens,
        requests=count * scenario.replicas,
        requests_per_replica=count,
        memory_requests=found.memory_requests,
        kv_bytes=whole_kv_bytes(inputs),
        reserved_bytes=inputs.plan.reserved_bytes(scenario.context_tokens),
        ttft=ttft,
        tpot=None if step is None else Band(low_s=step.low_s, typical_s=step.typical_s, high_s=step.high_s),
        gpu_s=seconds,
        cents=price_of(scenario, seconds),
    )


def whole_kv_bytes(inputs: Inputs) -> int:
    """Ideal KV of one request over the whole replica: every rank's, repeats included. [bytes]"""
    scenario = inputs.scenario
    rank = kv_bytes_per_sequence(
        inputs.spec,
        context_tokens=scenario.context_tokens,
        kv_precision=scenario.kv_precision,
        state_precision=scenario.state_precision,
        tp=scenario.tp,
        dcp=scenario.dcp,
    )
    return rank * scenario.tp


def step_of(inputs: Inputs, requests: int) -> StepTime | None:
    """The decode step of this many of the scenario's requests; None for none, or an unknown bandwidth."""
    if inputs.steps is None or not requests:
        return None
    return inputs.steps.at(batch=requests, context_tokens=inputs.scenario.context_tokens)


def gpu_seconds(scenario: Scenario, ttft: Band | None, step: StepTime | None, requests: int) -> float | None:
    """GPU time of one request on a full replica, typical times; None where they are not known. [GPU s]"""
    if ttft is None or step is None or not requests:
        return None
    return gpu_seconds_of(
        gpus=scenario.tp * scenario.pp,
        prefill_s=ttft.typical_s,
        output_tokens=scenario.output_tokens,
        # A busy server's step has a share of other prompts in it; here each request pays for its own.
        step_s=step.typical_s - step.prefill_mix_s,
        requests=requests,
    )


def gpu_seconds_of(*, gpus: int, prefill_s: float, output_tokens: int, step_s: float, requests: int) -> float:
    """GPU time of one request: a prompt has the replica to itself while it is computed, a step is shared by all.

    Equation   GPUs × (prefill + output × time per token / requests at once)   [GPU s]
    """
    return gpus * (prefill_s + output_tokens * step_s / requests)


def price_of(scenario: Scenario, gpu_s: float | None) -> float | None:
    """Price of GPU time at the typed price and the planned use of the fleet; None without a price. [US cents]"""
    if gpu_s is None or scenario.price_cents_per_gpu_hour is None:
        return None
    return cents_of(
        gpu_s, cents_per_gpu_hour=scenario.price_cents_per_gpu_hour, used_pct=scenario.fleet_utilization_pct
    )


def cents_of(gpu_s: float, *, cents_per_gpu_hour: int, used_pct: int) -> float:
    """Price of GPU time on a fleet that is used to this share: idle time is paid for too. [US cents]"""
    return gpu_s / _SECONDS_PER_HOUR * cents_per_gpu_hour * 100 / used_pct


def per_month(scenario: Scenario, cents: float | None) -> float | None:
    """Price of a month at the typed traffic; None without traffic or price. [US cents]"""
    if cents is None or scenario.requests_per_hour is None:
        return None
    return cents * scenario.requests_per_hour * _HOURS_PER_MONTH
