"""Laws that hold for every engine, shape and setting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings as budget
from hypothesis import strategies as st

from kvcalc.cache import kv_bytes_per_sequence
from kvcalc.engines import Settings, engine_by_id, engines
from kvcalc.model_spec import ModelSpec
from tests import engine_specs as shapes

MODELS = {
    "uniform": shapes.llama_70b(),
    "window": shapes.gemma_27b(),
    "half windows": shapes.gpt_oss_120b(),
    "window alone": shapes.model(shapes.sliding(range(32), 4096), layers=32),
    "latent": shapes.deepseek_v3(),
    "sparse latent": shapes.deepseek_v32(),
    "compressed": shapes.deepseek_v4_flash(),
    "states": shapes.qwen3_next(),
    "states, FP32": shapes.qwen35_27b(),
}
ENGINES = [engine.id for engine in engines()]
FORMATS = {
    "vllm": ("auto", "fp8"),
    "sglang": ("auto", "fp8"),
    "tensorrt_llm": ("auto", "fp8"),
    "llamacpp": ("fp16", "q8_0"),
}

ENDLESS = 2**41

models = st.sampled_from(sorted(MODELS))
contexts = st.integers(min_value=1, max_value=300_000)
pools = st.integers(min_value=0, max_value=2**37)


@st.composite
def plans(draw: st.DrawFn, engine: str):
    spec = MODELS[draw(models)]
    chosen = Settings(
        kv_precision=draw(st.sampled_from(FORMATS[engine])),
        tp=draw(st.sampled_from((1, 2, 4))),
        pp=draw(st.sampled_from((1, 2, 3))),
        block_size=draw(st.sampled_from((None, 128, 256))),
        max_num_batched_tokens=draw(st.sampled_from((2_048, 8_192))),
        prefix_caching=draw(st.booleans()),
        speculative_tokens=draw(st.sampled_from((0, 0, 2))),
    )
    return spec, chosen, engine_by_id(engine).plan(spec, chosen)


def ideal(spec: ModelSpec, chosen: Settings, tokens: int) -> int:
    return kv_bytes_per_sequence(
        spec, context_tokens=tokens, kv_precision=chosen.kv_precision, tp=chosen.tp, pp=chosen.pp
    )


@pytest.mark.parametrize("engine", ENGINES)
@budget(max_examples=40, deadline=None)
@given(data=st.data(), tokens=contexts)
def test_an_engine_never_reserves_less_than_attention_needs(engine: str, data: st.DataObject, tokens: int) -> None:
    spec, chosen, plan = data.draw(plans(engine))
    assert plan.reserved_bytes(tokens) >= ideal(spec, chosen, tokens)


@pytest.mark.parametrize("engine", ENGINES)
@budget(max_examples=40, deadline=None)
@given(data=st.data(), one=contexts, other=contexts, pool=pools)
def test_a_longer_context_never_costs_less(engine: str, data: st.DataObject, one: int, other: int, pool: int) -> None:
    _, _, plan = data.draw(plans(engine))
    short, long = sorted((one, other))
    assert plan.reserved_bytes(short) <= plan.reserved_bytes(long)
    assert plan.needed_bytes(short) <= plan.needed_bytes(long)
    assert plan.requests_at(pool, short) >= plan.requests_at(pool, long)


@pytest.mark.parametrize("engine", ENGINES)
@budget(max_examples=40, deadline=None)
@given(data=st.data(), pool=pools)
def test_the_longest_context_fits_and_one_more_token_does_not(engine: str, data: st.DataObject, pool: int) -> None:
    _, _, plan = data.draw(plans(engine))
    longest = plan.longest_context(pool)
    assert longest == 0 or plan.fits(pool, longest)
    if plan.fits(pool, ENDLESS):
        assert longest == ENDLESS // 2  # windows alone: the search ends, no token is the last
    else:
        assert not plan.fits(pool, longest + 1)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt_llm"])
@budget(max_examples=40, deadline=None)
@given(data=st.data(), tokens=contexts, pool=pools)
def test_requests_side_by_side_fit_in_the_pool(engine: str, data: st.DataObject, tokens: int, pool: int) -> None:
    _, _, plan = data.draw(plans(engine))
    assert plan.requests_at(pool, tokens) * plan.reserved_bytes(tokens) <= pool


@budget(max_examples=40, deadline=None)
@given(data=st.data(), tokens=contexts, pool=pools)
def test_a_slab_holds_its_slots_and_no_more(data: st.DataObject, tokens: int, pool: int) -> None:
    _, _, plan = data.draw(plans("llamacpp"))
    slots = plan.requests_at(pool, tokens)
    assert plan.slab_bytes(slots, tokens) <= pool or slots == 0
    assert plan.slab_bytes(slots + 1, tokens) > pool or slots == 256


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt_llm"])
@pytest.mark.parametrize("name", sorted(MODELS))
def test_more_tensor_parallel_ranks_never_cost_a_gpu_more(engine: str, name: str) -> None:
    """Beside recurrent states blocks change with the rank's state, so a short context may round differently."""
    lengths = (1_000_000,) if "states" in name else (1, 129, 5_000, 1_000_000)
    for tokens in lengths:
        bytes_by_tp = [
            engine_by_id(engine).plan(MODELS[name], Settings(tp=tp)).reserved_bytes(tokens) for tp in (1, 2, 4, 8)
        ]
        assert bytes_by_tp == sorted(bytes_by_tp, reverse=True)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", sorted(MODELS))
def test_the_group_table_adds_up(engine: str, name: str) -> None:
    found = engine_by_id(engine).plan(MODELS[name], Settings()).capacity(pool_bytes=2**36, max_model_len=32_768)
    assert all(group.groups >= 1 and group.padding_bytes >= 0 for group in found.groups)
    if engine == "vllm":
        assert sum(group.blocks_per_request for group in found.groups) == found.blocks_per_request
        assert found.max_concurrency == found.num_blocks / found.blocks_per_request


@pytest.mark.parametrize("engine", ENGINES)
@budget(max_examples=60, deadline=None)
@given(data=st.data(), tokens=contexts, pool=pools)
def test_what_a_curve_draws_is_rounded_down_what_the_engine_holds(
    engine: str, data: st.DataObject, tokens: int, pool: int
) -> None:
    _, _, plan = data.draw(plans(engine))
    assert int(plan.side_by_side(pool, tokens)) == plan.requests_at(pool, tokens)
