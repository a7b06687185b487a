"""How long a decode step takes: a physical floor, and a band fitted on published measurements."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvcalc.cache import check_layout
from kvcalc.catalogue import gpu as find_gpu
from kvcalc.errors import Assumption, Record
from kvcalc.hardware import GpuSpec
from kvcalc.latency.costs import StepCosts, step_costs
from kvcalc.latency.counts import check_count
from kvcalc.latency.flops import matrix_rate
from kvcalc.latency.kv_reads import KvReads, kv_reads
from kvcalc.model_spec import ModelSpec
from kvcalc.parallelism import Parallelism
from kvcalc.precision import kv_format, state_format
from kvcalc.units import fmt_percent, fmt_tokens
from kvcalc.weights import streamed_weight_bytes


class StepTime(Record):
    """One decode step: every running request gains a token, so this is the time per output token (TPOT)."""

    floor_s: float
    """Bytes over bandwidth: no engine can be faster. [s]"""
    low_s: float
    """Fast end of the band, not below the floor. [s]"""
    typical_s: float
    """Best estimate. [s]"""
    high_s: float
    """Slow end of the band. [s]"""
    weight_bytes: int
    """Weights a step reads, on the busiest GPU, pipeline stages added up. [bytes/step]"""
    kv_bytes: int
    """KV cache a step reads for the whole batch, on the busiest GPU, stages added up. [bytes/step]"""
    weights_s: float
    """Reading the weights at full bandwidth. [s]"""
    kv_s: float
    """Reading the KV cache at full bandwidth. [s]"""
    bandwidth_efficiency: float
    """Share of the bandwidth the typical time assumes. [ratio]"""
    overhead_s: float
    """Scheduling, launches and the latency of collectives in the typical time. [s]"""
    compute_s: float
    """Matrix work and all-reduce traffic of the batch's tokens in the typical time. [s]"""
    prefill_mix_s: float
    """Share of other requests' prompts in a step, on a busy server; else 0. [s]"""
    assumptions: tuple[Assumption, ...]
    """What was taken for granted."""


def decode_step(
    spec: ModelSpec,
    *,
    gpu: str | GpuSpec,
    tp: int = 1,
    pp: int = 1,
    ep: int = 1,
    weight_precision: str = "checkpoint",
    kv_precision: str = "auto",
    batch: int,
    context_tokens: int,
    prompt_tokens: int | None = None,
    output_tokens: int | None = None,
    loaded: bool = False,
    engine: str | None = None,
) -> StepTime:
    """Time of one decode step, which is the time per output token of every request in the batch.

    Equation   floor   = (weights + batch x KV) / bandwidth                        busiest GPU
               typical = floor / efficiency + step + layers x time per layer + batch x time per token
                         [+ batch x prompt / output x time per prompt token, on a busy server]
               band    = typical x 0.85 to 1.5 (dense) or 2.0 (routed), never below the floor

    Pipeline stages follow each other for a token, so their times add up; each is taken to hold the whole batch.

    Parameters
    ----------
    gpu : id, name, alias or GpuSpec.
    tp, pp, ep : tensor, pipeline and expert parallel sizes. [GPUs]
    weight_precision, kv_precision : format ids.
    batch : requests decoding at once, per replica. [requests]
    context_tokens : tokens each of them has in cache. [tokens]
    prompt_tokens, output_tokens : of one request; only a loaded server needs them. [tokens]
    loaded : a continuously busy server, whose decode steps share the GPU with the prefill of new requests.
    engine : engine id where measurements of one differ; None for any.

    Returns
    -------
    StepTime. floor_s <= low_s <= typical_s <= high_s.

    Raises
    ------
    ScenarioError    sizes below their least, a layout the heads do not allow, a GPU without bandwidth.
    CatalogueError   an unknown GPU or precision.

    Source
    ------
    Constants and their error in model_presets/latency.toml; times per token in ``kvcalc.latency.costs``.
    """
    plan = step_plan(
        spec, gpu=gpu, tp=tp, pp=pp, ep=ep, weight_precision=weight_precision, kv_precision=kv_precision, engine=engine
    )
    if loaded:
        prompt, output = _arrivals(prompt_tokens, output_tokens, context_tokens)
        plan = plan.busy(prompt_tokens=prompt, output_tokens=output)
    return plan.at(batch=batch, context_tokens=context_tokens)


