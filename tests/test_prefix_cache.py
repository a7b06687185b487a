"""What a shared prefix saves: whole blocks, once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc import Scenario, evaluate
from kvcalc.engines import Settings, engine_by_id
from kvcalc.inputs import resolve
from kvcalc.prefix_cache import prefix_saving, shared_bytes_per_request, usable_cached_tokens
from tests.engine_specs import full, model, sliding
from tests.small_model import KV_BYTES, scenario

PLAN = engine_by_id("vllm").plan(model(full(range(4)), layers=4), Settings())
PER_TOKEN = 2 * 4 * 8 * 128 * 2


@pytest.mark.parametrize(
    ("cached", "prompt", "usable"),
    [
        (15, 7_000, 0),  # less than a block of 16
        (16, 7_000, 16),
        (31, 7_000, 16),
        (32, 7_000, 32),
        (7_000, 7_000, 6_992),  # 437 x 16 = 6,992; the last token is computed to sample from
        (32, 32, 16),  # the whole prompt is cached, yet its last block is computed
        (32, 33, 32),
        (0, 7_000, 0),
    ],
)
def test_a_hit_is_whole_blocks_and_leaves_one_token_to_compute(cached, prompt, usable):
    assert usable_cached_tokens(PLAN, cached_prompt_tokens=cached, prompt_tokens=prompt) == usable


def test_nothing_is_usable_with_prefix_caching_off():
    found = usable_cached_tokens(PLAN, cached_prompt_tokens=4_000, prompt_tokens=7_000, prefix_caching=False)
    assert found == 0


def test_sharers_but_the_first_do_without_the_blocks_of_the_prefix():
    # 10 sharers of 1,000 tokens: floor(1,000 / 16) x 16 = 992 tokens, nine times
    found = prefix_saving(PLAN, pool_bytes=2**33, cached_prompt_tokens=1_000, prompt_tokens=2_000, context_tokens=3_000)
    assert found.usable_tokens == 992
    assert found.bytes_per_sharer == 992 * PER_TOKEN
    assert found.saved_bytes(10) == 9 * 992 * PER_TOKEN
    assert found.saved_bytes(1) == found.saved_bytes(0) == 0


def test_the_pool_holds_more_when_all_share_the_prefix():
    # own tokens 3,000 - 992 = 2,008 = 126 blocks beside 62 shared ones; a request alone takes 188
    blocks = 10_000
    found = prefix_saving(
        PLAN,
        pool_bytes=blocks * 16 * PER_TOKEN,
        cached_prompt_tokens=1_000,
        prompt_tokens=2_000,
        context_tokens=3_000,
    )
    assert PLAN.requests_at(blocks * 16 * PER_TOKEN, 3_000) in {10_000 // 188, 9_999 // 188}
    assert found.requests_when_shared in {(10_000 - 62) // 126, (9_999 - 62) // 126}


def test_a_window_shares_only_what_it_still_sees():
    # window 1,024: at 8,000 tokens, 7,488 of them shared, a layer sees 1,024, of which its own 512 are not shared
    plan = engine_by_id("vllm").plan(model(sliding(range(4), 1024), layers=4), Settings())
    shared = shared_bytes_per_request(plan, context_tokens=8_000, usable_tokens=7_488)
    assert 512 * PER_TOKEN <= shared <= (512 + 2 * 16) * PER_TOKEN


def test_a_window_that_has_moved_past_the_prefix_shares_nothing():
    plan = engine_by_id("vllm").plan(model(sliding(range(4), 1024), layers=4), Settings())
    assert shared_bytes_per_request(plan, context_tokens=8_000, usable_tokens=4_000) == 0


def test_a_hybrids_block_is_large_and_a_short_prefix_saves_nothing():
    # Qwen3-Next at TP 4: an attention block is grown to hold a state, here to some hundred tokens
    inputs = resolve(Scenario(model="Qwen/Qwen3-Next-80B-A3B-Instruct", cached_prompt_tokens=200))
    block = inputs.plan.prefix_block_tokens
    assert block > 200
    report = evaluate(inputs.scenario)
    assert report.prefix.usable_tokens == 0
    assert report.prefix.sentence == f"200 shared tokens do not fill one block of {block}: nothing is saved."
    assert report.ttft == evaluate(Scenario(model=inputs.scenario.model)).ttft


def test_llamacpp_skips_single_tokens_but_every_slot_keeps_its_own_copy():
    report = evaluate(scenario(engine="llamacpp", cached_prompt_tokens=1_001))
    assert report.prefix.usable_tokens == 1_001
    assert report.prefix.bytes_per_sharer == 0
    assert report.prefix.sentence.endswith("each request still holds its own copy.")


def test_a_cached_prefix_makes_the_first_token_earlier():
    cold, warm = evaluate(scenario()), evaluate(scenario(cached_prompt_tokens=5_000))
    assert warm.ttft.typical_s < cold.ttft.typical_s
    assert warm.prefix.bytes_per_sharer == 312 * 16 * KV_BYTES  # floor(5,000 / 16) = 312 blocks
    assert warm.concurrency == cold.concurrency  # the answer does not rely on sharing


@given(cached=st.integers(0, 20_000), prompt=st.integers(1, 20_000))
def test_what_is_usable_is_whole_blocks_of_what_is_there(cached, prompt):
    usable = usable_cached_tokens(PLAN, cached_prompt_tokens=cached, prompt_tokens=prompt)
    assert usable % 16 == 0
    assert 0 <= usable <= min(cached, prompt - 1)
    assert min(cached, prompt - 1) - usable < 16
