"""From traffic to replicas to money: requests per hour, requests in flight, GPUs, cost per request and per token.

Times are estimates and stay floats; money is whole cents and exact fractions of them, and only prices that the user
typed enter it.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

from kvcalc.errors import Assumption, Record
from kvcalc.evaluation import Answer, answer
from kvcalc.first_token import prompt_alone
from kvcalc.inputs import Inputs, cached_tokens
from kvcalc.latency import StepPlan
from kvcalc.scenario import Scenario
from kvcalc.units import ceil_div, fmt_cents, fmt_count, fmt_percent, fmt_tokens
from kvcalc.verdict import FITS

_SECONDS_PER_HOUR = 3600
_MILLION = 10**6
_P95 = 1.6449
"""Standard deviations from the median to the 95th percentile of a normal distribution."""
_SHARES = 10_000
"""The split of a step between prompts and output is an estimate: money uses it to one part in this many."""


class Lengths(Record):
    """How long the requests of a traffic are."""

    prompt_mean: int
    """Mean prompt. [tokens]"""
    output_mean: int
    """Mean output. [tokens]"""
    context_p95: int
    """95th percentile prompt and 95th percentile output together. [tokens]"""


class Cost(Record):
    """What a fleet costs, from the price the user typed. Rented spares are paid like the rest."""

    cents_per_hour: int
    """All GPUs. [US cents/h]"""
    cents_per_request: Fraction
    """At this traffic. [US cents]"""
    cents_per_million_tokens: Fraction
    """Input and output alike. [US cents]"""
    cents_per_million_input: Fraction | None
    """Input tokens, for the share of time their prefill takes; None where that is unknown. [US cents]"""
    cents_per_million_output: Fraction | None
    """Output tokens, for the rest of the time; None without output. [US cents]"""


class Fleet(Record):
    """Replicas that serve a traffic."""

    requests_per_hour: int
    """Arriving requests. [requests/h]"""
    lengths: Lengths
    """How long they are."""
    fits: bool
    """Whether a replica holds one request of the 95th percentile; everything below is 0 when not."""
    most_per_replica: int
    """Requests of the 95th percentile one replica can run at once within the targets. [requests]"""
    planned_per_replica: int
    """The share of those the fleet is planned for. [requests]"""
    replica_requests_per_hour: float
    """Requests one replica finishes at the planned load. [requests/h]"""
    serving_replicas: int
    """Replicas the traffic needs. [replicas]"""
    replicas: int
    """With one spare. [replicas]"""
    gpus: int
    """All of them. [GPUs]"""
    requests_in_flight: float
    """Arriving rate x time in the system, over the serving replicas. [requests]"""
    in_flight_per_replica: int
    """Whole requests at once on a serving replica, at which its times are taken. [requests]"""
    tpot_s: float
    """Typical time per token then, prompts of others mixed in. [s]"""
    ttft_s: float
    """Prefill of a mean prompt, without a queue. [s]"""
    time_in_system_s: float
    """First token and all others of a mean request. [s]"""
    utilization: float
    """Requests in flight over the most that the serving replicas could run. [ratio]"""
    cost: Cost | None
    """None without a typed price."""
    sentence: str
    """The same in words."""
    assumptions: tuple[Assumption, ...]
    """What was taken for granted."""

    def served_by(self, replicas: int) -> float:
        """Traffic that this many serving replicas finish at the planned load. [requests/h]"""
        return replicas * self.replica_requests_per_hour


def lengths_of(scenario: Scenario) -> Lengths:
    """Mean and tail of the scenario's lengths. Without a 95th percentile every request has the given length."""
    prompt_p95 = max(scenario.prompt_tokens_p95 or 0, scenario.prompt_tokens)
    output_p95 = max(scenario.output_tokens_p95 or 0, scenario.output_tokens)
    return Lengths(
        prompt_mean=mean_length(scenario.prompt_tokens, p95=prompt_p95),
        output_mean=mean_length(scenario.output_tokens, p95=output_p95),
        context_p95=prompt_p95 + output_p95,
    )


def mean_length(median: int, *, p95: int) -> int:
    """Mean of lengths spread log-normally through a median and a 95th percentile, to a whole token.

    Equation   mean = median x exp(s^2 / 2),   s = ln(p95 / median) / 1.645

    >>> mean_length(1_000, p95=1_000), mean_length(1_000, p95=8_000)
    (1000, 2223)
    """
    if not median or p95 == median:
        return median
    spread = math.log(p95 / median) / _P95
    return round(median * math.exp(spread * spread / 2))


