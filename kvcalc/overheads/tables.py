"""The fitted constants of ``model_presets/overheads.toml`` as strict records. Units are in the keys."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from math import ceil

from pydantic import Field

from kvcalc.data import load_table
from kvcalc.engines.base import Version, parse_version
from kvcalc.errors import Record
from kvcalc.units import GIB, ceil_div


@lru_cache(maxsize=64)
def _release(text: str) -> Version:
    return parse_version(text)


class _Sourced(Record):
    source: str
    """Where the figures come from."""
    checked: str
    """Date the source was read, ISO."""


class _Since(Record):
    """A row that holds for a range of engine versions."""

    from_version: str = Field(default="0.0", alias="from")
    """First version it holds for."""
    below: str | None = None
    """First version it no longer holds for; None when it still does."""

    def holds_for(self, version: Version) -> bool:
        """Whether the row applies to this engine version."""
        return _release(self.from_version) <= version and (self.below is None or version < _release(self.below))


class UtilizationRow(_Since, _Sourced):
    """Default share of the memory the engine asks for."""

    pct: int
    """Share of the memory a process sees. [%]"""


class BatchingRow(_Sourced):
    """Default batch limits of a class of GPUs."""

    memory_from_gib: int
    """Smallest memory as the driver reports it. [GiB]"""
    not_compute_capability: str | None = None
    """Compute capability the row does not hold for."""
    max_num_batched_tokens: int
    """Tokens of one step. [tokens]"""
    max_num_seqs: int
    """Requests of one step. [requests]"""
    text: str
    """The class in words."""


class Unchunked(_Since, _Sourced):
    """Versions whose batch held a whole prompt."""

    smallest_batch_tokens: int
    """Least tokens of one step. [tokens]"""
    longest_unchunked_tokens: int
    """Context from which prompts were cut in chunks. [tokens]"""
    max_num_seqs: int
    """Requests of one step. [requests]"""


class SamplerRow(_Since, _Sourced):
    """Live bytes per logit in the sampler's warm-up."""

    bytes_per_logit: int
    """Sum over the tensors alive at the peak. [bytes]"""
    text: str
    """The tensors."""


class Activation(_Sourced):
    """Shape of the activation peak."""

    base_gib: Decimal
    """What is left over in every log. [GiB]"""
    fp32_extra_bytes_per_logit: int
    """More bytes per logit when the model runs in 32 bits. [bytes]"""
    hidden_copies: int
    """Hidden states alive beside the sampler. [copies]"""
    gated_ffn_copies: int
    """Feed-forward widths alive in a gated block. [copies]"""
    plain_ffn_copies: int
    """Feed-forward widths alive without a gate. [copies]"""
    residual_copies: int
    """Hidden states alive in the forward pass. [copies]"""
    moe_persistent_from: str
    """First version that keeps the expert workspace between steps."""


class EncoderPeak(Record):
    """Peak of one vision encoder."""

    pixels_per_token_side: int
    """Side of the square one token stands for. [pixels]"""
    item_tokens: int
    """Tokens of the item measured. [tokens]"""
    gib: Decimal
    """Its peak. [GiB]"""


class Encoder(_Sourced):
    """Vision encoders."""

    default_item_tokens: int
    """Largest item when the model states none. [tokens]"""
    peak: tuple[EncoderPeak, ...]
    """Measured encoders by shape; the others stay under the sampler's peak."""


class GoneAtStartRow(_Sourced):
    """Memory gone on an empty card when the engine checks that its share is free."""

    tp_to: int | None = None
    """Largest TP it holds for. [GPUs]"""
    gib: Decimal
    """Seen. [GiB]"""


class NonTorchRow(_Since, _Sourced):
    """Memory that PyTorch does not see."""

    pipeline_only: bool = False
    """Whether the row is for pipeline stages without tensor parallelism."""
    tp_to: int | None = None
    """Largest TP it holds for. [GPUs]"""
    links: tuple[str, ...] = ()
    """Links it holds for; empty for any."""
    vendors: tuple[str, ...] = ()
    """Vendors it holds for; empty for any."""
    gib: Decimal
    """Default. [GiB]"""
    text: str
    """What it stands for and what was seen."""


