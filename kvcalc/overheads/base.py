"""What an engine module is asked, and the plan it answers with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from kvcalc.engines.base import parse_version
from kvcalc.errors import Assumption, Note, Record
from kvcalc.hardware import GpuSpec
from kvcalc.model_spec import ModelSpec
from kvcalc.units import fmt_tokens

AS_MEASURED = "as measured"
MEASURED_BY = "the engine's log, or typed"


class Overhead(Record):
    """Memory one GPU needs for one thing that is neither weights nor KV cache."""

    name: str
    """Stable id of the line."""
    label: str
    """The line as a person reads it."""
    bytes: int
    """Estimate. [bytes/GPU]"""
    formula: str
    """The arithmetic with its numbers put in."""
    source: str
    """Where the rule comes from."""
    measured: bool = False
    """Whether the figure was measured: then it has no band."""


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Everything an engine's plan depends on."""

    spec: ModelSpec
    gpu: GpuSpec
    weights_bytes: int
    engine_version: str | None
    tp: int
    pp: int
    ep: int
    utilization: Fraction | None
    """Share of the memory asked for, 0 to 1; None for the engine's default. [ratio]"""
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    enforce_eager: bool
    images: bool
    runs_in_fp32: bool
    mxfp4_experts: bool
    chunked_prefill: bool = True
    """Whether a long prompt is computed in steps of max_num_batched_tokens."""
    longest_prompt_tokens: int | None = None
    """Longest prompt the engine admits; None for the model's own limit. [tokens]"""
    measured: Mapping[str, int] = field(default_factory=dict)
    """Overheads as measured, by the name of their line, instead of the estimate. [bytes/GPU]"""

    def as_measured(self, name: str, label: str) -> Overhead | None:
        """The line of an overhead that was measured; None when it must be estimated."""
        size = self.measured.get(name)
        if size is None:
            return None
        return Overhead(name=name, label=label, bytes=size, formula=AS_MEASURED, source=MEASURED_BY, measured=True)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How an engine would divide one GPU."""

    utilization: Fraction
    max_num_seqs: int
    max_num_batched_tokens: int
    overheads: tuple[Overhead, ...]
    low_bytes: int
    """Least overhead the band allows. [bytes/GPU]"""
    high_bytes: int
    """Most overhead the band allows. [bytes/GPU]"""
    limit_bytes: Callable[[int], int]
    """Memory for weights, overhead and KV pool together, given the overhead. [bytes/GPU]"""
    pool_formula: str
    """How the pool follows, in words."""
    pool_source: str
    """Where that rule is written."""
    kept_free_label: str
    """What the rest of the memory is for."""
    assumptions: tuple[Assumption, ...]
    pool_share: Fraction = Fraction(1)
    """Pool given up for each byte of overhead. [ratio]"""
    notes: tuple[Note, ...] = ()
    """What the reader must know of this plan."""
    beside_bytes: int | None = None
    """Activations of one step that the engine does not take from the pool: they must fit in what is kept free;
    None where the pool pays for them. [bytes/GPU]"""

    @property
    def overhead_bytes(self) -> int:
        """The estimate. [bytes/GPU]"""
        return sum(line.bytes for line in self.overheads)

    @property
    def measured_bytes(self) -> int:
        """The part of it that was measured. [bytes/GPU]"""
        return sum(line.bytes for line in self.overheads if line.measured)


@dataclass
class Ledger:
    """Assumptions collected while a plan is made."""

    entries: list[Assumption] = field(default_factory=list)

    def note(self, name: str, value: str, reason: str) -> None:
        """Remember one assumption."""
        self.entries.append(Assumption(field=name, value=value, reason=reason))


def version_text(inputs: Inputs, newest: str, ledger: Ledger) -> str:
    """The release asked for, or the newest known, which is then an assumption. Raises ScenarioError."""
    if inputs.engine_version is not None:
        parse_version(inputs.engine_version)
        return inputs.engine_version
    ledger.note("engine_version", newest, "The newest release whose memory accounting we have read.")
    return newest


def step_tokens(inputs: Inputs, default: int, reason: str, ledger: Ledger) -> int:
    """Tokens of one step: given, or the engine's default; the longest prompt where prompts are not cut. [tokens]"""
    tokens = inputs.max_num_batched_tokens or default
    longest = inputs.longest_prompt_tokens or inputs.spec.max_context_tokens or 0
    if not inputs.chunked_prefill and longest > tokens:
        reason = "Without chunked prefill a step holds the longest prompt."
        ledger.note("max_num_batched_tokens", f"{fmt_tokens(longest)} tokens", reason)
        return longest
    if inputs.max_num_batched_tokens is None:
        ledger.note("max_num_batched_tokens", f"{fmt_tokens(tokens)} tokens", reason)
    return tokens


def is_irregular(spec: ModelSpec) -> bool:
    """Whether overhead estimates are known to fail: recurrent states, or attention with a sparse indexer."""
    return spec.has_recurrent_state or any(
        group.kind in ("indexer_keys", "compressed_attention") for group in spec.layer_groups
    )
