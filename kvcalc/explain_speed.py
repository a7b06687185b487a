"""The arithmetic of speed: time per token, first token, shared prefix, drafted tokens, and the fleet for a traffic."""

from __future__ import annotations

from fractions import Fraction

from kvcalc.arithmetic import Section, Step
from kvcalc.crossover import crossover
from kvcalc.fleet import Fleet, fleet
from kvcalc.report import Report
from kvcalc.units import (
    fmt_bytes,
    fmt_cents,
    fmt_count,
    fmt_gib,
    fmt_ms,
    fmt_ms_band,
    fmt_percent,
    fmt_rate,
    fmt_ratio,
    fmt_seconds,
    fmt_seconds_band,
    fmt_tokens,
)

_TIME = "METHODOLOGY, Time per token"
_FIRST = "METHODOLOGY, First token"
_TRAFFIC = "METHODOLOGY, Traffic and replicas"


def speed_sections(report: Report) -> list[Section]:
    """Sections for every figure about speed that the report has."""
    sections = []
    if report.tpot is not None:
        sections.append(_time(report))
    if report.ttft is not None:
        sections.append(_first_token(report))
    if report.drafted is not None:
        sections.append(_drafted(report))
    if report.scenario.requests_per_hour is not None:
        found = fleet(report.scenario)
        if found is not None and found.fits:
            sections.append(_fleet(report, found))
    return sections


def _time(report: Report) -> Section:
    tpot = report.tpot
    assert tpot is not None
    bandwidth = fmt_rate(float(report.gpu.stated_bandwidth_bytes_per_s))
    lines = [
        Step(
            title="Reading weights",
            formula="weight bytes one step reads on a GPU ÷ bandwidth",
            numbers=f"{fmt_gib(tpot.weight_bytes, 2)} ÷ {bandwidth}",
            value=fmt_ms(tpot.weights_s, 1),
            source=_TIME,
        ),
        Step(
            title="Reading KV",
            formula="KV bytes one step reads on a GPU, over all requests ÷ bandwidth",
            numbers=f"{fmt_gib(tpot.kv_bytes, 2)} ÷ {bandwidth}",
            value=fmt_ms(tpot.kv_s, 1),
            source=_TIME,
        ),
        Step(
            title="Physical floor",
            formula="reading weights + reading KV",
            numbers=f"{fmt_ms(tpot.weights_s, 1)} + {fmt_ms(tpot.kv_s, 1)}",
            value=fmt_ms(tpot.floor_s, 1),
            source=_TIME,
        ),
        Step(
            title="Typical, fast end and slow end",
            formula="floor at the bandwidth engines reach, plus a fixed time per layer; the band holds 8 in 10",
            numbers=f"typical {fmt_ms(tpot.typical_s, 1)}, floor {fmt_ms(tpot.floor_s, 1)}",
            value=fmt_ms_band(tpot.low_s, tpot.high_s),
            source=_TIME,
        ),
    ]
    lines += _mixing(report)
    lines += _crossover(report)
    return Section(title=f"Time per token: {fmt_ms_band(tpot.low_s, tpot.high_s)}", steps=tuple(lines))


def _mixing(report: Report) -> list[Step]:
    """The share of a step that goes to other requests' prompts, on a busy server."""
    tpot = report.tpot
    if tpot is None or not report.scenario.busy:
        return []
    return [
        Step(
            title="Prompts of others in a step",
            formula="requests × time of one prompt ÷ output tokens",
            numbers=f"{fmt_count(max(report.concurrency, 1))} requests, one prompt for every "
            f"{fmt_tokens(report.scenario.output_tokens)} steps of each",
            value=fmt_ms(tpot.prefill_mix_s, 1),
            source=_TIME,
        )
    ]


def _crossover(report: Report) -> list[Step]:
    tpot, edge = report.tpot, crossover(report)
    if tpot is None or edge is None:
        return []
    return [
        Step(
            title="Cache against weights",
            formula="requests × KV read per request against weights read: which is more bytes per step",
            numbers=f"{fmt_gib(tpot.kv_bytes, 2)} against {fmt_gib(tpot.weight_bytes, 2)}",
            value=f"KV is {fmt_percent(edge.kv_share)} of what is read",
            source=_TIME,
        )
    ]


