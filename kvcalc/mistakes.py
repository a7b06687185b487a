"""Mistakes people make in sizing, found in a report: one sentence with the number, and the move that mends it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kvcalc import measured
from kvcalc.errors import KvcalcError, Record
from kvcalc.evaluation import answer
from kvcalc.inputs import resolve
from kvcalc.report import Report
from kvcalc.scenario import Scenario
from kvcalc.units import ceil_div, fmt_bytes, fmt_count, fmt_factor, fmt_gib, fmt_percent, fmt_seconds, fmt_tokens
from kvcalc.verdict import FITS

_FEW_AT_THE_LIMIT = 2
"""Requests of the context limit below which it cannot be batched. [requests]"""
_FAR_ABOVE_P95, _FAR_ABOVE_MEDIAN = 4, 16
"""Context limit against the 95th percentile of requests, or their median where that is all one knows. [ratio]"""
_LONG_STALL_S = 0.5
"""A pause everybody notices. [s]"""
_REPEATED = 2.0
_DRAFT_SHARE = 0.1
_FULL_PCT = 95
_ROUND_TOKENS = 1_024


class Mistake(Record):
    """One likely mistake."""

    id: str
    """Which, for tests and anchors."""
    title: str
    """What it is, in a few words."""
    sentence: str
    """What it does here, with the number."""
    move: str
    """What to do."""
    scenario: Scenario | None
    """The scenario with that done; None when nothing in a scenario says it."""


def mistakes(report: Report) -> tuple[Mistake, ...]:
    """Likely mistakes of a scenario, the ones that stop it first; none for a healthy one."""
    checks = (_weights_only, _limit_not_batched, _limit_far_above, _not_chunked, _repeats, _no_headroom, _drafts)
    return tuple(found for check in checks for found in check(report))


def _changed(report: Report, **update: Any) -> Scenario | None:
    """The scenario with the change, if the two go together."""
    try:
        return measured.changed(report.scenario, update)
    except KvcalcError:
        return None


def _weights_only(report: Report) -> Iterator[Mistake]:
    """The weights fit, so the model was taken to fit."""
    budget, context = report.budget, fmt_tokens(report.context_tokens)
    fit = budget.weights_bytes < budget.usable_bytes
    if not fit or report.verdict not in ("does_not_fit", "one_request_too_big", "barely"):
        return
    weights = f"The weights fit, {fmt_gib(budget.weights_bytes)} of {fmt_gib(budget.usable_bytes)} per GPU"
    if report.verdict == "does_not_fit":
        left = f"but with the engine's own memory {fmt_gib(budget.shortfall_bytes)} are missing before any KV cache"
    else:
        each = fmt_bytes(report.reserved_bytes_per_request_per_gpu)
        left = f"but leave {fmt_bytes(budget.kv_pool_bytes)} for KV; one request of {context} tokens takes {each}"
    first = report.would_fit[0] if report.would_fit else None
    yield Mistake(
        id="weights_only",
        title="Only the weights were checked",
        sentence=f"{weights}, {left}.",
        move="Use more or larger GPUs, or smaller weights." if first is None else f"{first.change}.",
        scenario=None if first is None else first.scenario,
    )


def _limit_not_batched(report: Report) -> Iterator[Mistake]:
    """A context limit is advertised that hardly one request can use at a time."""
    scenario, pool = report.scenario, report.budget.kv_pool_bytes
    if report.verdict not in FITS or report.concurrency < _FEW_AT_THE_LIMIT:
        return
    # Steady requests: what an engine charges for tokens in flight when it plans would cry wolf on windows.
    plan = resolve(scenario).plan
    each = plan.reserved_bytes(scenario.max_model_len)
    most = pool / each if each else float(report.concurrency)
    lower = max(plan.longest_context(pool // _FEW_AT_THE_LIMIT), scenario.context_tokens)
    if most >= _FEW_AT_THE_LIMIT or lower >= scenario.max_model_len:
        return
    lower = max(lower // _ROUND_TOKENS * _ROUND_TOKENS, scenario.context_tokens)
    limit = fmt_tokens(scenario.max_model_len)
    yield Mistake(
        id="limit_not_batched",
        title="A context limit that cannot be batched",
        sentence=f"A request of the context limit, {limit} tokens, has the KV memory almost to itself: "
        f"{most:.1f} of them fit, against {fmt_count(report.concurrency)} of {fmt_tokens(report.context_tokens)}.",
        move=f"Lower the context limit to {fmt_tokens(lower)}, or expect others to wait.",
        scenario=_changed(report, max_model_len=lower),
    )


def _limit_far_above(report: Report) -> Iterator[Mistake]:
    """The context limit is far above what requests need."""
    scenario = report.scenario
    p95 = _p95(scenario)
    tail = scenario.context_tokens if p95 is None else p95
    ratio = _FAR_ABOVE_MEDIAN if p95 is None else _FAR_ABOVE_P95
    if report.verdict not in FITS or scenario.max_model_len < ratio * tail:
        return
    lower = ceil_div(2 * tail, _ROUND_TOKENS) * _ROUND_TOKENS
    what = "the requests given here" if p95 is None else "19 of 20 requests"
    holds = scenario.max_model_len // max(1, tail)
    yield Mistake(
        id="limit_far_above",
        title="A context limit far above what requests need",
        sentence=f"The limit of {fmt_tokens(scenario.max_model_len)} tokens is "
        f"{fmt_factor(scenario.max_model_len / tail)} the {fmt_tokens(tail)} of {what}: "
        f"one request that uses it takes the place of about {fmt_count(holds)}.",
        move=f"Set the context limit to {fmt_tokens(lower)}.",
        scenario=_changed(report, max_model_len=lower),
    )


def _p95(scenario: Scenario) -> int | None:
    """95th percentile of prompt and output together, an upper estimate; None when neither is stated. [tokens]"""
    if scenario.prompt_tokens_p95 is None and scenario.output_tokens_p95 is None:
        return None
    prompt = scenario.prompt_tokens if scenario.prompt_tokens_p95 is None else scenario.prompt_tokens_p95
    output = scenario.output_tokens if scenario.output_tokens_p95 is None else scenario.output_tokens_p95
    return prompt + output


def _not_chunked(report: Report) -> Iterator[Mistake]:
    """A long prompt is computed in one step, and every other request waits for it."""
    scenario = report.scenario
    if scenario.chunked_prefill or report.ttft is None or report.concurrency <= 1:
        return
    if report.ttft.typical_s < _LONG_STALL_S:
        return
    yield Mistake(
        id="not_chunked",
        title="Long prompts with chunking off",
        sentence=f"A prompt of {fmt_tokens(scenario.prompt_tokens)} tokens holds up all other requests for "
        f"{fmt_seconds(report.ttft.typical_s)}.",
        move="Turn chunked prefill on.",
        scenario=_changed(report, chunked_prefill=True),
    )


def _repeats(report: Report) -> Iterator[Mistake]:
    """Tensor parallelism past the KV heads stores the same KV again."""
    scenario = report.scenario
    if report.verdict not in FITS or report.replication_ratio < _REPEATED or scenario.dcp > 1:
        return
    copies = round(report.replication_ratio)
    move, better = "Use a smaller TP and more replicas, if the weights fit.", None
    if (
        scenario.engine == "vllm"
        and (dealt := _changed(report, dcp=copies)) is not None
        and _serves_more(report, dealt)
    ):
        move, better = f"Decode context parallelism of {copies} deals the tokens out instead.", dealt
    yield Mistake(
        id="repeats",
        title="KV stored again on every rank",
        sentence=f"TP {scenario.tp} stores each request's KV {fmt_factor(report.replication_ratio)} over: "
        f"{fmt_bytes(report.kv_bytes_per_request)} in place of "
        f"{fmt_bytes(report.kv_bytes_per_request / report.replication_ratio)}.",
        move=move,
        scenario=better,
    )


def _serves_more(report: Report, scenario: Scenario) -> bool:
    try:
        return answer(scenario).concurrency > report.concurrency
    except KvcalcError:
        return False


def _no_headroom(report: Report) -> Iterator[Mistake]:
    """A memory share so high that the uncertainty of the estimate does not fit beside it."""
    scenario, budget = report.scenario, report.budget
    if scenario.utilization_pct is None or scenario.utilization_pct <= _FULL_PCT or report.verdict not in FITS:
        return
    free = sum(line.bytes for line in budget.lines if line.name == "kept_free")
    unsure = budget.overhead_high_bytes - budget.overhead_bytes
    if free >= unsure:
        return
    yield Mistake(
        id="no_headroom",
        title="A memory share without headroom",
        sentence=f"A share of {scenario.utilization_pct}% leaves {fmt_bytes(free)} per GPU; what the engine needs "
        f"beside weights and KV is only known to within {fmt_bytes(unsure)}.",
        move="Leave the share at the engine's default.",
        scenario=_changed(report, utilization_pct=None),
    )


def _drafts(report: Report) -> Iterator[Mistake]:
    """Speculative decoding takes KV memory that requests would use."""
    scenario = report.scenario
    if not scenario.speculative_tokens or report.verdict not in FITS:
        return
    without = _changed(report, speculative_tokens=0)
    if without is None:
        return
    plain, now = answer(without).memory_requests, report.capacities.reserved_requests
    lost = 1 - now / plain if plain else 0.0
    if lost < _DRAFT_SHARE:
        return
    yield Mistake(
        id="drafts",
        title="Draft tokens take KV memory",
        sentence=f"{fmt_count(scenario.speculative_tokens)} draft tokens per step cost {fmt_percent(lost)} of the "
        f"requests the KV memory holds: {fmt_count(now)} in place of {fmt_count(plain)}.",
        move="Keep them only if single requests must be fast.",
        scenario=without,
    )
