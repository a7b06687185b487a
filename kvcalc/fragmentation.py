"""Slabs against pages: what a pool holds when requests differ in length, and how much of it is really used."""

from __future__ import annotations

import re
from fractions import Fraction
from math import exp, log
from statistics import NormalDist

from kvcalc.cache import kv_bytes_per_sequence
from kvcalc.errors import Note, Record, ScenarioError
from kvcalc.inputs import Inputs, resolve
from kvcalc.scenario import Scenario
from kvcalc.units import ceil_div, fmt_bytes, fmt_count, fmt_percent, fmt_tokens

_QUANTILES = 200
"""Lengths a distribution is stood for by, one per half per cent. [requests]"""
_Z95 = NormalDist().inv_cdf(0.95)
_P95_OVER_P50 = 3
"""Tail of a distribution whose p95 nobody states: a common shape of chat traffic, and said in a note. [ratio]"""
_SLAB_ENGINES = frozenset({"llamacpp"})
_MOST_LENGTHS = 100_000
_MOST_TEXT = 2_000_000
_SHOWN = (5, 25, 50, 75, 95, 100)
_LENGTH = re.compile(r"\d[\d_]*")


class LengthRow(Record):
    """Requests of one length among the others."""

    percentile: int
    """Share of requests that are no longer. [%]"""
    context_tokens: int
    """Prompt and output. [tokens]"""
    used_bytes: int
    """What attention needs. [bytes/GPU]"""
    paged_bytes: int
    """What whole blocks of it take. [bytes/GPU]"""
    slab_bytes: int
    """What a slab of the context limit takes. [bytes/GPU]"""


class Allocation(Record):
    """One way of setting memory aside."""

    label: str
    """Which."""
    requests: int
    """Requests of this mix that the KV memory of one replica holds. [requests]"""
    reserved_bytes: int
    """What those requests set aside. [bytes/GPU]"""
    used_bytes: int
    """What they need of it. [bytes/GPU]"""
    wasted_bytes: int
    """The difference. [bytes/GPU]"""
    used_ratio: float
    """Used of reserved. [ratio]"""


class Fragmentation(Record):
    """Slabs and pages over the same requests."""

    p50_tokens: int
    """Median length. [tokens]"""
    p95_tokens: int
    """Length that one request in twenty exceeds. [tokens]"""
    mean_tokens: int
    """Mean length, rounded. [tokens]"""
    cut: int
    """Lengths of the distribution that the context limit cuts. [requests]"""
    max_model_len: int
    """Length of a slab. [tokens]"""
    block_tokens: int
    """Tokens of one block, the largest of the model's layers. [tokens]"""
    rounding_bytes: int
    """What the last, partly filled blocks of one request take on average, with anything else an engine adds.
    [bytes/GPU]"""
    kv_bytes_per_token: int
    """KV of one more token at the median length: the same either way. [bytes/GPU]"""
    pool_bytes: int
    """KV pool of one GPU. [bytes/GPU]"""
    slab: Allocation
    """A slab of max_model_len per request."""
    paged: Allocation
    """Whole blocks as a request grows."""
    rows: tuple[LengthRow, ...]
    """Lengths of the distribution."""
    sentence: str
    """The comparison in one sentence."""
    notes: tuple[Note, ...]
    """What the reader must know."""


def read_lengths(text: str) -> tuple[int, ...]:
    """Request lengths pasted as text: whole numbers with anything between them. Raises ScenarioError.

    >>> read_lengths("512, 2048\\n8192")
    (512, 2048, 8192)
    """
    if len(text) > _MOST_TEXT:
        raise ScenarioError(
            "lengths", f"at most {_MOST_TEXT:,} characters", f"{len(text):,}", hint="Paste a sample of them."
        )
    found = [int(match[0].replace("_", "")[:12]) for match in _LENGTH.finditer(text.replace(",", " "))]
    lengths = tuple(length for length in found if length > 0)
    if not lengths:
        raise ScenarioError("lengths", "whole numbers of tokens", text or None, hint="Paste one per line.")
    if len(lengths) > _MOST_LENGTHS:
        raise ScenarioError("lengths", f"at most {_MOST_LENGTHS:,}", f"{len(lengths):,}", hint="Paste a sample.")
    return lengths


def lognormal_lengths(p50_tokens: int, p95_tokens: int) -> tuple[int, ...]:
    """200 lengths that stand for a lognormal distribution with this median and 95th percentile. [tokens]

    Equation   exp(ln p50 + z × sigma), sigma = ln(p95 / p50) / 1.645, z at the middle of each half per cent
    """
    if not 1 <= p50_tokens <= p95_tokens:
        raise ScenarioError("p95_tokens", f"at least the median ({p50_tokens:,})", p95_tokens, hint="Swap the two.")
    sigma = log(p95_tokens / p50_tokens) / _Z95
    normal = NormalDist()
    steps = ((index + 0.5) / _QUANTILES for index in range(_QUANTILES))
    return tuple(max(1, round(exp(log(p50_tokens) + sigma * normal.inv_cdf(step)))) for step in steps)