class DeltaNetWarmUp(_Since, _Sourced):
    """Memory some releases kept after warming up linear-attention kernels."""

    not_compute_capability: str
    """Compute capability that did not."""
    families: tuple[str, ...]
    """Recurrences it concerns."""
    gib: Decimal
    """Default. [GiB]"""
    text: str
    """What was seen."""


class CudaGraphs(_Since, _Sourced):
    """The engine's own estimate of its CUDA graphs."""

    base_gib: Decimal
    """First capture. [GiB]"""
    gib_per_layer_and_graph: Decimal
    """Each further capture, per layer. [GiB]"""
    moe_factor: Decimal
    """How much more a routed model needs. [ratio]"""
    seqs_factor: int
    """Largest capture size, in multiples of max_num_seqs."""
    largest_size: int
    """Largest capture size. [tokens]"""
    small_sizes: tuple[int, ...]
    """Smallest capture sizes. [tokens]"""
    size_ranges: tuple[tuple[int, int, int], ...]
    """Further sizes: first, last, step. [tokens]"""


class VllmBand(_Sourced):
    """How far the true overhead lies from the estimate."""

    low_gib: Decimal
    """Least width below. [GiB]"""
    low_share: Decimal
    """Width below, as a share of the estimate. [ratio]"""
    high_gib: Decimal
    """Least width above. [GiB]"""
    high_share: Decimal
    """Width above, as a share of the estimate. [ratio]"""
    graphs_high_share: Decimal
    """Width above once CUDA graphs are charged. [ratio]"""
    tp_gib: Decimal
    """More on both sides under tensor parallelism. [GiB]"""
    hybrid_high_gib: Decimal
    """Width above for recurrent and sparse-attention models. [GiB]"""
    unified_low_gib: Decimal
    """More below where memory is shared with the host. [GiB]"""
    unified_high_gib: Decimal
    """More above where memory is shared with the host. [GiB]"""


class VllmTables(Record):
    """vLLM's constants."""

    utilization: tuple[UtilizationRow, ...]
    """Default memory share by version."""
    batching: tuple[BatchingRow, ...]
    """Default batch limits by GPU class."""
    unchunked: Unchunked
    """Versions that did not cut prompts in chunks."""
    sampler: tuple[SamplerRow, ...]
    """Sampler peak by version."""
    activation: Activation
    """Activation peak."""
    encoder: Encoder
    """Vision encoders."""
    gone_at_start: tuple[GoneAtStartRow, ...]
    """Memory gone before the engine starts, by TP."""
    non_torch: tuple[NonTorchRow, ...]
    """Memory PyTorch does not see, by version and layout."""
    delta_net_warm_up: DeltaNetWarmUp
    """Linear-attention warm-up."""
    cuda_graphs: CudaGraphs
    """CUDA-graph estimate."""
    band: VllmBand
    """Width of the band."""


class BeforeLoadRow(_Sourced):
    """Memory gone before SGLang loads weights."""

    tp_to: int | None = None
    """Largest TP it holds for. [GPUs]"""
    gib: Decimal
    """Default. [GiB]"""
    low_gib: Decimal
    """Least seen. [GiB]"""
    high_gib: Decimal
    """Most seen. [GiB]"""


class SglangBatchingRow(Record):
    """SGLang's default batch limits of a class of GPUs."""

    memory_below_gib: int | None = None
    """Memory the class ends at; None for the largest. [GiB]"""
    max_num_batched_tokens: int
    """Chunked prefill size. [tokens]"""
    decode_graph_seqs: int
    """Largest decode batch with a CUDA graph. [requests]"""
    decode_graph_seqs_tp4: int
    """The same from TP 4 on. [requests]"""


