"""The verdict: one plain sentence that names the state, the number and the limit that binds."""

from __future__ import annotations

from typing import Literal, NamedTuple

from kvcalc.units import ceil_div, fmt_count, fmt_gib, fmt_ms, fmt_percent, fmt_seconds, fmt_tokens

Verdict = Literal[
    "fits",
    "target_met",
    "falls_short",
    "barely",
    "may_not_start",
    "too_slow",
    "does_not_fit",
    "one_request_too_big",
    "limit_too_long",
    "over_model_limit",
    "over_engine_limit",
]

LimitName = Literal[
    "kv_memory", "engine_cap", "speed_target", "first_token_target", "weights", "model_limit", "engine_limit"
]

BAD: frozenset[Verdict] = frozenset(
    {
        "falls_short",
        "may_not_start",
        "too_slow",
        "does_not_fit",
        "one_request_too_big",
        "limit_too_long",
        "over_model_limit",
        "over_engine_limit",
    }
)
"""Verdicts whose first words the page shows in the warning colour."""

FITS: frozenset[Verdict] = frozenset({"fits", "target_met", "falls_short", "barely", "too_slow", "may_not_start"})
"""Verdicts under which at least one request can run."""

_BARELY_SHARE, _BARELY_REQUESTS = 0.75, 4
"""Weights above three quarters of the card and room for a handful of requests: 'barely'."""


class Facts(NamedTuple):
    """What the sentence is made of; requests are per replica."""

    context_tokens: int
    model_limit: int | None
    engine_limit: int
    longest_that_fits: int
    shortfall_bytes: int
    request_bytes: int
    limit_bytes: int
    pool_bytes: int
    pool_low_bytes: int
    weights_share: float
    memory_requests: int
    cap_requests: int
    speed_requests: int | None
    target_tpot_ms: int | None
    single_tpot_s: float | None
    target_requests: int | None
    replicas: int
    state_bound: bool
    first_token_requests: int | None = None
    target_ttft_ms: int | None = None
    single_ttft_s: float | None = None


def verdict_of(facts: Facts) -> tuple[Verdict, LimitName, str]:
    """(state, what binds, the sentence)."""
    each = f"{fmt_tokens(facts.context_tokens)} {'token' if facts.context_tokens == 1 else 'tokens'} each"
    blocked = _blocked(facts)
    if blocked is not None:
        return blocked
    memory = min(facts.memory_requests, facts.cap_requests)
    binds: LimitName = "kv_memory" if facts.memory_requests <= facts.cap_requests else "engine_cap"
    total = memory * facts.replicas
    uncertain = _uncertain(facts, total)
    if uncertain is not None:
        return uncertain
    slow = _slower_target(facts, memory)
    if slow is not None:
        binds, count = slow
        if not facts.target_requests or count * facts.replicas < facts.target_requests:
            return "too_slow", binds, _too_slow(facts, memory, binds, count)
    if facts.target_requests is not None:
        return _against_target(facts, memory, binds, each)
    if facts.weights_share > _BARELY_SHARE and memory <= _BARELY_REQUESTS and binds == "kv_memory":
        room = f"weights take {fmt_percent(facts.weights_share)} of each GPU and leave room for {_requests(total)}"
        return "barely", "weights", f"Fits, barely: {room} at {fmt_tokens(facts.context_tokens)} tokens."
    return "fits", binds, f"Fits: {_requests(total)} at once{_where(facts)} at {each}; {_why(facts, binds)}."


