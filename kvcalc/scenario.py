"""A scenario: everything a person chose, with every field explicit."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, Literal

from pydantic import ValidationError, model_validator

from kvcalc import attention_variant, catalogue
from kvcalc.attention_variant import AS_TRAINED
from kvcalc.errors import KvcalcError, Record, ScenarioError
from kvcalc.hardware import GpuSpec
from kvcalc.layout_choice import choose_layout
from kvcalc.model_spec import ModelSpec
from kvcalc.reading import hf_config
from kvcalc.units import GB, MIB

DEFAULT_MODEL = "meta-llama/Llama-3.3-70B-Instruct"
DEFAULT_GPU = "h100-sxm-80gb"
PASTED = "pasted"
CUSTOM = "custom"
_DEFAULT_PROMPT, _DEFAULT_OUTPUT, _DEFAULT_LIMIT = 7_000, 1_000, 32_768


class CustomGpu(Record):
    """A GPU typed in by hand."""

    memory_mib: int
    """Memory the driver reports. [MiB]"""
    bandwidth_gb_per_s: int
    """Memory bandwidth, decimal. [GB/s]"""
    bf16_tflops: int | None = None
    """Dense 16-bit compute; None leaves the first token's time out. [TFLOP/s]"""

    def __init__(self, **fields: Any) -> None:
        """Every fault comes out in our own voice. Raises KvcalcError."""
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise scenario_error(error) from None

    @model_validator(mode="after")
    def _check(self) -> CustomGpu:
        for name in type(self).model_fields:
            _check_bounds(name, getattr(self, name), 1, _MOST_OF_A_GPU)
        return self