class SglangReserve(_Sourced):
    """SGLang's rule for the memory it leaves to activations and graphs."""

    base_mib: int
    """Metadata. [MiB]"""
    mib_per_prefill_token: Decimal
    """Activations. [MiB/token]"""
    smallest_prefill_tokens: int
    """Least prefill chunk counted. [tokens]"""
    unchunked_prefill_tokens: int
    """Prefill tokens counted without chunks: max_prefill_tokens. [tokens]"""
    mib_per_parallel_gpu: int
    """Communication. [MiB/GPU]"""
    mib_per_decode_seq: int
    """Decode graphs. [MiB/request]"""
    mib_per_prefill_graph: int
    """Prefill graphs. [MiB/graph]"""
    latent_prefill_graphs_mib: int
    """Prefill graphs of an MLA model. [MiB]"""
    large_card_from_gib: int
    """Memory above which the floor holds. [GiB]"""
    large_card_floor_mib: int
    """Least reserve of a large card. [MiB]"""
    prefill_graph_ranges: tuple[tuple[int, int, int], ...]
    """Prefill graph sizes: first, last, step. [tokens]"""
    vision_factor: Decimal
    """What a vision model leaves of the fraction. [ratio]"""


class SglangTables(_Sourced):
    """SGLang's constants."""

    max_running_requests: int
    """Requests of one step when unset: the least its rule gives. [requests]"""
    before_load: tuple[BeforeLoadRow, ...]
    """Memory gone before the weights load, by TP."""
    reserve: SglangReserve
    """The rule behind an unset memory fraction."""
    batching: tuple[SglangBatchingRow, ...]
    """Default batch limits by GPU class."""


class TensorRtTables(_Sourced):
    """TensorRT-LLM's constants."""

    free_pct: int
    """Share of the memory left after a dry run. [%]"""
    overhead_low_gib: Decimal
    """Least peak over the weights. [GiB]"""
    overhead_gib: Decimal
    """Suggested peak over the weights. [GiB]"""
    overhead_high_gib: Decimal
    """Most seen. [GiB]"""
    max_num_batched_tokens: int
    """Tokens of one step. [tokens]"""
    max_num_seqs: int
    """Requests of one step. [requests]"""


class LlamaCppTables(_Sourced):
    """llama.cpp's constants."""

    ubatch_tokens: int
    """Tokens of one physical batch. [tokens]"""
    slots: int
    """Requests the server runs at once. [requests]"""
    bytes_per_ubatch_value: int
    """Bytes of one compute-buffer value. [bytes]"""
    high_factor: Decimal
    """How much larger the buffer was on hybrids. [ratio]"""
    context_low_gib: Decimal
    """Least CUDA context. [GiB]"""
    context_gib: Decimal
    """CUDA context. [GiB]"""
    context_high_gib: Decimal
    """Most CUDA context. [GiB]"""


class OverheadTables(Record):
    """Everything in overheads.toml."""

    vllm: VllmTables
    """vLLM."""
    sglang: SglangTables
    """SGLang."""
    tensorrt_llm: TensorRtTables
    """TensorRT-LLM."""
    llamacpp: LlamaCppTables
    """llama.cpp."""


@lru_cache(maxsize=1)
def tables() -> OverheadTables:
    """The constants, read once."""
    return load_table("overheads.toml", OverheadTables)


@lru_cache(maxsize=256)
def gib_bytes(gib: Decimal) -> Fraction:
    """A table's GiB as exact bytes."""
    return Fraction(gib) * GIB


@lru_cache(maxsize=256)
def whole_bytes(gib: Decimal) -> int:
    """A table's GiB in whole bytes, rounded up."""
    return ceil(gib_bytes(gib))


@lru_cache(maxsize=256)
def ratio(value: Decimal) -> Fraction:
    """A table's share or factor, exact."""
    return Fraction(value)


def portion(share: Decimal, of: int) -> int:
    """A table's share of this many bytes, rounded up."""
    exact = ratio(share)
    return ceil_div(exact.numerator * of, exact.denominator)


@lru_cache(maxsize=16)
def sizes_in(ranges: tuple[tuple[int, int, int], ...]) -> tuple[int, ...]:
    """Every size of (first, last, step) ranges, in order."""
    return tuple(size for first, last, step in ranges for size in range(first, last + 1, step))