def fragmentation(scenario: Scenario, lengths: tuple[int, ...] | None = None) -> Fragmentation:
    """Slabs against pages over these lengths.

    lengths  prompt and output of real requests; None takes a lognormal distribution with the scenario's median
             and 95th percentile [tokens]

    Raises KvcalcError for a scenario that cannot be used.
    """
    notes: list[Note] = []
    if lengths is None:
        lengths = _of_scenario(scenario, notes)
    inputs = resolve(scenario)
    limit = scenario.max_model_len
    cut = sum(1 for length in lengths if length > limit)
    if cut:
        text = f"{fmt_count(cut)} of {fmt_count(len(lengths))} lengths exceed the context limit and are counted at it."
        notes.append(Note(field="max_model_len", text=text))
    kept = sorted(min(length, limit) for length in lengths)
    used, paged = [_used(inputs, n) for n in kept], [inputs.plan.reserved_bytes(n) for n in kept]
    slab = inputs.plan.reserved_bytes(limit)
    mean_used = Fraction(sum(used), len(kept))
    found = Fragmentation(
        p50_tokens=_at(kept, 50),
        p95_tokens=_at(kept, 95),
        mean_tokens=round(Fraction(sum(kept), len(kept))),
        cut=cut,
        max_model_len=limit,
        block_tokens=max((row.block_tokens for row in inputs.plan.rows), default=inputs.plan.block_size),
        rounding_bytes=int(Fraction(sum(paged), len(kept)) - mean_used),
        kv_bytes_per_token=_used(inputs, _at(kept, 50)) - _used(inputs, _at(kept, 50) - 1),
        pool_bytes=inputs.budget.kv_pool_bytes,
        slab=_allocation("Slab of the context limit", inputs, Fraction(slab), mean_used),
        paged=_allocation("Pages", inputs, Fraction(sum(paged), len(kept)), mean_used),
        rows=tuple(_row(inputs, kept, percentile, slab) for percentile in _SHOWN),
        sentence="",
        notes=(),
    )
    return found.model_copy(update={"sentence": _sentence(found), "notes": (*notes, *_notes(inputs, found))})


def _of_scenario(scenario: Scenario, notes: list[Note]) -> tuple[int, ...]:
    median = scenario.context_tokens
    if scenario.prompt_tokens_p95 is None and scenario.output_tokens_p95 is None:
        text = f"No 95th percentile is stated; {_P95_OVER_P50} times the median is taken."
        notes.append(Note(field="prompt_tokens_p95", text=text))
        return lognormal_lengths(median, _P95_OVER_P50 * median)
    prompt = scenario.prompt_tokens if scenario.prompt_tokens_p95 is None else scenario.prompt_tokens_p95
    output = scenario.output_tokens if scenario.output_tokens_p95 is None else scenario.output_tokens_p95
    return lognormal_lengths(median, max(median, prompt + output))


def _used(inputs: Inputs, tokens: int) -> int:
    """What attention needs of a request. [bytes/GPU]"""
    scenario = inputs.scenario
    return kv_bytes_per_sequence(
        inputs.spec,
        context_tokens=max(0, tokens),
        kv_precision=scenario.kv_precision,
        state_precision=scenario.state_precision,
        tp=scenario.tp,
        pp=scenario.pp,
        dcp=scenario.dcp,
    )


def _at(lengths: list[int], percentile: int) -> int:
    """The length that this share of requests does not exceed. [tokens]"""
    return lengths[max(0, ceil_div(len(lengths) * percentile, 100) - 1)]


def _row(inputs: Inputs, lengths: list[int], percentile: int, slab_bytes: int) -> LengthRow:
    tokens = _at(lengths, percentile)
    return LengthRow(
        percentile=percentile,
        context_tokens=tokens,
        used_bytes=_used(inputs, tokens),
        paged_bytes=inputs.plan.reserved_bytes(tokens),
        slab_bytes=slab_bytes,
    )


def _allocation(label: str, inputs: Inputs, each: Fraction, used: Fraction) -> Allocation:
    """Requests of the mix that fit when each sets this much aside on average."""
    pool, cap = inputs.budget.kv_pool_bytes, inputs.budget.max_num_seqs
    count = min(int(pool / each), cap) if each else cap
    reserved, needed = int(count * each), int(count * used)
    return Allocation(
        label=label,
        requests=count,
        reserved_bytes=reserved,
        used_bytes=needed,
        wasted_bytes=reserved - needed,
        used_ratio=needed / reserved if reserved else 1.0,
    )


def _sentence(found: Fragmentation) -> str:
    slab, paged = found.slab, found.paged
    text = f"Slabs of {fmt_tokens(found.max_model_len)} tokens hold {fmt_count(slab.requests)} of these requests"
    text += f" and use {fmt_percent(slab.used_ratio)} of what they reserve;"
    return f"{text} pages hold {fmt_count(paged.requests)} and use {fmt_percent(paged.used_ratio)}."


def _notes(inputs: Inputs, found: Fragmentation) -> list[Note]:
    each = fmt_bytes(found.kv_bytes_per_token)
    notes = [
        Note(
            field="block_size",
            text=f"Paging fixes allocation; it does not shrink a token, which costs {each} per GPU either way.",
        ),
        Note(
            field="block_size",
            text=f"Whole blocks of up to {fmt_tokens(found.block_tokens)} tokens cost a request "
            f"{fmt_bytes(found.rounding_bytes)} per GPU on average.",
        ),
    ]
    if inputs.scenario.engine in _SLAB_ENGINES:
        text = "llama.cpp reserves a slot of its context for each request: its slabs are what it really takes."
        notes.append(Note(field="engine", text=text))
    return notes