def _first_token(report: Report) -> Section:
    alone, busy = report.ttft, report.first_token
    assert alone is not None
    lines = [
        *_prefix(report),
        Step(
            title="Prefill alone",
            formula="(2 × parameters used + attention) × new prompt tokens ÷ compute the engine reaches; no queue",
            numbers=f"{fmt_tokens(report.scenario.prompt_tokens)} prompt tokens"
            + (f", {fmt_tokens(report.prefix.usable_tokens)} of them cached" if report.prefix is not None else ""),
            value=fmt_seconds_band(alone.low_s, alone.high_s),
            source=_FIRST,
        ),
    ]
    if busy is not None:
        lines += [
            Step(
                title="Decoding others meanwhile",
                formula="steps the prompt takes × decode step of the others",
                numbers=f"{fmt_count(busy.requests - 1)} others",
                value=fmt_seconds(busy.decode_s),
                source=_FIRST,
            ),
            Step(
                title="Queue",
                formula="ρ × prefill ÷ (2 × (1 − ρ)), ρ the share of a step that prompts take",
                numbers=f"prefill {fmt_seconds(busy.prefill_s)}",
                value=fmt_seconds(busy.queue_s),
                source=_FIRST,
            ),
            Step(
                title="First token on a busy replica",
                formula="prefill + decoding others + queue",
                numbers=f"{fmt_seconds(busy.prefill_s)} + {fmt_seconds(busy.decode_s)} + {fmt_seconds(busy.queue_s)}",
                value=fmt_seconds(busy.typical_s),
                source=_FIRST,
            ),
        ]
    return Section(title=f"First token: {fmt_seconds_band(alone.low_s, alone.high_s)}", steps=tuple(lines))


def _prefix(report: Report) -> list[Step]:
    found = report.prefix
    if found is None:
        return []
    block = fmt_tokens(found.block_tokens)
    return [
        Step(
            title="Prompt tokens the prefix cache spares",
            formula="shared prefix ÷ block, rounded down, × block; the last prompt token is always computed",
            numbers=f"{fmt_tokens(found.cached_tokens)} ÷ {block}, × {block}",
            value=f"{fmt_tokens(found.usable_tokens)} tokens",
            source=_FIRST,
        ),
        Step(
            title="KV each further sharer does without",
            formula="KV reserved for the whole context − KV reserved without the prefix, busiest GPU",
            numbers=f"{fmt_tokens(report.context_tokens)} tokens against "
            f"{fmt_tokens(report.context_tokens - found.usable_tokens)}",
            value=fmt_bytes(found.bytes_per_sharer),
            source=_FIRST,
        ),
    ]


def _drafted(report: Report) -> Section:
    tpot, drafted = report.tpot, report.drafted
    assert tpot is not None
    assert drafted is not None
    band = fmt_ms_band(drafted.low_s, drafted.high_s)
    return Section(
        title=f"With drafted tokens, as measured elsewhere: {band}",
        steps=(
            Step(
                title="Time per token with drafted tokens",
                formula="fast end ÷ most gain measured to slow end ÷ least gain measured",
                numbers=f"{fmt_ms(tpot.low_s, 1)} ÷ {fmt_ratio(drafted.speedup_high)} to "
                f"{fmt_ms(tpot.high_s, 1)} ÷ {fmt_ratio(drafted.speedup_low)}",
                value=band,
                source="; ".join(drafted.sources),
            ),
            Step(
                title="Memory of drafting, busiest GPU",
                formula="weights with draft layers − weights without; KV per request likewise",
                numbers=f"{fmt_bytes(drafted.weights_bytes)} and {fmt_bytes(drafted.kv_bytes_per_request)} per request",
                value=fmt_bytes(drafted.weights_bytes),
                source="METHODOLOGY, Weights",
            ),
        ),
    )