class Scenario(Record):
    """Everything a person chose. Fields left out are filled in once, so that a link carries every one."""

    model: str
    """Preset id, or 'pasted'."""
    model_facts: str | None = None
    """Sizing facts of a pasted model, compact JSON; None for a preset."""
    model_label: str | None = None
    """What to call a pasted model."""
    attention: str = "as_trained"
    """Attention what-if: as_trained, mha, mqa, mla or gqa-<kv heads>."""
    weight_precision: str = "checkpoint"
    """Weight format id; 'checkpoint' is as published."""
    kv_precision: str = "auto"
    """KV format id; 'auto' is what the checkpoint declares, else 16-bit."""
    state_precision: str = "auto"
    """Recurrent-state precision."""
    gpu: str = DEFAULT_GPU
    """GPU id, or 'custom'."""
    custom_gpu: CustomGpu | None = None
    """The typed GPU when gpu is 'custom'."""
    tp: int
    """Tensor parallel ranks. [GPUs]"""
    pp: int
    """Pipeline stages. [stages]"""
    ep: int = 1
    """Expert parallel ranks. [GPUs]"""
    dcp: int = 1
    """Decode context parallel ranks. [GPUs]"""
    replicas: int = 1
    """Independent copies of the whole. [replicas]"""
    engine: Literal["vllm", "sglang", "tensorrt_llm", "llamacpp"] = "vllm"
    """Serving engine."""
    engine_version: str | None = None
    """Engine release; None is the newest one known."""
    utilization_pct: int | None = None
    """Share of memory the engine may take; None is its default. [%]"""
    max_model_len: int
    """Longest request the engine admits. [tokens]"""
    max_num_seqs: int | None = None
    """Requests the engine runs at once; None is its default. [requests]"""
    max_num_batched_tokens: int | None = None
    """Tokens of one step; None is the engine's default. [tokens]"""
    block_size: int | None = None
    """Tokens per KV block; None is the engine's default. [tokens]"""
    prefix_caching: bool = True
    """Whether finished prompts stay reusable."""
    speculative_tokens: int = 0
    """Draft tokens per step. [tokens]"""
    enforce_eager: bool = False
    """Whether CUDA graphs are off."""
    hybrid_manager: bool | None = None
    """Whether window layers free what they no longer see; None leaves it to the engine."""
    async_scheduling: bool = True
    """Whether the next step is scheduled while one runs."""
    images: bool = True
    """Whether a vision model accepts images."""
    chunked_prefill: bool = True
    """Whether a long prompt is computed in steps of max_num_batched_tokens."""
    weights_mib: int | None = None
    """Weights of one GPU as the engine's log states them, instead of the computed figure. [MiB]"""
    kv_pool_mib: int | None = None
    """KV pool of one GPU as the log states it, or as --kv-cache-memory-bytes sets it. [MiB]"""
    non_torch_mib: int | None = None
    """Memory outside PyTorch as measured, instead of the estimate. [MiB]"""
    activations_mib: int | None = None
    """Activation peak as measured, instead of the estimate. [MiB]"""
    cuda_graphs_mib: int | None = None
    """CUDA graph memory as measured, instead of the estimate. [MiB]"""
    prompt_tokens: int
    """Prompt of one request. [tokens]"""
    output_tokens: int
    """Output of one request. [tokens]"""
    target_requests: int | None = None
    """Requests the user wants at once; None asks for the most. [requests]"""
    target_tpot_ms: int | None = 50
    """Slowest acceptable typical time per token; None is no target. [ms]"""
    target_ttft_ms: int | None = None
    """Slowest acceptable typical time to the first token; None is no target. [ms]"""
    cached_prompt_tokens: int = 0
    """Tokens of the prompt that many requests share and the prefix cache holds. [tokens]"""
    busy: bool = False
    """Whether prefill of arriving requests shares the steps: a continuously loaded server."""
    requests_per_hour: int | None = None
    """Arriving requests, for the fleet; None leaves the fleet out. [requests/h]"""
    prompt_tokens_p95: int | None = None
    """95th percentile of prompt lengths; None takes prompt_tokens for all. [tokens]"""
    output_tokens_p95: int | None = None
    """95th percentile of output lengths; None takes output_tokens for all. [tokens]"""
    price_cents_per_gpu_hour: int | None = None
    """Price of one GPU, typed by the user; None leaves cost out. [US cents/h]"""
    fleet_utilization_pct: int = 70
    """Share of its capacity that a fleet is planned to use. [%]"""

    def __init__(self, **fields: Any) -> None:
        """Every fault comes out in our own voice. Raises KvcalcError."""
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise scenario_error(error) from None

    @classmethod
    def default(cls) -> Scenario:
        """What a first visit shows."""
        return cls(model=DEFAULT_MODEL)

    @classmethod
    def from_json(cls, text: str) -> Scenario:
        """A scenario from its JSON. Raises KvcalcError."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise scenario_error(error) from None

    @property
    def context_tokens(self) -> int:
        """Prompt and output of one request. [tokens]"""
        return self.prompt_tokens + self.output_tokens

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, given: Any) -> Any:
        """Fields left out, filled from the model: lengths it admits, and the smallest layout that is useful."""
        if not isinstance(given, dict) or not isinstance(given.get("model"), str):
            return given
        if given.keys() >= _FILLED:
            return given
        return {**_filled_in(given), **given}

    @model_validator(mode="after")
    def _check(self) -> Scenario:
        for name, (least, most) in _BOUNDS.items():
            _check_bounds(name, getattr(self, name), least, most)
        if self.context_tokens < 1:
            raise ScenarioError(
                "prompt_tokens", "at least one token with output_tokens", 0, hint="Set a prompt length."
            )
        if self.cached_prompt_tokens > self.prompt_tokens:
            raise ScenarioError(
                "cached_prompt_tokens",
                f"at most prompt_tokens ({self.prompt_tokens:,})",
                self.cached_prompt_tokens,
                hint="Count only what requests share.",
            )
        if (self.gpu == CUSTOM) != (self.custom_gpu is not None):
            raise ScenarioError("custom_gpu", "figures exactly when gpu is 'custom'", self.gpu, hint="Pick a GPU.")
        if (self.model == PASTED) != (self.model_facts is not None):
            raise ScenarioError(
                "model_facts", "facts exactly when model is 'pasted'", self.model, hint="Paste a config."
            )
        return self


_FILLED = {"tp", "pp", "max_model_len", "prompt_tokens", "output_tokens"}


def _filled_in(given: dict[str, Any]) -> dict[str, Any]:
    """Values for the fields a scenario may leave out, as far as the given ones allow."""
    spec = _spec(given["model"], given.get("model_facts"), given.get("model_label"), given.get("attention", AS_TRAINED))
    longest = spec.max_context_tokens or _DEFAULT_LIMIT
    filled: dict[str, Any] = {}
    limit = given.get("max_model_len")
    context = min(_DEFAULT_PROMPT + _DEFAULT_OUTPUT, longest, limit if isinstance(limit, int) else longest)
    filled["output_tokens"] = given.get("output_tokens", min(_DEFAULT_OUTPUT, context // 4))
    filled["prompt_tokens"] = given.get("prompt_tokens", max(1, context - filled["output_tokens"]))
    context = filled["prompt_tokens"] + filled["output_tokens"]
    filled["max_model_len"] = max(min(_DEFAULT_LIMIT, longest), min(context, longest))
    if "tp" in given or "pp" in given:
        return {**filled, "tp": 1, "pp": 1}
    tp, pp = choose_layout(
        spec,
        gpu=_gpu(given.get("gpu", DEFAULT_GPU), given.get("custom_gpu")),
        engine=given.get("engine", "vllm"),
        engine_version=given.get("engine_version"),
        weight_precision=given.get("weight_precision", "checkpoint"),
        kv_precision=given.get("kv_precision", "auto"),
        utilization_pct=given.get("utilization_pct"),
        context_tokens=context,
    )
    return {**filled, "tp": tp, "pp": pp}


def _check_bounds(name: str, value: int | None, least: int, most: int) -> None:
    if value is not None and not least <= value <= most:
        raise ScenarioError(name, f"a whole number from {least} to {most:,}", value, hint=_BOUNDS_HINT)


_MOST_TOKENS, _MOST_GPUS, _MOST_OF_A_GPU = 10**9, 2**16, 10**9
_BOUNDS_HINT = "Correct this field."
_BOUNDS: dict[str, tuple[int, int]] = {
    **dict.fromkeys(("tp", "pp", "ep", "dcp", "replicas"), (1, _MOST_GPUS)),
    **dict.fromkeys(("utilization_pct", "fleet_utilization_pct"), (1, 100)),
    **dict.fromkeys(
        (
            "prompt_tokens",
            "output_tokens",
            "cached_prompt_tokens",
            "speculative_tokens",
            "kv_pool_mib",
            "non_torch_mib",
            "activations_mib",
            "cuda_graphs_mib",
            "price_cents_per_gpu_hour",
        ),
        (0, _MOST_TOKENS),
    ),
    **dict.fromkeys(
        (
            "max_model_len",
            "max_num_seqs",
            "max_num_batched_tokens",
            "block_size",
            "target_requests",
            "target_tpot_ms",
            "target_ttft_ms",
            "weights_mib",
            "requests_per_hour",
            "prompt_tokens_p95",
            "output_tokens_p95",
        ),
        (1, _MOST_TOKENS),
    ),
}
"""Least and most of each whole-number field: wide enough for anyone, so that arithmetic stays quick."""


def scenario_error(error: ValidationError) -> KvcalcError:
    """The first fault of a pydantic error as a ScenarioError."""
    first = error.errors()[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, KvcalcError):
        return cause
    field = ".".join(str(part) for part in first["loc"]) or "scenario"
    message = first["msg"].removeprefix("Input should be ")
    expected = _TYPES_IN_WORDS.get(first["type"], message[0].lower() + message[1:])
    return ScenarioError(field, expected, first.get("input"), hint="Correct this field.")


_TYPES_IN_WORDS = {"int_type": "a whole number", "bool_type": "true or false", "string_type": "text"}
"""pydantic's names of a wrong type, in words."""