def fleet(scenario: Scenario) -> Fleet | None:
    """Replicas, with one spare, that serve the scenario's traffic, and what they cost.

    Equation   in flight = arrivals x (prefill + output x TPOT(in flight))                 Little's law, per replica
               planned   = utilisation x most requests of p95 length within memory, cap and targets
               replicas  = ceil(arrivals x time in the system at the planned load / planned) + 1 spare

    Returns
    -------
    Fleet, or None without ``requests_per_hour`` or without the GPU's bandwidth.

    Raises
    ------
    KvcalcError    an input that cannot be used.

    Source
    ------
    J. D. C. Little, A Proof for the Queuing Formula L = lambda W, 1961.
    """
    if scenario.requests_per_hour is None:
        return None
    lengths = lengths_of(scenario)
    # One request of the tail decides what a replica must hold; the mean decides how long it stays.
    output_p95 = max(scenario.output_tokens_p95 or 0, scenario.output_tokens)
    tail = {"prompt_tokens": lengths.context_p95 - output_p95, "output_tokens": output_p95}
    found = answer(scenario.model_copy(update={**tail, "target_requests": None, "busy": True}))
    load = _load(scenario, lengths, found.inputs)
    if load is None:
        return None
    if found.verdict not in FITS or not found.concurrency:
        return _unfit(scenario, lengths, found)
    return _sized(scenario, lengths, found, load)


class _Load(NamedTuple):
    """Times of a mean request on one replica."""

    steps: StepPlan
    context_tokens: int
    output_tokens: int
    prefill_s: float

    def stay_s(self, requests: int) -> float:
        """Time in the system when this many run at once. [s]"""
        return self.prefill_s + self.output_tokens * self.tpot_s(requests)

    def tpot_s(self, requests: int) -> float:
        return self.steps.at(batch=requests, context_tokens=self.context_tokens).typical_s


def _load(scenario: Scenario, lengths: Lengths, inputs: Inputs) -> _Load | None:
    if inputs.steps is None:
        return None
    mean = inputs._replace(
        scenario=scenario.model_copy(
            update={
                "prompt_tokens": lengths.prompt_mean,
                "cached_prompt_tokens": min(scenario.cached_prompt_tokens, lengths.prompt_mean),
                "output_tokens": lengths.output_mean,
            }
        )
    )
    alone = prompt_alone(mean)
    new = lengths.prompt_mean - cached_tokens(mean.scenario, mean.plan)
    return _Load(
        steps=inputs.steps.busy(prompt_tokens=new, output_tokens=max(1, lengths.output_mean)),
        # Over its life a request holds its prompt and, on average, half its output.
        context_tokens=lengths.prompt_mean + ceil_div(lengths.output_mean, 2),
        output_tokens=lengths.output_mean,
        prefill_s=0.0 if alone is None else alone.typical_s,
    )