def _fleet(report: Report, found: Fleet) -> Section:
    scenario, lengths = report.scenario, found.lengths
    lines = [
        Step(
            title="Most requests of one replica",
            formula="requests of the 95th percentile that memory, cap and targets admit",
            numbers=f"{fmt_tokens(lengths.context_p95)} tokens each",
            value=fmt_count(found.most_per_replica),
            source=_TRAFFIC,
        ),
        Step(
            title="Planned requests of one replica",
            formula="most × planned share, rounded down",
            numbers=f"{fmt_count(found.most_per_replica)} × {fmt_percent(scenario.fleet_utilization_pct / 100)}",
            value=fmt_count(found.planned_per_replica),
            source=_TRAFFIC,
        ),
        Step(
            title="Time in the system",
            formula="prefill + output × time per token, of a mean request",
            numbers=f"{fmt_seconds(found.ttft_s)} + {fmt_tokens(lengths.output_mean)} × {fmt_ms(found.tpot_s, 1)}",
            value=fmt_seconds(found.time_in_system_s),
            source=_TRAFFIC,
        ),
        Step(
            title="Requests in flight",
            formula="arrivals × time in the system (Little's law)",
            numbers=f"{fmt_count(found.requests_per_hour)} ÷ 3,600 s × {fmt_seconds(found.time_in_system_s)}",
            value=fmt_ratio(round(found.requests_in_flight, 1)),
            source=_TRAFFIC,
        ),
        Step(
            title="Replicas",
            formula="arrivals ÷ what one replica finishes at the planned load, rounded up, + 1 spare",
            numbers=f"{fmt_count(found.requests_per_hour)} ÷ {_rate(found.replica_requests_per_hour)} + 1",
            value=fmt_count(found.replicas),
            source=_TRAFFIC,
        ),
    ]
    return Section(title=f"Fleet: {fmt_count(found.replicas)} replicas", steps=(*lines, *_cost(report, found)))


def _cost(report: Report, found: Fleet) -> list[Step]:
    cost, price, lengths = found.cost, report.scenario.price_cents_per_gpu_hour, found.lengths
    if cost is None or price is None:
        return []
    hour, requests = fmt_cents(cost.cents_per_hour), fmt_count(found.requests_per_hour)
    lines = [
        Step(
            title="Cost per hour",
            formula="GPUs × price you typed; the spare is paid too",
            numbers=f"{fmt_count(found.gpus)} × {fmt_cents(price)}",
            value=hour,
            source=_TRAFFIC,
        ),
        Step(
            title="Cost per request",
            formula="cost per hour ÷ requests per hour",
            numbers=f"{hour} ÷ {requests}",
            value=fmt_cents(cost.cents_per_request),
            source=_TRAFFIC,
        ),
    ]
    shares = (
        ("input", "prompts take", lengths.prompt_mean, cost.cents_per_million_input),
        ("output", "decoding takes", lengths.output_mean, cost.cents_per_million_output),
    )
    lines += [
        Step(
            title=f"Cost per million {kind} tokens",
            formula=f"cost per hour × share of a step that {work} ÷ {kind} tokens per hour, in millions",
            numbers=f"{hour} × {_share_of(each * _millions_per_hour(found, tokens), cost.cents_per_hour)} "
            f"÷ ({requests} × {fmt_tokens(tokens)} ÷ 1,000,000)",
            value=fmt_cents(each),
            source=_TRAFFIC,
        )
        for kind, work, tokens, each in shares
        if each is not None
    ]
    return lines


def _rate(per_hour: float) -> str:
    """Requests per hour, a slow replica's with the digits that carry meaning."""
    return fmt_count(round(per_hour)) if per_hour >= 10 else f"{per_hour:.3g}"


def _share_of(part: Fraction, whole: int) -> str:
    """A part of a cost; of nothing, whatever the price, there is no share to tell."""
    return fmt_percent(float(part / whole)) if whole else "its share"


def _millions_per_hour(found: Fleet, tokens: int) -> Fraction:
    """Tokens per hour when each request has this many. [million tokens/h]"""
    return Fraction(found.requests_per_hour * tokens, 10**6)
