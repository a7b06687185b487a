r"""How engines word the figures of a start-up log.

A pattern is looked for in lines that hold its needle. Its named groups say what was read: ``<fact>__<unit>``, where
the unit is ``gib``, ``mib``, ``bytes``, ``n`` (a count), ``ratio``, ``flag`` or ``text``. Engines print GB and mean
GiB. Where several patterns give one fact, the first of the list wins.

Source: wordings of vLLM 0.2.7 to 0.33, SGLang 0.3.6 to 0.5.23 and llama-cpp-python 0.2.20 to 0.3.36 as released on
PyPI; TensorRT-LLM from public logs of 0.13 to 1.1.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from kvcalc.enginelog.facts import EngineName

_N = r"\d{1,3}(?:,\d{3})+|\d{1,15}"
_F = r"-?\d{1,9}(?:\.\d{1,9})?"


class Pattern(NamedTuple):
    """One wording."""

    engine: EngineName | None
    """Whose it is; None for options that several engines share."""
    needle: str
    """Text that every such line holds, lower case."""
    regex: re.Pattern[str]
    """What to read from it."""
    failure: str | None = None
    """What went wrong when this line is there, in words."""


def _pattern(engine: EngineName | None, needle: str, text: str, failure: str | None = None) -> Pattern:
    """``{fact:unit}`` in the text becomes a group for a figure of that unit."""

    def group(found: re.Match[str]) -> str:
        fact, unit = found[1], found[2]
        figure = {"n": _N, "text": r"[^\s,'\"]{1,200}", "flag": r"True|False|true|false|0|1|on|off"}.get(unit, _F)
        return f"(?P<{fact}__{unit}>{figure})"

    source = re.sub(r"\{(\w+):(\w+)\}", group, text).replace("{F}", _F).replace("{N}", f"(?:{_N})")
    return Pattern(engine, needle.lower(), re.compile(source, re.IGNORECASE), failure)


_V: EngineName = "vllm"
_VLLM = (
    _pattern(_V, "LLM engine (v", r"LLM engine \(v(?P<version__text>\d[\w.+]{0,60})"),
    _pattern(_V, "LLM engine (v", r"\bmodel='?(?P<model__text>[^\s',]{1,200})"),
    _pattern(_V, "server version ", r"vLLM API server version v?(?P<version__text>\d[\w.+]{0,60})"),
    _pattern(_V, "█", r"█\s{1,8}version v?(?P<version__text>\d[\w.+]{0,60})"),
    _pattern(_V, "█", r"█\s{1,8}model\s{1,8}(?P<model__text>\S{1,200})"),
    _pattern(_V, "weights took", r"Loading model weights took {weights:gib} Gi?B\b"),
    _pattern(_V, "Model loading took", r"Model loading took {weights:gib} GiB"),
    _pattern(
        _V,
        "gpu_memory_utilization",
        r"can use total_gpu_memory \({memory:gib}GiB\) x gpu_memory_utilization \({utilization:ratio}\) = "
        r"{requested:gib}GiB",
    ),
    _pattern(
        _V,
        "model weights take",
        r"model weights take {weights:gib}GiB; non_torch_memory takes {non_torch:gib}GiB; PyTorch activation peak "
        r"memory takes {activation:gib}GiB; the rest of the memory reserved for KV Cache is {kv_pool:gib}GiB",
    ),
    _pattern(
        _V,
        "total_gpu_memory=",
        r"total_gpu_memory={memory:gib}GiB.{0,60}peak_torch_memory={peak_with_weights:gib}GiB.{0,80}"
        r"non_torch_memory={non_torch:gib}GiB kv_cache_size={kv_pool:gib}GiB "
        r"gpu_memory_utilization={utilization:ratio}",
    ),
    _pattern(_V, " blocks: ", r"(?:GPU|cuda|rocm|xpu|hpu) blocks: {num_gpu_blocks:n}\b"),
    _pattern(_V, "KV cache size:", r"(?:GPU|XPU|TPU|NPU|HPU|CPU)(?: \+ host)? KV cache size: {kv_tokens:n} tokens"),
    _pattern(
        _V,
        "Maximum concurrency for",
        r"Maximum concurrency for {max_model_len:n} tokens per request: {max_concurrency:ratio}x",
    ),
    _pattern(_V, "KV cache memory:", r"Available KV cache memory: {kv_pool:gib} GiB"),
    _pattern(_V, "memory reduced to", r"KV cache memory reduced to {kv_pool:gib} GiB"),
    _pattern(_V, "cache memory in use", r"Current kv cache memory in use is {kv_pool:gib} GiB"),
    _pattern(_V, "cache memory in use", r"Current kv cache memory in use is (?P<kv_pool__bytes>\d{1,15}) bytes"),
    _pattern(
        _V,
        "Requested memory:",
        r"Initial free memory: {free:gib} GiB; Requested memory: {utilization:ratio} \(util\), {requested:gib} GiB",
    ),
    _pattern(
        _V,
        "torch peak memory increase",
        r"torch peak memory increase: {activation:gib}GiB; non-torch forward increase memory: {non_torch:gib}GiB; "
        r"weights memory: {weights:gib}GiB",
    ),
    _pattern(
        _V,
        "torch peak memory increase",
        r"torch peak memory increase: {activation:gib}GiB; total consumed \(from mem_get_info\): {consumed:gib}GiB; "
        r"weights memory: {weights:gib}GiB",
    ),
    _pattern(
        _V,
        "Free memory on device",
        r"Free memory on device (?:\S{1,40} )?\({free:gib}/{memory:gib} GiB\) on startup\. Desired GPU memory "
        r"utilization is \({utilization:ratio}, {requested:gib} GiB\)",
    ),
    _pattern(
        _V,
        "Actual usage is",
        r"Actual usage is {weights:gib} GiB for weight, {activation:gib} GiB for peak activation, {non_torch:gib} GiB "
        r"for non-torch memory, and {graphs_captured:gib} GiB for CUDAGraph memory",
    ),
    _pattern(
        _V,
        "Actual usage is",
        r"Actual usage is {consumed:gib} GiB for consumed memory \(weights \+ non-torch\), {activation_and_graphs:gib} "
        r"GiB for peak activation, and {graphs_captured:gib} GiB for CUDAGraph memory",
    ),
    _pattern(_V, "CUDA graph memory:", r"Estimated CUDA graph memory: {graphs_estimated:gib} GiB"),
    _pattern(
        _V,
        "graph pool memory:",
        r"CUDA graph pool memory: {graphs_captured:gib} GiB \(actual\), {graphs_estimated:gib} GiB \(estimated\)",
    ),
    _pattern(_V, "Graph capturing", r"Graph capturing finished in {F} secs?, took {graphs_captured:gib} GiB"),
    _pattern(_V, "graph memory profiling is", r"graph memory profiling is (?P<graphs_flag__text>enabled|disabled)"),
    _pattern(_V, "graph memory profiling", r"--gpu-memory-utilization(?:=| from ){utilization:ratio}"),
    _pattern(
        _V,
        "kv_cache_memory_bytes",
        r"Initial free memory {free:gib} GiB, reserved {pool_by_hand:gib} ?GiB memory for KV Cache",
    ),
    _pattern(_V, "attention block size", r"Setting attention block size to {block_size:n} tokens"),
    _pattern(_V, "Auto-fit", r"Auto-fit max_model_len: reduced from {N} to {auto_model_len:n}"),
    _pattern(_V, "Using max model len", r"Using max model len {stated_model_len:n}"),
    _pattern(_V, "Chunked prefill is enabled", r"with max_num_batched_tokens={max_num_batched_tokens:n}"),
    _pattern(
        _V,
        "Defaulting",
        r"Defaulting max_num_batched_tokens to {max_num_batched_tokens:n} for",
    ),
    _pattern(_V, "Defaulting", r"Defaulting max_num_seqs to {max_num_seqs:n} for"),
    _pattern(
        _V,
        "KV cache is needed",
        r"max seq len \({stated_model_len:n}\),?\s{1,3}\(?{kv_needed:gib} Gi?B KV\s{1,3}cache is needed, which is "
        r"larger than the available KV cache\s{1,3}memory \({kv_pool:gib} Gi?B\)"
        r"(?:.{0,200}?estimated maximum model length is {longest_context:n})?",
        "one request of the context limit needs more than the KV pool",
    ),
    _pattern(
        _V,
        "max seq len (",
        r"max seq len \({stated_model_len:n}\) is larger than the maximum number of tokens that can be stored in KV "
        r"cache \({kv_tokens:n}\)",
        "the context limit is longer than the KV pool",
    ),
    _pattern(
        _V,
        "No available memory for",
        r"No available memory for the cache blocks",
        "weights and overhead leave no memory for KV cache",
    ),
    _pattern(
        _V,
        "is less than desired",
        r"Free memory on device (?:\S{1,40} )?\({free:gib}/{memory:gib} GiB\) on startup is less than desired GPU "
        r"memory utilization \({utilization:ratio}, {requested:gib} GiB\)",
        "less memory was free than the share asked for",
    ),
    _pattern(_V, "Mamba cache blocks", r"exceeds available Mamba cache blocks", "more requests than state blocks"),
    _pattern(_V, "when warming up", r"out of memory occurred when warming up", "no memory for the sampler's warm-up"),
    _pattern(_V, "Failed to load model", r"not enough GPU memory", "the weights do not fit"),
)

_S: EngineName = "sglang"
_SGLANG = (
    _pattern(_S, "Load weight begin", r"Load weight begin\. avail mem={load_begin:gib} GB"),
    _pattern(
        _S,
        "Load weight end",
        r"Load weight end\. (?:elapsed={F} s, )?(?:type=(?P<weights_of__text>\w{1,80}).{0,80}?)?"
        r"avail mem={load_end:gib} GB"
        r"(?:, mem usage={weights_part:gib} GB)?",
    ),
    _pattern(
        _S, "KV Cache is allocated", r"KV Cache is allocated\..{0,80}?K size: {pool_k:gib} GB, V size: {pool_v:gib} GB"
    ),
    _pattern(_S, "KV Cache is allocated", r"KV Cache is allocated\..{0,80}?KV size: {pool_k:gib} GB"),
    _pattern(_S, "SWAKVPool mem usage", r"SWAKVPool mem usage: {pools_together:gib} GB"),
    _pattern(
        _S,
        "Mamba Cache is allocated",
        r"Mamba Cache is allocated\..{0,60}?conv_state size: {state_k:gib} ?GB, ssm_state size: {state_v:gib} ?GB",
    ),
    _pattern(_S, "Memory pool end", r"Memory pool end\. avail mem={after_pool:gib} GB"),
    _pattern(
        _S,
        "max_total_num_tokens=",
        r"max_total_num_tokens={kv_tokens:n}(?:, chunked_prefill_size=(?:-1|{max_num_batched_tokens:n}))?, "
        r"max_prefill_tokens={N}, max_running_requests={max_num_seqs:n}, context_len={max_model_len:n}",
    ),
    _pattern(
        _S,
        "graph end",
        r"Capture (?:[\w -]{1,40} )?(?:cuda|cpu|npu) ?graph end\..{0,60}?mem usage={graphs_captured:gib} GB",
    ),
    _pattern(_S, "mem_fraction_static=", r"mem_fraction_static={utilization:ratio}"),
    _pattern(_S, "tp_size=", r"\btp_size={tp:n}\b"),
    _pattern(_S, "pp_size=", r"\bpp_size={pp:n}\b"),
    _pattern(_S, "dp_size=", r"\bdp_size={dp:n}\b"),
    _pattern(_S, "model_path=", r"\bmodel_path='(?P<model__text>[^\s',]{1,200})'"),
    _pattern(
        _S,
        "mem-fraction-static",
        r"Not enough memory\. Please try to increase --mem-fraction-static|leave no GPU memory for the KV cache under",
        "the memory share leaves nothing for KV cache",
    ),
)

_T: EngineName = "tensorrt_llm"
_TENSORRT = (
    _pattern(_T, "LLM version", r"TensorRT[- ]LLM version: (?P<version__text>\d[\w.+]{0,60})"),
    _pattern(
        _T,
        "paged KV cache",
        r"Allocated {kv_pool:gib} GiB for max tokens in paged KV cache \({kv_tokens:n}\)",
    ),
    _pattern(
        _T,
        "memory usage profiling",
        r"Peak memory during memory usage profiling \(torch \+ non-torch\): {peak_with_all:gib} GiB, available KV "
        r"cache memory when calculating max tokens: {F} GiB, fraction is set {utilization:ratio}.{0,60}device total "
        r"memory {memory:gib} GiB",
    ),
    _pattern(_T, "for model weights", r"Use {weights:gib} GB for model weights"),
    _pattern(
        _T,
        "after loading model weights",
        r"Memory used after loading model weights \(inside torch\) in memory usage profiling: {weights_loaded:gib} GiB",
    ),
    _pattern(
        _T,
        "dynamically allocated",
        r"Memory dynamically allocated during inference \(inside torch\).{0,40}: {activation:gib} GiB",
    ),
    _pattern(_T, "primary", r"(?:blocks in KV cache primary pool: |primary blocks[=: ]{1,3}){num_gpu_blocks:n}"),
    _pattern(_T, "tokens per block", r"tokens per block[=: ]{1,3}{block_size:n}"),
    _pattern(
        _T, "calculating max tokens", r"max tokens in paged kv cache: total: {memory:gib} GiB, available: {F} GiB"
    ),
    _pattern(
        _T,
        "max_num_requests=",
        r"max_seq_len={max_model_len:n}, max_num_requests={max_num_seqs:n}, max_num_tokens={max_num_batched_tokens:n}",
    ),
    _pattern(_T, "tokens in paged", r"Using {kv_tokens:n} tokens in paged KV cache"),
    _pattern(_T, "Adjusted max_seq_len", r"Adjusted max_seq_len to {max_model_len:n}"),
)

_L: EngineName = "llamacpp"
_LLAMACPP = (
    _pattern(
        _L,
        "buffer size",
        r"(?P<device__text>\S{1,40})\s{1,12}(?:(?P<buffer__text>KV|compute|output|RS|model)\s)?buffer size\s{0,4}="
        r"\s{0,12}{size:mib} MiB",
    ),
    _pattern(_L, "cells,", r"size\s{0,4}=\s{0,12}{cache:mib} MiB \(\s{0,12}{N} cells,\s{0,6}[1-9]\d{0,4} layers"),
    _pattern(_L, "self size", r"KV self size\s{0,4}=\s{0,12}{kv_total:mib} Mi?B"),
    _pattern(_L, "build", r"\bbuild(?:_info)?: (?P<version__text>b?\d{3,6})\b"),
    _pattern(_L, "n_ctx", r"\bn_ctx\s{1,12}=\s{0,4}{kv_tokens:n}\b"),
    _pattern(_L, "n_ctx", r"\bn_ctx_(?:seq|per_seq)\s{1,12}=\s{0,4}{max_model_len:n}\b"),
    _pattern(_L, "n_ctx_slot", r"n_ctx_slot = {max_model_len:n}\b"),
    _pattern(_L, "n_seq_max", r"\bn_seq_max\s{1,12}=\s{0,4}{max_num_seqs:n}\b"),
    _pattern(_L, "n_slots", r"\bn_slots = {max_num_seqs:n}\b"),
    _pattern(_L, "n_ubatch", r"\bn_ubatch\s{1,12}=\s{0,4}{max_num_batched_tokens:n}\b"),
    _pattern(_L, "general.name", r"general\.name (?:str )?\s{0,12}=\s{1,4}(?P<model__text>\S.{0,100}\S)"),
    _pattern(
        _L,
        "cudaMalloc failed",
        r"allocating {F} MiB on device \d{1,3}: cudaMalloc failed: out of memory",
        "an allocation failed; the server may have tried again with less",
    ),
)


def _option(fact: str, unit: str, *names: str) -> tuple[Pattern, ...]:
    """An option as a command line, a Python dict and a list of settings write it."""
    return tuple(
        _pattern(None, name, rf"(?<![\w-])(?:--)?{name}['\"]?\s{{0,2}}[:= ]\s{{0,2}}['\"]?{{{fact}:{unit}}}(?![\w.])")
        for name in names
    )


_OPTIONS = (
    *_option("utilization", "ratio", "gpu_memory_utilization", "gpu-memory-utilization", "mem-fraction-static"),
    *_option("option_model_len", "n", "max_model_len", "max-model-len", "max_seq_len", "context-length"),
    *_option("max_num_seqs", "n", "max_num_seqs", "max-num-seqs", "max-running-requests"),
    *_option("max_num_batched_tokens", "n", "max_num_batched_tokens", "max-num-batched-tokens"),
    *_option("tp", "n", "tensor_parallel_size", "tensor-parallel-size"),
    *_option("pp", "n", "pipeline_parallel_size", "pipeline-parallel-size"),
    *_option("dp", "n", "data_parallel_size", "data-parallel-size"),
    *_option("dcp", "n", "decode_context_parallel_size", "decode-context-parallel-size"),
    *_option("block_size", "n", "block_size", "block-size"),
    *_option("enforce_eager", "flag", "enforce_eager"),
    *_option("kv_precision", "text", "kv_cache_dtype", "kv-cache-dtype"),
    *_option("num_gpu_blocks", "n", "num_gpu_blocks"),
    _pattern(None, "out of memory", r"CUDA out of memory\. Tried to allocate", "CUDA ran out of memory"),
)

PATTERNS: tuple[Pattern, ...] = (*_VLLM, *_SGLANG, *_TENSORRT, *_LLAMACPP, *_OPTIONS)
