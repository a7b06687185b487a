"""SGLang, TensorRT-LLM and llama.cpp: expected values are arithmetic on their rules, or start-up logs."""

from __future__ import annotations

import pytest

from kvcalc.engines import Settings, capacity, engine_by_id
from kvcalc.errors import ScenarioError
from tests import engine_specs as shapes
from tests.engine_specs import GIB


def test_sglang_counts_tokens_not_blocks() -> None:
    """QwQ-32B at TP 4: 64 layers, 2 of 8 KV heads of 128 per GPU; log 46,611 tokens in 2.84 GiB."""
    spec = shapes.model(shapes.full(range(64), query_heads=40), layers=64)
    found = capacity(spec, engine="sglang", pool_bytes=3_049_426_780, max_model_len=32_768, tp=4)
    assert found.bytes_per_block == 64 * 2 * 256 * 2
    assert found.block_size == 1
    assert found.reported_tokens == 3_049_426_780 // 65_536
    assert abs(found.reported_tokens - 46_611) < 0.004 * 46_611  # the log rounds the pool to 0.01 GiB


def test_sglang_rounds_tokens_down_to_its_page() -> None:
    spec = shapes.llama_70b()
    found = capacity(spec, engine="sglang", pool_bytes=327_680 * 1_000, max_model_len=512, block_size=64)
    assert found.reported_tokens == 1_000 // 64 * 64


def test_sglang_stores_index_keys_beside_latents() -> None:
    """GLM-5: 78 layers of 1,152 + 132 bytes; log 314,304 tokens in 29.32 GiB."""
    keys = shapes.deepseek_v32().layer_groups[1].model_copy(update={"layers": tuple(range(78))})
    spec = shapes.model(shapes.latent(range(78), sparse=True), keys, layers=78)
    found = capacity(spec, engine="sglang", pool_bytes=31_482_110_280, max_model_len=32_768, tp=8)
    assert found.bytes_per_block == 64 * 78 * 1_284
    assert abs(found.reported_tokens - 314_304) < 0.0006 * 314_304


