"""What ``evaluate`` answers: the inputs echoed and every intermediate, so that nothing above computes anything."""

from __future__ import annotations

from kvcalc.budget import Budget
from kvcalc.cache import GroupBytes
from kvcalc.engines import Capacity
from kvcalc.errors import Assumption, Note, Record
from kvcalc.first_token import BusyFirstToken
from kvcalc.hardware import GpuSpec
from kvcalc.latency import Band, StepTime
from kvcalc.prefix_cache import PrefixSaving
from kvcalc.scenario import Scenario
from kvcalc.speculative import DraftedSpeed
from kvcalc.tensors import Parameters
from kvcalc.verdict import LimitName, Verdict
from kvcalc.weights import PartBytes


class ModelFacts(Record):
    """The model as the report echoes it."""

    label: str
    """Name for headings."""
    num_layers: int
    """Decoder layers. [layers]"""
    max_context_tokens: int | None
    """Longest context the model states. [tokens]"""
    parameters: Parameters
    """Census by part."""
    is_moe: bool
    """Whether some feed-forward layers are routed."""
    attention_kinds: tuple[str, ...]
    """Titles of the layer groups, in order."""
    kv_precision: str
    """Resolved KV format id."""
    checkpoint_format: str
    """How the checkpoint stores its weights, in words."""
    sizing_facts: str
    """The config keys that decided this, compact JSON."""


class Limit(Record):
    """One thing that stops more requests."""

    name: LimitName
    """Which."""
    title: str
    """As a person calls it."""
    requests: int
    """Whole requests it allows at this context, per replica. [requests]"""
    binds: bool
    """Whether it is the smallest."""


class Capacities(Record):
    """The three capacities, never mixed: requests at the scenario's context, per replica."""

    ideal_requests: int
    """If only the bytes attention needs were kept. [requests]"""
    reserved_requests: int
    """What the engine can hold, rounded as it allocates. [requests]"""
    reported_concurrency: float
    """The figure its log prints, at max_model_len. [requests]"""
    reported_tokens: int
    """The token count its log prints. [tokens]"""
    why: tuple[str, str, str]
    """One sentence for each: what it is and why it differs."""


class WouldFit(Record):
    """A change that would make it fit."""

    change: str
    """What to change, in words."""
    scenario: Scenario
    """The scenario with that change."""
    requests: int
    """Requests at once it would hold, per replica. [requests]"""
    pays: str
    """What it costs, in words."""


class Report(Record):
    """Everything evaluate() knows about a scenario."""

    scenario: Scenario
    """The inputs, echoed."""
    model: ModelFacts
    """The model."""
    gpu: GpuSpec
    """One GPU."""
    gpus_per_replica: int
    """tp x pp. [GPUs]"""
    context_tokens: int
    """Prompt and output of one request. [tokens]"""
    fits: bool
    """Whether at least one request of this context can run."""
    verdict: Verdict
    """The state in one word."""
    sentence: str
    """The verdict in one plain sentence; its first words up to a colon are the state."""
    binding_limit: LimitName
    """What stops more requests."""
    limits: tuple[Limit, ...]
    """Every limit, smallest first."""
    concurrency: int
    """Whole requests at once at this context, per replica. [requests]"""
    total_concurrency: int
    """The same over all replicas. [requests]"""
    capacities: Capacities
    """Ideal, reserved, reported."""
    kv_bytes_per_request: int
    """Ideal KV of one request over the whole replica, repeats included. [bytes]"""
    kv_bytes_per_request_per_gpu: int
    """Ideal KV of one request on the busiest GPU. [bytes/GPU]"""
    reserved_bytes_per_request_per_gpu: int
    """What the engine sets aside for it on the busiest GPU. [bytes/GPU]"""
    kv_bytes_per_token: int
    """KV one more token costs at this context, over the whole model, not counting repeats. [bytes]"""
    kv_fixed_bytes: int
    """KV a request costs whatever its length, over the whole model. [bytes]"""
    replication_ratio: float
    """KV stored over the replica against KV that is distinct: 1 when nothing repeats. [ratio]"""
    groups: tuple[GroupBytes, ...]
    """KV of one request by layer group, busiest GPU."""
    knees: tuple[tuple[str, int], ...]
    """Where groups stop growing: (kind, tokens)."""
    weight_lines: tuple[PartBytes, ...]
    """Weights by part on the busiest GPU."""
    budget: Budget
    """Where the memory of one GPU goes."""
    capacity: Capacity
    """The engine's own accounting at max_model_len."""
    requests_low: int
    """Requests the KV pool holds at the high overhead. [requests]"""
    requests_high: int
    """Requests the KV pool holds at the low overhead. [requests]"""
    longest_context_tokens: int
    """Longest single request the KV pool holds, at most the model's limit. [tokens]"""
    tpot: StepTime | None
    """Time per token at this concurrency; None when nothing fits or the GPU's bandwidth is unknown."""
    ttft: Band | None
    """Prefill of one prompt on an idle replica, cached blocks left out, no queue; None when it cannot be known."""
    first_token: BusyFirstToken | None
    """First token with the decoding and the queue of a busy replica; None when the scenario is not busy."""
    prefix: PrefixSaving | None
    """What the shared prefix saves; None without one."""
    drafted: DraftedSpeed | None
    """Time per token with drafted tokens, as measured elsewhere; None without them."""
    tokens_per_s: float | None
    """Typical output of one replica at this concurrency. [tokens/s]"""
    oversubscription: float | None
    """Requests wanted over requests that run at once: above 1 the rest waits; None without a target. [ratio]"""
    shortfall_bytes: int
    """What is missing per GPU when it does not fit; else 0. [bytes/GPU]"""
    would_fit: tuple[WouldFit, ...]
    """Changes that would make it fit; empty when it does."""
    notes: tuple[Note, ...]
    """What the reader must know."""
    assumptions: tuple[Assumption, ...]
    """What was taken for granted."""
