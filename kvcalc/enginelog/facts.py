"""What a start-up log says, each figure with the line it came from."""

from __future__ import annotations

from typing import Literal

from kvcalc.errors import Note, Record

EngineName = Literal["vllm", "sglang", "tensorrt_llm", "llamacpp"]


class LogLine(Record):
    """A line of the log."""

    number: int
    """Where it stands, counted from 1."""
    text: str
    """The line without colours and carriage returns, cut when long."""


class Reading(Record):
    """A figure and the line it was read from."""

    fact: str
    """The field of the log's facts that it went into."""
    printed: str
    """The figure as printed, with the unit it stands for."""
    line: LogLine
    """Where it stands."""


class EngineLog(Record):
    """The facts of a start-up log. Sizes are those of one GPU: of several ranks the largest need, the smallest pool."""

    engine: EngineName | None = None
    """Whose log it is; None when no line was understood."""
    version: str | None = None
    """Release, as printed."""
    model: str | None = None
    """Model, as the engine was started with it."""
    weights_bytes: int | None = None
    """Weights loaded. [bytes/GPU]"""
    kv_pool_bytes: int | None = None
    """Memory for KV cache; negative when the engine found none. [bytes/GPU]"""
    kv_total_bytes: int | None = None
    """KV cache over all devices, where the engine splits it unevenly. [bytes]"""
    kv_tokens: int | None = None
    """KV cache in tokens, in the engine's own accounting. [tokens]"""
    max_concurrency: float | None = None
    """Requests of max_model_len the engine says fit. [requests]"""
    max_model_len: int | None = None
    """Longest request admitted. [tokens]"""
    non_torch_bytes: int | None = None
    """Memory outside PyTorch. [bytes/GPU]"""
    activation_bytes: int | None = None
    """Activation peak over the weights, CUDA graphs not included where the log tells them apart. [bytes/GPU]"""
    cuda_graph_bytes: int | None = None
    """CUDA graphs as charged to the pool; else as captured. [bytes/GPU]"""
    cuda_graphs_charged: bool | None = None
    """Whether the pool paid for them; None when the log does not tell."""
    memory_bytes: int | None = None
    """Memory of the card as the engine sees it. [bytes/GPU]"""
    requested_bytes: int | None = None
    """Share of it the engine went up to. [bytes/GPU]"""
    free_bytes: int | None = None
    """Free before the weights were loaded. [bytes/GPU]"""
    utilization: float | None = None
    """Memory share the engine was given. [ratio]"""
    num_gpu_blocks: int | None = None
    """Blocks of the pool. [blocks]"""
    block_size: int | None = None
    """Tokens of a block. [tokens]"""
    tp: int | None = None
    """Tensor parallel ranks, where the log states them. [GPUs]"""
    tp_at_least: int | None = None
    """Ranks whose tag was seen: from 0.11 on, vLLM's rank 0 prints most lines alone. [GPUs]"""
    pp: int | None = None
    """Pipeline stages. [stages]"""
    dp: int | None = None
    """Data parallel engines. [replicas]"""
    dcp: int | None = None
    """Decode context parallel ranks. [GPUs]"""
    max_num_seqs: int | None = None
    """Requests of one step. [requests]"""
    max_num_batched_tokens: int | None = None
    """Tokens of one step. [tokens]"""
    enforce_eager: bool | None = None
    """Whether CUDA graphs were off."""
    kv_precision: str | None = None
    """KV cache type, as the engine was started with it."""
    kv_needed_bytes: int | None = None
    """What one request of max_model_len needs, when the engine refused. [bytes/GPU]"""
    longest_context_tokens: int | None = None
    """Longest request the engine said would fit, when it refused. [tokens]"""
    pool_by_hand: bool = False
    """Whether the pool was set by hand, not by the memory share."""
    failure: str | None = None
    """Why the engine did not start, in words; None when the log shows no failure."""
    readings: tuple[Reading, ...] = ()
    """Every figure used, in the order of the log."""
    unread: tuple[LogLine, ...] = ()
    """Lines that speak of memory and were not understood, the first of them."""
    unread_count: int = 0
    """All of those lines. [lines]"""
    notes: tuple[Note, ...] = ()
    """What the reader of these facts must know."""