def _blocked(facts: Facts) -> tuple[Verdict, LimitName, str] | None:
    """The states in which no request of this context runs."""
    context = fmt_tokens(facts.context_tokens)
    if facts.model_limit is not None and facts.context_tokens > facts.model_limit:
        text = f"Not possible: {context} tokens is more than the model's {fmt_tokens(facts.model_limit)}."
        return "over_model_limit", "model_limit", text
    if facts.shortfall_bytes:
        over = fmt_gib(facts.shortfall_bytes)
        return (
            "does_not_fit",
            "weights",
            f"Does not fit: weights and overhead exceed the budget by {over} per GPU.",
        )
    if facts.context_tokens > facts.engine_limit:
        hold = f"KV memory would hold {fmt_count(facts.memory_requests)}"
        text = f"Not as set: {context} tokens exceed the engine limit of {fmt_tokens(facts.engine_limit)}; {hold}."
        return "over_engine_limit", "engine_limit", text
    pool = f"the KV pool is {fmt_gib(facts.pool_bytes)}"
    if not facts.memory_requests:
        need = f"one request of {context} tokens needs {fmt_gib(facts.request_bytes)} per GPU"
        return "one_request_too_big", "kv_memory", f"Does not fit: {need}; {pool}."
    if facts.limit_bytes > facts.pool_bytes:
        limit, longest = fmt_tokens(facts.engine_limit), fmt_tokens(facts.longest_that_fits)
        need = f"one request of the context limit, {limit} tokens, needs {fmt_gib(facts.limit_bytes)} per GPU"
        text = f"Does not start as set: {need}; {pool}. A limit of {longest} would fit."
        return "limit_too_long", "engine_limit", text
    return None


def _uncertain(facts: Facts, total: int) -> tuple[Verdict, LimitName, str] | None:
    """Fits at the typical overhead, not at the high one."""
    fit = f"{_requests(total)} fit at the typical overhead"
    if facts.pool_low_bytes < facts.request_bytes:
        return "may_not_start", "weights", f"May not start: {fit}, none at the high one."
    if facts.pool_low_bytes < facts.limit_bytes:
        need = f"one of the context limit, {fmt_tokens(facts.engine_limit)} tokens"
        return "may_not_start", "engine_limit", f"May not start: {fit}; at the high one, {need}, does not."
    return None


def _requests(count: int) -> str:
    return "1 request" if count == 1 else f"{fmt_count(count)} requests"


def _where(facts: Facts) -> str:
    return f" on {fmt_count(facts.replicas)} replicas" if facts.replicas > 1 else ""


def _why(facts: Facts, binds: LimitName) -> str:
    if binds == "engine_cap":
        return "the engine's cap stops it first"
    return "state memory runs out first" if facts.state_bound else "KV memory runs out first"


def _slower_target(facts: Facts, memory: int) -> tuple[LimitName, int] | None:
    """The time target that admits fewest requests, when that is fewer than memory and the engine do."""
    targets: list[tuple[LimitName, int | None]] = [
        ("speed_target", facts.speed_requests),
        ("first_token_target", facts.first_token_requests),
    ]
    counted = [(name, count) for name, count in targets if count is not None and count < memory]
    return min(counted, key=lambda pair: pair[1], default=None)


def _too_slow(facts: Facts, memory: int, binds: LimitName, count: int) -> str:
    holds = f"Too slow: memory holds {_requests(memory)}, but"
    if binds == "first_token_target":
        target = fmt_seconds((facts.target_ttft_ms or 0) / 1000)
        if count:
            return f"{holds} only {fmt_count(count)} get a first token within {target}."
        return f"Too slow: the first token alone takes {fmt_seconds(facts.single_ttft_s or 0.0)}, not {target}."
    target = f"{facts.target_tpot_ms} ms per token"
    if count:
        return f"{holds} only {fmt_count(count)} meet {target}."
    return f"{holds} one alone takes {fmt_ms(facts.single_tpot_s or 0.0)}, not {target}."


def _against_target(facts: Facts, memory: int, binds: LimitName, each: str) -> tuple[Verdict, LimitName, str]:
    wanted = facts.target_requests or 0
    total = memory * facts.replicas
    if total >= wanted:
        share = fmt_percent(wanted / (facts.memory_requests * facts.replicas))
        return "target_met", binds, f"Fits: your {_requests(wanted)} use {share} of the KV memory at {each}."
    replicas = ceil_div(wanted, memory)
    short = f"Falls short: {fmt_count(total)} of the {_requests(wanted)} you want fit at {each}"
    return "falls_short", binds, f"{short}; {fmt_count(replicas)} replicas would do."