def _sized(scenario: Scenario, lengths: Lengths, found: Answer, load: _Load) -> Fleet:
    arrivals = (scenario.requests_per_hour or 0) / _SECONDS_PER_HOUR
    most = found.concurrency
    planned = max(1, most * scenario.fleet_utilization_pct // 100)
    serving = max(1, math.ceil(arrivals * load.stay_s(planned) / planned))
    at_once = in_flight(load, arrivals / serving, at_most=planned)
    stay = load.stay_s(at_once)
    gpus = (serving + 1) * scenario.tp * scenario.pp
    cost = _cost(scenario, lengths, load, at_once, gpus=gpus)
    return Fleet(
        requests_per_hour=scenario.requests_per_hour or 0,
        lengths=lengths,
        fits=True,
        most_per_replica=most,
        planned_per_replica=planned,
        replica_requests_per_hour=planned / load.stay_s(planned) * _SECONDS_PER_HOUR,
        serving_replicas=serving,
        replicas=serving + 1,
        gpus=gpus,
        requests_in_flight=arrivals * stay,
        in_flight_per_replica=at_once,
        tpot_s=load.tpot_s(at_once),
        ttft_s=load.prefill_s,
        time_in_system_s=stay,
        utilization=arrivals * stay / (serving * most),
        cost=cost,
        sentence=_sentence(scenario, serving=serving, gpus=gpus, in_flight=arrivals * stay, cost=cost),
        assumptions=_assumptions(scenario),
    )


def in_flight(load: _Load, arrivals_per_s: float, *, at_most: int) -> int:
    """Fewest whole requests at once that keep up: n >= arrivals x stay(n). [requests]

    A replica finishes n / stay(n) requests a second, which never falls as n grows, so bisection finds it.
    """
    low, high = 0, at_most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if arrivals_per_s * load.stay_s(middle) <= middle else (middle, high)
    return high


def _cost(scenario: Scenario, lengths: Lengths, load: _Load, at_once: int, *, gpus: int) -> Cost | None:
    price, requests = scenario.price_cents_per_gpu_hour, scenario.requests_per_hour
    tokens = lengths.prompt_mean + lengths.output_mean
    if price is None or not requests or not tokens:
        return None
    hour = price * gpus
    step = load.steps.at(batch=at_once, context_tokens=load.context_tokens)
    alone = at_once == 1 or not lengths.output_mean
    # With nobody beside it a request's prompt and output follow each other; else they share the steps.
    part = load.prefill_s / load.stay_s(1) if alone else step.prefill_mix_s / step.typical_s
    inputs = Fraction(round(part * _SHARES), _SHARES)
    return Cost(
        cents_per_hour=hour,
        cents_per_request=Fraction(hour, requests),
        cents_per_million_tokens=Fraction(hour * _MILLION, requests * tokens),
        cents_per_million_input=Fraction(hour * _MILLION, requests * lengths.prompt_mean) * inputs
        if inputs and lengths.prompt_mean
        else None,
        cents_per_million_output=Fraction(hour * _MILLION, requests * lengths.output_mean) * (1 - inputs)
        if lengths.output_mean
        else None,
    )


def _unfit(scenario: Scenario, lengths: Lengths, found: Answer) -> Fleet:
    return Fleet(
        requests_per_hour=scenario.requests_per_hour or 0,
        lengths=lengths,
        fits=False,
        most_per_replica=0,
        planned_per_replica=0,
        replica_requests_per_hour=0.0,
        serving_replicas=0,
        replicas=0,
        gpus=0,
        requests_in_flight=0.0,
        in_flight_per_replica=0,
        tpot_s=0.0,
        ttft_s=0.0,
        time_in_system_s=0.0,
        utilization=0.0,
        cost=None,
        sentence=f"No fleet: a request of the 95th percentile does not run. {found.sentence}",
        assumptions=_assumptions(scenario),
    )


def _sentence(scenario: Scenario, *, serving: int, gpus: int, in_flight: float, cost: Cost | None) -> str:
    replicas = "1 replica" if serving == 1 else f"{fmt_count(serving)} replicas"
    text = (
        f"{fmt_count(scenario.requests_per_hour or 0)} requests per hour are {fmt_count(math.ceil(in_flight))} in "
        f"flight: {replicas} and one spare, {fmt_count(gpus)} GPUs, planned at "
        f"{fmt_percent(scenario.fleet_utilization_pct / 100)} of capacity."
    )
    if cost is None:
        return text
    hour, each = fmt_cents(cost.cents_per_hour), fmt_cents(cost.cents_per_request)
    return f"{text} At the price you typed that is {hour} per hour and {each} per request."


def _assumptions(scenario: Scenario) -> tuple[Assumption, ...]:
    found = [
        Assumption(
            field="longest requests",
            value="95th percentile prompt with 95th percentile output",
            reason="Few requests are long in both, so what a replica must hold is on the safe side.",
        ),
        Assumption(
            field="spare",
            value="one replica",
            reason="The traffic is still served when one replica is down.",
        ),
    ]
    if scenario.prompt_tokens_p95 or scenario.output_tokens_p95:
        found.append(
            Assumption(
                field="mean length",
                value="of a log-normal distribution through median and 95th percentile",
                reason="Time in the system follows the mean, which long requests pull up.",
            )
        )
    else:
        found.append(
            Assumption(
                field="lengths",
                value=f"{fmt_tokens(scenario.context_tokens)} tokens for every request",
                reason="No 95th percentile was given.",
            )
        )
    return tuple(found)