@lru_cache(maxsize=64)
def _pasted_spec(facts: str, label: str | None) -> ModelSpec:
    return hf_config.read_config(json.loads(facts), label=label)


def spec_of(scenario: Scenario) -> ModelSpec:
    """The scenario's model, with its attention what-if applied. Raises ConfigError, CatalogueError, ScenarioError."""
    return _spec(scenario.model, scenario.model_facts, scenario.model_label, scenario.attention)


@lru_cache(maxsize=256)
def _spec(model: str, facts: str | None, label: str | None, attention: str) -> ModelSpec:
    if model == PASTED and facts is None:
        raise ScenarioError("model_facts", "the sizing facts of the pasted model", None, hint="Paste a config.")
    spec = _pasted_spec(facts, label) if facts is not None else catalogue.model(model)
    return attention_variant.with_attention(spec, attention)


def gpu_of(scenario: Scenario) -> GpuSpec:
    """The scenario's GPU. Raises CatalogueError for an unknown name."""
    return _gpu(scenario.gpu, scenario.custom_gpu)


def _gpu(name: str, typed: CustomGpu | dict[str, Any] | None) -> GpuSpec:
    if typed is None:
        return catalogue.gpu(name)
    custom = CustomGpu.model_validate(typed)
    return GpuSpec.custom(
        memory_bytes=custom.memory_mib * MIB,
        bandwidth_bytes_per_s=custom.bandwidth_gb_per_s * GB,
        bf16_flops_per_s=None if custom.bf16_tflops is None else custom.bf16_tflops * 10**12,
    )
