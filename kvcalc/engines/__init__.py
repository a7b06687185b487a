"""How inference engines really allocate the KV cache.

``engine(id).plan(spec, Settings(…))`` lays a model out once; the plan then answers for any pool and context.
The functions here are the short way for a single question.
"""

from __future__ import annotations

from typing import TypedDict, Unpack

from kvcalc.engines.base import CacheGroup, Capacity, Engine, EngineDefaults, Plan, Settings
from kvcalc.engines.llamacpp import Llamacpp
from kvcalc.engines.sglang import Sglang
from kvcalc.engines.tensorrt_llm import TensorrtLlm
from kvcalc.engines.vllm import Vllm
from kvcalc.errors import ScenarioError, check_whole
from kvcalc.model_spec import ModelSpec

__all__ = [
    "CacheGroup",
    "Capacity",
    "Engine",
    "EngineDefaults",
    "Plan",
    "Settings",
    "SettingsKeywords",
    "capacity",
    "engine_by_id",
    "engines",
    "requests_at",
    "reserved_bytes_per_sequence",
]

_ENGINES: dict[str, Engine] = {known.id: known for known in (Vllm(), Sglang(), TensorrtLlm(), Llamacpp())}


class SettingsKeywords(TypedDict, total=False):
    """The fields of ``Settings`` as keyword arguments."""

    kv_precision: str
    tp: int
    pp: int
    dp: int
    dcp: int
    block_size: int | None
    max_num_batched_tokens: int
    prefix_caching: bool
    speculative_tokens: int
    state_precision: str
    hybrid_manager: bool
    async_scheduling: bool
    engine_version: str | None


def engines() -> tuple[Engine, ...]:
    """Every engine, in the order of the page."""
    return tuple(_ENGINES.values())


def engine_by_id(engine: str) -> Engine:
    """An engine by id. Raises ScenarioError naming ``engine``."""
    found = _ENGINES.get(str(engine))
    if found is None:
        raise ScenarioError("engine", f"one of {', '.join(_ENGINES)}", engine, hint="Choose one of these.")
    return found


def capacity(
    spec: ModelSpec,
    *,
    pool_bytes: int,
    max_model_len: int,
    engine: str = "vllm",
    kv_precision: str = "auto",
    tp: int = 1,
    pp: int = 1,
    dp: int = 1,
    dcp: int = 1,
    block_size: int | None = None,
    max_num_batched_tokens: int = 8192,
    prefix_caching: bool = True,
    speculative_tokens: int = 0,
    state_precision: str = "auto",
    hybrid_manager: bool = True,
    async_scheduling: bool = True,
    engine_version: str | None = None,
) -> Capacity:
    """What one replica of an engine says it can hold, as its start-up log would print it.

    Parameters
    ----------
    pool_bytes : memory the engine found free for the cache, on each GPU. [bytes/GPU]
    max_model_len : longest request the engine is started for. [tokens]
    engine : vllm, sglang, tensorrt_llm or llamacpp.
    kv_precision, state_precision : format ids; 'auto' is what the checkpoint declares, else 16-bit.
    tp, pp, dcp : tensor, pipeline and decode context parallel sizes. [GPUs]
    dp : data parallel replicas; each has its own pool, and every number is of one of them. [replicas]
    block_size : tokens per block; None is the engine's choice. [tokens]
    max_num_batched_tokens : tokens of one batch; windows reserve for them. [tokens]
    prefix_caching : whether finished prefixes are kept; recurrent states then cost more pages.
    speculative_tokens : drafted tokens per step; a model with MTP layers then caches them too. [tokens]
    hybrid_manager : whether windows free what they no longer see.
    async_scheduling : whether a second batch is in flight.
    engine_version : release whose accounting to use; None is the newest known.

    Raises
    ------
    ScenarioError    a layout or version the engine would refuse.
    CatalogueError   an unknown precision id.
    """
    settings = Settings(
        kv_precision=kv_precision,
        tp=tp,
        pp=pp,
        dp=dp,
        dcp=dcp,
        block_size=block_size,
        max_num_batched_tokens=max_num_batched_tokens,
        prefix_caching=prefix_caching,
        speculative_tokens=speculative_tokens,
        state_precision=state_precision,
        hybrid_manager=hybrid_manager,
        async_scheduling=async_scheduling,
        engine_version=engine_version,
    )
    return engine_by_id(engine).plan(spec, settings).capacity(pool_bytes=pool_bytes, max_model_len=max_model_len)


def reserved_bytes_per_sequence(
    spec: ModelSpec, *, context_tokens: int, engine: str = "vllm", **settings: Unpack[SettingsKeywords]
) -> int:
    """Bytes the engine sets aside for one sequence of this length in steady decode, rounded to its blocks.

    Never below ``kvcalc.kv_bytes_per_sequence``, and never falling as the context grows. [bytes/GPU]
    Raises ScenarioError, CatalogueError as ``capacity`` does.
    """
    check_whole("context_tokens", context_tokens, 0)
    return engine_by_id(engine).plan(spec, Settings(**settings)).reserved_bytes(context_tokens)


def requests_at(
    spec: ModelSpec, *, pool_bytes: int, context_tokens: int, engine: str = "vllm", **settings: Unpack[SettingsKeywords]
) -> int:
    """Whole requests of this length that decode side by side in a pool of this many bytes per GPU (steady).

    The engine's own printed figure, which also reserves for tokens in flight, is ``capacity().max_concurrency``.
    Raises ScenarioError, CatalogueError as ``capacity`` does. [requests]
    """
    check_whole("pool_bytes", pool_bytes, 0)
    check_whole("context_tokens", context_tokens, 0)
    return engine_by_id(engine).plan(spec, Settings(**settings)).requests_at(pool_bytes, context_tokens)
