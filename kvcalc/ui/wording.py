"""Sentences of the page that are not the verdict: notes under figures, captions, and what a chart says aloud.

They only put a report's numbers into words; ``units`` writes each number.
"""

from __future__ import annotations

from kvcalc.crossover import Crossover
from kvcalc.curves import ContextCurve, TpotCurve
from kvcalc.levers import Move
from kvcalc.report import Report
from kvcalc.units import (
    fmt_bytes,
    fmt_count,
    fmt_factor,
    fmt_gib,
    fmt_ms,
    fmt_ms_band,
    fmt_seconds,
    fmt_tokens,
    in_sentence,
)

NONE = "–"


def requests_note(report: Report, moves: tuple[Move, ...]) -> str:
    """Under the first figure: the best move, or the share of each replica."""
    if report.concurrency and report.scenario.replicas > 1:
        return f"{fmt_count(report.concurrency)} on each of {fmt_count(report.scenario.replicas)} replicas"
    if report.would_fit:
        best = report.would_fit[0]
        return f"{fmt_count(best.requests)} with {in_sentence(best.change)}"
    if moves:
        return f"{fmt_count(moves[0].after_requests)} with {in_sentence(moves[0].change)}"
    if not report.fits:
        return "none runs as set"
    return "at once, prompt and output" if report.concurrency else "none meets the target"


def kv_note(report: Report) -> str:
    """Under KV per request: what one more token costs."""
    if not report.kv_bytes_per_token:
        return "whatever its length"
    constant = not report.kv_fixed_bytes and not report.knees
    each = f"{fmt_bytes(report.kv_bytes_per_token)} per {'token' if constant else 'further token'}"
    copies = report.replication_ratio
    return each if copies <= 1 else f"{each}, stored {fmt_factor(copies)}"


def tpot_figure(report: Report) -> str:
    """Time per token as a band."""
    return NONE if report.tpot is None else fmt_ms_band(report.tpot.low_s, report.tpot.high_s)


def tpot_note(report: Report) -> str:
    """Under time per token: the value that a target is held against, and the target."""
    if report.tpot is None:
        return "bandwidth not known" if report.fits else "nothing runs"
    target = report.scenario.target_tpot_ms
    wanted = "no target" if target is None else f"target {fmt_count(target)} ms"
    typical = f"typical {fmt_ms(report.tpot.typical_s)}, {wanted}"
    return typical if report.concurrency else f"one alone: {typical}"


def longest_note(report: Report) -> str:
    """Under the longest context: what the engine is set to."""
    return f"one request; you set {fmt_tokens(report.scenario.max_model_len)}"


def met_first_token(report: Report) -> str | None:
    """The first-token target's name, where an idle replica meets it whatever else decodes: it limits nothing then."""
    target_ms = report.scenario.target_ttft_ms
    limited = any(limit.name == "first_token_target" for limit in report.limits)
    if target_ms is None or report.ttft is None or limited:
        return None
    return f"First token, {fmt_seconds(target_ms / 1000)}"


def pool_note(report: Report) -> str:
    """Under what binds: what the weights leave."""
    weights, card = fmt_gib(report.budget.weights_bytes), fmt_gib(report.budget.memory_bytes)
    tokens = fmt_tokens(report.capacities.reported_tokens)
    text = f"Weights take {weights} of the {card} on each GPU; the KV pool is {fmt_gib(report.budget.kv_pool_bytes)}"
    text += f", {tokens} tokens by the engine's count."
    if report.requests_low != report.requests_high:
        low, high = fmt_count(report.requests_low), fmt_count(report.requests_high)
        text += f" Within the overhead's uncertainty KV memory holds {low} to {high}."
    return text


def tpot_caption(report: Report) -> str:
    """Under the second chart: what the areas are, and the output."""
    tpot = report.tpot
    if tpot is None:
        return ""
    reads = "the weights it uses" if report.model.is_moe else "all weights"
    count = fmt_count(max(report.concurrency, 1))
    text = (
        f"Every token reads {reads} once and the KV of every live request: {fmt_ms(tpot.weights_s, 1)} + "
        f"{fmt_ms(tpot.kv_s, 1)} at {count} {'request' if count == '1' else 'requests'}. "
        "Real servers add overhead, hence the band."
    )
    if report.tokens_per_s is not None:
        text += f" That is about {fmt_count(round(report.tokens_per_s))} tokens a second."
    return text


_MEMORY_NAMES = {
    "non_torch": "Outside PyTorch",
    "activations": "Activations",
    "cuda_graphs": "CUDA graphs",
    "kept_free": "Kept free",
    "driver": "Driver",
}


def memory_name(name: str, label: str) -> str:
    """A line of the budget in as few words as the bar has room for."""
    return _MEMORY_NAMES.get(name, label)


def memory_alt(report: Report) -> str:
    """What the memory bar says."""
    lines = ", ".join(f"{memory_name(line.name, line.label)} {fmt_gib(line.bytes)}" for line in report.budget.lines)
    return f"Memory of one GPU, {fmt_gib(report.budget.memory_bytes)} in all: {lines}."


def context_alt(report: Report, curve: ContextCurve) -> str:
    """What the first chart says."""
    first, last = curve.points[0], curve.points[-1]
    limit = "none stated" if curve.model_limit is None else fmt_tokens(curve.model_limit)
    return (
        f"{report.sentence} Requests at once fall from {fmt_count(int(first.reserved_requests))} at "
        f"{fmt_tokens(first.context_tokens)} tokens to {fmt_count(int(last.reserved_requests))} at "
        f"{fmt_tokens(last.context_tokens)}. You: {fmt_count(report.concurrency)} at "
        f"{fmt_tokens(report.context_tokens)}. Engine limit {fmt_tokens(curve.engine_limit)}, model limit {limit}."
    )


def tpot_alt(curve: TpotCurve, edge: Crossover | None) -> str:
    """What the second chart says."""
    first, last = curve.points[0], curve.points[-1]
    text = (
        f"Typical time per token grows from {fmt_ms(first.typical_s)} at {fmt_count(first.requests)} to "
        f"{fmt_ms(last.typical_s)} at {fmt_count(last.requests)} requests at once, between "
        f"{fmt_ms_band(last.low_s, last.high_s)} there; physical floor {fmt_ms(last.floor_s)}."
    )
    return text if edge is None else f"{text} {edge.sentence}"