def step_plan(
    spec: ModelSpec,
    *,
    gpu: str | GpuSpec,
    tp: int = 1,
    pp: int = 1,
    ep: int = 1,
    dcp: int = 1,
    weight_precision: str = "checkpoint",
    kv_precision: str = "auto",
    state_precision: str = "auto",
    engine: str | None = None,
) -> StepPlan:
    """Everything about a decode step that does not depend on batch or context; parameters as ``decode_step``.

    dcp splits the reading of what it shards. Raises ScenarioError and CatalogueError as ``decode_step`` does.
    """
    check_layout(spec, Parallelism(tp=tp, pp=pp, ep=ep, dcp=dcp))
    card = find_gpu(gpu)
    costs = step_costs(spec, card, tp=tp, pp=pp, weight_precision=weight_precision, engine=engine)
    kv, state = kv_format(kv_precision, declared=spec.quantization.kv_precision), state_format(state_precision)
    return StepPlan(
        spec=spec,
        card=card,
        bandwidth=card.stated_bandwidth_bytes_per_s,
        costs=costs,
        reads=kv_reads(spec, kv=kv, state=state, tp=1 if costs.splits_layers else tp, dcp=dcp),
        weight_precision=weight_precision,
        tp=tp,
        pp=pp,
        ep=ep,
        dcp=dcp,
        assumptions=_assumptions(costs, pp),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlan:
    """A model on the GPUs of a replica, ready to be asked for any batch and context."""

    spec: ModelSpec
    card: GpuSpec
    bandwidth: int
    costs: StepCosts
    reads: KvReads
    weight_precision: str
    tp: int
    pp: int
    ep: int
    dcp: int
    assumptions: tuple[Assumption, ...]
    arrivals: tuple[int, int] | None = None
    """Prompt and output of the requests that replace ended ones on a busy server; None when idle. [tokens]"""

    def busy(self, *, prompt_tokens: int, output_tokens: int) -> StepPlan:
        """The same on a server where each request that ends is replaced, its prompt computed between steps."""
        share = _arrivals_assumption(self, prompt_tokens, output_tokens)
        kept = tuple(found for found in self.assumptions if found.field != share.field)
        return replace(self, arrivals=(prompt_tokens, output_tokens), assumptions=(*kept, share))

    @property
    def overhead_s(self) -> float:
        """Scheduling, launches and the latency of collectives, whatever the batch. [s]"""
        return self.costs.overhead_s

    def weight_bytes(self, batch: int) -> int:
        """Weights one step reads over the stages a token passes. [bytes/GPU]"""
        tp = 1 if self.costs.splits_layers else self.tp
        return streamed_weight_bytes(self.spec, precision=self.weight_precision, tp=tp, pp=1, ep=self.ep, batch=batch)

    def kv_bytes(self, context_tokens: int) -> int:
        """Cache one step reads for one sequence. [bytes/GPU]"""
        return self.reads.bytes_at(context_tokens)

    def meets(self, *, batch: int, context_tokens: int, target_s: float) -> bool:
        """Whether the typical time per token of this many requests meets the target."""
        return self._typical_s(batch, self.kv_bytes(context_tokens)) <= target_s

    def most_requests(self, *, context_tokens: int, target_s: float, at_most: int) -> int:
        """Most requests, up to ``at_most``, whose typical time per token meets the target. [requests]

        Time per token never falls as requests are added, so bisection finds the edge.
        """
        cached = self.kv_bytes(context_tokens)
        fits, too_many = 0, at_most + 1
        while too_many - fits > 1:
            middle = (fits + too_many) // 2
            if self._typical_s(middle, cached) <= target_s:
                fits = middle
            else:
                too_many = middle
        return fits

    def _typical_s(self, batch: int, cached: int) -> float:
        costs = self.costs
        reading = (self.weight_bytes(batch) + batch * cached) / (self.bandwidth * costs.bandwidth_efficiency)
        return reading + costs.overhead_s + batch * costs.decode_token_s + self._prefill_mix_s(batch)

    def _prefill_mix_s(self, batch: int) -> float:
        """Prompts that fall on one decode step when every request that ends is replaced at once. [s]"""
        if self.arrivals is None or batch == 1:
            return 0.0
        prompt, output = self.arrivals
        return batch * prompt * self.costs.prompt_token_s / output

    def at(self, *, batch: int, context_tokens: int) -> StepTime:
        """The step of this many requests of this length. Raises ScenarioError for a size below its least."""
        check_count("batch", batch, least=1)
        check_count("context_tokens", context_tokens, least=0)
        each = self.kv_bytes(context_tokens)
        weights, cached = self.weight_bytes(batch), batch * each
        floor, typical = (weights + cached) / self.bandwidth, self._typical_s(batch, each)
        costs = self.costs
        return StepTime(
            floor_s=floor,
            low_s=max(floor, costs.band.low_factor * typical),
            typical_s=typical,
            high_s=costs.band.high_factor * typical,
            weight_bytes=weights,
            kv_bytes=cached,
            weights_s=weights / self.bandwidth,
            kv_s=cached / self.bandwidth,
            bandwidth_efficiency=costs.bandwidth_efficiency,
            overhead_s=costs.overhead_s,
            compute_s=batch * costs.decode_token_s,
            prefill_mix_s=self._prefill_mix_s(batch),
            assumptions=self.assumptions,
        )


def _arrivals(prompt: int | None, output: int | None, context_tokens: int) -> tuple[int, int]:
    """Prompt and output of the requests that arrive. Raises ScenarioError when the output is not said."""
    check_count("output_tokens", output, least=1)
    assert output is not None
    if prompt is None:
        return context_tokens, output
    check_count("prompt_tokens", prompt, least=0)
    return prompt, output


def _assumptions(costs: StepCosts, pp: int) -> tuple[Assumption, ...]:
    words = " ".join(f"{row.text} ({row.source})." for row in costs.exceptions)
    found = [
        Assumption(
            field="typical time",
            value=f"{fmt_percent(costs.bandwidth_efficiency)} of the bandwidth",
            reason=words or f"{costs.band.text}.",
        )
    ]
    if costs.splits_layers:
        found.append(
            Assumption(
                field="tp",
                value="layers dealt over the GPUs",
                reason="This engine's GPUs work one after the other by default: memory adds up, speed does not.",
            )
        )
    if pp > 1:
        found.append(
            Assumption(
                field="pp",
                value="stages one after the other",
                reason="A token passes every stage in turn; the batch is not split over them.",
            )
        )
    return tuple(found)


def _arrivals_assumption(plan: StepPlan, prompt: int, output: int) -> Assumption:
    if matrix_rate(plan.spec, plan.card, plan.weight_precision) is None:
        return Assumption(
            field="prefill share",
            value="left out",
            reason="The GPU states no compute rate, so its prompts take no time.",
        )
    return Assumption(
        field="prefill share",
        value=f"{fmt_tokens(prompt)} prompt tokens for every {fmt_tokens(output)} steps of a request",
        reason="On a busy server each request that ends is replaced, and its prompt is computed between decode steps.",
    )
