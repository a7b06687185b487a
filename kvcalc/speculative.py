"""Speculative decoding: what published measurements gained, and what the draft layers cost in memory.

A measured range, never a floor: what drafting gains depends on how often the text lets a draft be right.
"""

from __future__ import annotations

from functools import lru_cache

from kvcalc.data import load_table
from kvcalc.errors import CatalogueError, Record
from kvcalc.latency import StepTime
from kvcalc.units import fmt_bytes, fmt_count, fmt_ms_band, fmt_ratio


class Measurement(Record):
    """One published comparison of a server with and without drafted tokens."""

    method: str
    """How tokens were drafted."""
    model: str
    """What was served."""
    gpu: str
    """On what."""
    batch: int
    """Requests decoding at once. [requests]"""
    speedup: float
    """Tokens per second with drafting over those without. [ratio]"""
    source: str
    """Where it is published."""
    checked: str
    """Date it was read, ISO."""


class MeasuredRange(Record):
    """Which measurements speak for how many requests."""

    requests_to: int | None = None
    """Last number of requests it is for; None for any above. [requests]"""
    measured_from: int
    """Fewest requests of its measurements. [requests]"""
    measured_to: int
    """Most requests of its measurements. [requests]"""
    text: str
    """The range in words."""


class SpeculativeTables(Record):
    """Everything in speculative.toml."""

    ranges: tuple[MeasuredRange, ...]
    """Ascending by requests; the last is open."""
    measurements: tuple[Measurement, ...]
    """What was published."""

    def at(self, requests: int) -> tuple[MeasuredRange, tuple[Measurement, ...]]:
        """The range for this many requests decoding at once, and its measurements."""
        found = next(row for row in self.ranges if row.requests_to is None or requests <= row.requests_to)
        rows = tuple(row for row in self.measurements if found.measured_from <= row.batch <= found.measured_to)
        if not rows:
            raise CatalogueError(
                "model_presets/speculative.toml", "a measurement in each range", found.text, hint="Add one."
            )
        return found, rows


@lru_cache(maxsize=1)
def speculative_tables() -> SpeculativeTables:
    """The measurements, read once."""
    return load_table("speculative.toml", SpeculativeTables)


class DraftedSpeed(Record):
    """Time per token with drafted tokens, as far as measurements tell, and the memory drafting takes."""

    speedup_low: float
    """Least gain measured at about this many requests; below 1 it slowed the server. [ratio]"""
    speedup_high: float
    """Most gain measured. [ratio]"""
    low_s: float
    """Fast end of the band over the most gain. [s]"""
    high_s: float
    """Slow end of the band over the least gain. [s]"""
    weights_bytes: int
    """Weights of the draft layers; 0 when the config names none. [bytes/GPU]"""
    kv_bytes_per_request: int
    """KV that drafting adds to one request. [bytes/GPU]"""
    sentence: str
    """The same in words."""
    sources: tuple[str, ...]
    """Where the measurements are published."""


def drafted_speed(
    step: StepTime, *, requests: int, draft_layers: int, weights_bytes: int, kv_bytes_per_request: int
) -> DraftedSpeed:
    """The band of a decode step divided by the gains measured at about this many requests.

    step                  the step without drafting
    draft_layers          draft layers the model's config names; 0 leaves a drafter's memory out [layers]
    weights_bytes         what they add to the weights of the busiest GPU [bytes/GPU]
    kv_bytes_per_request  what drafting adds to the KV of one request there [bytes/GPU]
    """
    found, rows = speculative_tables().at(requests)
    least, most = min(row.speedup for row in rows), max(row.speedup for row in rows)
    low_s, high_s = step.low_s / most, step.high_s / least
    gain = f"{fmt_ratio(least)} to {fmt_ratio(most)} times as fast"
    cost = (
        f"It takes {fmt_bytes(weights_bytes)} of weights and {fmt_bytes(kv_bytes_per_request)} of KV per request on "
        "the busiest GPU."
        if draft_layers
        else "The config names no draft layers, so their memory is not counted."
    )
    return DraftedSpeed(
        speedup_low=least,
        speedup_high=most,
        low_s=low_s,
        high_s=high_s,
        weights_bytes=weights_bytes,
        kv_bytes_per_request=kv_bytes_per_request,
        sentence=f"Measured range, not a floor: {fmt_count(len(rows))} published runs {found.text}; they were {gain} "
        f"with drafted tokens, which would make {fmt_ms_band(low_s, high_s)} per token. {cost}",
        sources=tuple(dict.fromkeys(row.source for row in rows)),
    )