def test_sglang_window_pool_has_four_fifths_of_the_slots() -> None:
    spec = shapes.gpt_oss_120b()
    cell = 18 * 2_048 + 18 * 2_048 * 4 // 5  # bytes per slot of the full pool, window share included
    tokens = 10 * GIB * 5 // (18 * 2_048 * 9)
    found = capacity(spec, engine="sglang", pool_bytes=10 * GIB, max_model_len=8_192)
    assert cell == 66_355  # 66,355.2 before the engine's own rounding
    assert found.reported_tokens == tokens
    # full pool: tokens // 8,192; window pool: 0.8 x tokens over the window, one step and two pages
    plan = engine_by_id("sglang").plan(spec, Settings())
    assert plan.requests_at(10 * GIB, 8_192) == min(tokens // 8_192, tokens * 4 // 5 // (128 + 1 + 2))


def test_sglang_without_the_window_pool_stores_windows_in_full() -> None:
    found = capacity(
        shapes.gpt_oss_120b(), engine="sglang", pool_bytes=10 * GIB, max_model_len=8_192, hybrid_manager=False
    )
    assert found.reported_tokens == 10 * GIB // (36 * 2_048)


def test_sglang_divides_memory_between_states_and_tokens() -> None:
    """9/19 of the memory is for states; three slots per request with the prefix cache, one without."""
    spec = shapes.qwen3_next()
    state = 36 * (49_152 + 2 * 1_048_576)  # FP32 where the model says nothing
    slots = (20 * GIB * 9 // 19 - state) // state
    plan = engine_by_id("sglang").plan(spec, Settings())
    table = {group.title: group for group in plan.group_table(4_096)}
    assert table["state slots"].blocks_per_request == 3
    assert plan.requests_at(20 * GIB, 1) == slots // 3
    bare = engine_by_id("sglang").plan(spec, Settings(prefix_caching=False))
    assert bare.requests_at(20 * GIB, 1) == slots
    left = 20 * GIB - (slots + 1) * state
    assert plan.reported_tokens(20 * GIB, 4_096) == left // (12 * 2_048)


def test_sglang_has_only_so_many_request_slots() -> None:
    spec = shapes.model(shapes.full((0,), kv_heads=1, head_dim=64), layers=1, max_context_tokens=131_072)
    plan = engine_by_id("sglang").plan(spec, Settings())
    # 2 GiB of 256-byte tokens are 8,388,608; x 512 / 131,072 = 32,768 requests, but at most 4,096
    assert plan.requests_at(2 * GIB, 16) == 4_096
    # 65,536 tokens / 131,072 x 512 = 256, but at least 2,048
    assert plan.requests_at(2**24, 16) == 2_048


def test_tensorrt_llm_logs() -> None:
    """RTX 5090, Llama-3.1-8B, FP8 KV: 8,219 blocks of 32 in 16.05 GiB; and 3,445 blocks of 64 in 26.91 GiB, BF16."""
    spec = shapes.model(shapes.full(range(32), query_heads=32), layers=32)
    fp8 = capacity(spec, engine="tensorrt_llm", pool_bytes=17_233_556_275, max_model_len=32_768, kv_precision="fp8")
    assert fp8.bytes_per_block == 32 * 32 * 8 * 256
    assert abs(fp8.num_blocks - 8_219) <= 3  # the log rounds the pool to 0.01 GiB
    bf16 = capacity(spec, engine="tensorrt_llm", pool_bytes=28_894_392_484, max_model_len=131_072, block_size=64)
    assert bf16.reported_tokens == bf16.num_blocks * 64
    assert abs(bf16.num_blocks - 3_445) <= 1


def test_tensorrt_llm_gives_each_window_an_equal_share() -> None:
    found = capacity(shapes.gpt_oss_120b(), engine="tensorrt_llm", pool_bytes=10 * GIB, max_model_len=8_192)
    block = 32 * 18 * 2_048
    assert found.num_blocks == 5 * GIB // block
    plan = engine_by_id("tensorrt_llm").plan(shapes.gpt_oss_120b(), Settings())
    blocks = 5 * GIB // block
    assert plan.requests_at(10 * GIB, 8_192) == min(blocks // 256, blocks // (128 // 32 + 1))
    assert [note.field for note in found.notes] == ["engine"]


def test_tensorrt_llm_keeps_latents_whole() -> None:
    one, eight = (
        capacity(shapes.deepseek_v3(), engine="tensorrt_llm", pool_bytes=GIB, max_model_len=4_096, tp=tp)
        for tp in (1, 8)
    )
    assert one.bytes_per_block == eight.bytes_per_block == 32 * 61 * 576 * 2


@pytest.mark.parametrize(("kv", "mib"), [("fp16", 448), ("q8_0", 238), ("q4_0", 126), ("q5_0", 154)])
def test_llama_cpp_logs(kv: str, mib: int) -> None:
    """Llama-3.2-3B, 4,096 cells: K alone is 224, 119, 63 and 77 MiB in logs; both sides are twice that."""
    spec = shapes.model(shapes.full(range(28), query_heads=24), layers=28)
    plan = engine_by_id("llamacpp").plan(spec, Settings(kv_precision=kv))
    assert plan.reserved_bytes(4_096) == mib * 2**20


@pytest.mark.parametrize(("tokens", "cells"), [(1, 256), (256, 256), (257, 512), (4_000, 4_096)])
def test_llama_cpp_pads_the_context(tokens: int, cells: int) -> None:
    plan = engine_by_id("llamacpp").plan(shapes.llama_70b(), Settings(kv_precision="fp16"))
    assert plan.reserved_bytes(tokens) == cells * 327_680


def test_llama_cpp_window_cells_share_one_micro_batch() -> None:
    """Window 128, n_ubatch 512: one slot has pad(128 + 512) = 768 cells, four slots pad(512 + 512) = 1,024."""
    plan = engine_by_id("llamacpp").plan(shapes.gpt_oss_120b(), Settings(kv_precision="fp16"))
    full, window = 18 * 2_048, 18 * 2_048
    assert plan.reserved_bytes(8_192) == 8_192 * full + 768 * window
    assert plan.requests_at(4 * 8_192 * full + 1_024 * window, 8_192) == 4
    assert plan.requests_at(4 * 8_192 * full + 1_024 * window - 1, 8_192) == 3


def test_llama_cpp_states_are_f32() -> None:
    """Qwen3-Next: (3 x 8,192 + 524,288) values of 4 bytes in 36 layers, whatever precision is asked for."""
    for precision in ("auto", "bf16"):
        plan = engine_by_id("llamacpp").plan(
            shapes.qwen3_next(), Settings(kv_precision="fp16", state_precision=precision)
        )
        assert plan.reserved_bytes(256) == 256 * 12 * 2_048 + 36 * 4 * (3 * 8_192 + 524_288)


def test_llama_cpp_row_split_does_not_divide_the_cache() -> None:
    one, two = (
        capacity(shapes.llama_70b(), engine="llamacpp", pool_bytes=GIB, max_model_len=256, kv_precision="fp16", tp=tp)
        for tp in (1, 2)
    )
    assert one.needed_bytes == two.needed_bytes
    assert [note.field for note in two.notes] == ["tp"]
    half = capacity(shapes.llama_70b(), engine="llamacpp", pool_bytes=GIB, max_model_len=256, kv_precision="fp16", pp=2)
    assert half.needed_bytes == one.needed_bytes // 2


@pytest.mark.parametrize("engine", ["tensorrt_llm", "llamacpp"])
def test_only_some_engines_split_tokens_over_ranks(engine: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        capacity(shapes.llama_70b(), engine=engine, pool_bytes=GIB, max_model_len=256, tp=2, dcp=2)
    assert refused.value.field == "dcp"


@pytest.mark.parametrize("engine", ["sglang", "tensorrt_llm", "llamacpp"])
def test_nonsense_versions_are_refused_by_every_engine(engine: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        capacity(shapes.llama_70b(), engine=engine, pool_bytes=GIB, max_model_len=256, engine_version="latest")
    assert refused.value.field == "engine_version"
