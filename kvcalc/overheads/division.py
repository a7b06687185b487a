"""How the request of one GPU is divided: by estimates, or by a pool that was measured."""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from kvcalc.errors import Note, Record
from kvcalc.hardware import GpuSpec
from kvcalc.overheads.base import AS_MEASURED, Overhead, Plan
from kvcalc.units import fmt_gib


class BudgetLine(Record):
    """One named part of a GPU's memory."""

    name: str
    """Stable id: driver, weights, non_torch, activations, encoder_cache, linear_attention, cuda_graphs,
    other_overhead, kv_pool, kept_free, over_the_card, unexplained."""
    label: str
    """The line as a person reads it."""
    bytes: int
    """Its size; negative only for over_the_card and unexplained. [bytes/GPU]"""
    low_bytes: int
    """Its size at the end of the band that makes it smallest. [bytes/GPU]"""
    high_bytes: int
    """Its size at the end of the band that makes it largest. [bytes/GPU]"""
    formula: str
    """The arithmetic with its numbers put in."""
    source: str
    """Where the rule comes from."""


class Division(NamedTuple):
    """How the request of one GPU is divided. [bytes/GPU]"""

    weights: int
    overheads: tuple[BudgetLine, ...]
    overhead: int
    overhead_low: int
    overhead_high: int
    requested: int
    pool: int
    pool_low: int
    pool_high: int
    pool_formula: str
    shortfall: int = 0
    notes: tuple[Note, ...] = ()


def estimated(weights: int, plan: Plan) -> Division:
    """The pool that the overheads leave."""
    overhead = plan.overhead_bytes
    requested = plan.limit_bytes(overhead)
    room = requested - weights - overhead
    pool = max(0, room)
    return Division(
        weights=weights,
        overheads=tuple(_with_band(line, plan) for line in plan.overheads),
        overhead=overhead,
        overhead_low=plan.low_bytes,
        overhead_high=plan.high_bytes,
        requested=requested,
        pool=pool,
        pool_low=min(pool, max(0, plan.limit_bytes(plan.high_bytes) - weights - plan.high_bytes)),
        pool_high=max(pool, plan.limit_bytes(plan.low_bytes) - weights - plan.low_bytes),
        pool_formula=plan.pool_formula,
        shortfall=max(0, -room),
    )


def logged(card: GpuSpec, weights: int, plan: Plan, pool: int) -> Division:
    """The overheads that a measured pool leaves."""
    estimate, certain = plan.overhead_bytes, plan.measured_bytes
    expected = plan.limit_bytes(estimate) - weights - estimate
    # The pool falls by this share of each byte of overhead, so the pool tells the overhead.
    implied = estimate + ceil((expected - pool) / plan.pool_share) if plan.pool_share else estimate
    room = card.usable_bytes - weights - pool
    by_hand = not (plan.low_bytes <= implied <= plan.high_bytes and plan.measured_bytes < estimate)
    if by_hand and estimate > room > certain:
        implied, by_hand = room, False
    lines = tuple(_with_band(line, plan) for line in plan.overheads if by_hand or line.measured)
    if not by_hand:
        text = f"what the pool leaves; estimated {fmt_gib(estimate - certain, 2)}"
        lines = (*lines, fixed("other_overhead", "Other overhead", implied - certain, text, AS_MEASURED))
    overhead = sum(line.bytes for line in lines)
    return Division(
        weights=weights,
        overheads=lines,
        overhead=overhead,
        overhead_low=sum(line.low_bytes for line in lines),
        overhead_high=sum(line.high_bytes for line in lines),
        requested=weights + overhead + pool if by_hand else plan.limit_bytes(overhead),
        pool=pool,
        pool_low=pool,
        pool_high=pool,
        pool_formula=AS_MEASURED,
        notes=_pool_notes(pool, expected, room - overhead),
    )


def _pool_notes(pool: int, expected: int, free: int) -> tuple[Note, ...]:
    """How the measured pool compares with the estimate, and with the card."""
    estimate = fmt_gib(max(0, expected), 2)
    if free < 0:
        text = f"The pool of {fmt_gib(pool, 2)} and the weights exceed the card by {fmt_gib(-free, 2)}; {estimate} was "
        text += "expected. The figures may be of another GPU, model or layout."
    else:
        text = f"KV pool {fmt_gib(pool, 2)} as measured; {estimate} was expected."
    return (Note(field="kv_pool_mib", text=text),)


def fixed(name: str, label: str, size: int, formula: str, source: str) -> BudgetLine:
    """A line without a band."""
    return BudgetLine(
        name=name, label=label, bytes=size, low_bytes=size, high_bytes=size, formula=formula, source=source
    )


def _with_band(line: Overhead, plan: Plan) -> BudgetLine:
    """A line with its share of the band, which is fitted on the sum of all overheads that were not measured."""
    if line.measured:
        return fixed(line.name, line.label, line.bytes, line.formula, line.source)
    known = plan.measured_bytes
    total, low, high = plan.overhead_bytes - known, plan.low_bytes - known, plan.high_bytes - known
    return BudgetLine(
        name=line.name,
        label=line.label,
        bytes=line.bytes,
        low_bytes=line.bytes * low // total if total else 0,
        high_bytes=-(-line.bytes * high // total) if total else high,
        formula=line.formula,
        source=line.source,
    )
