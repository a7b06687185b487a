"""Slabs against pages: laws over distributions and engines."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc import Scenario, ScenarioError
from kvcalc.fragmentation import fragmentation, lognormal_lengths, read_lengths

MODELS = ("meta-llama/Llama-3.3-70B-Instruct", "google/gemma-3-27b-it", "Qwen/Qwen3-Next-80B-A3B-Instruct")
SCENARIOS = [Scenario(model=model, engine=engine) for model in MODELS for engine in ("vllm", "sglang")]


@given(st.sampled_from(SCENARIOS), st.lists(st.integers(1, 40_000), min_size=1, max_size=30))
def test_pages_never_hold_fewer_and_nobody_uses_more_than_it_reserves(scenario, lengths):
    found = fragmentation(scenario, tuple(lengths))
    assert found.paged.requests >= found.slab.requests
    for one in (found.paged, found.slab):
        assert 0 <= one.used_bytes <= one.reserved_bytes
        assert one.wasted_bytes == one.reserved_bytes - one.used_bytes
        assert one.reserved_bytes <= found.pool_bytes
    assert found.rounding_bytes >= 0
    for row in found.rows:
        assert row.used_bytes <= row.paged_bytes <= row.slab_bytes


def test_requests_of_the_limit_waste_nothing_in_slabs():
    found = fragmentation(Scenario.default(), (32_768,))
    assert found.slab.requests == found.paged.requests
    assert found.slab.wasted_bytes == 0


def test_a_hybrids_blocks_are_large_and_said():
    found = fragmentation(Scenario(model="Qwen/Qwen3-Next-80B-A3B-Instruct"))
    assert found.block_tokens > 100
    assert any(f"blocks of up to {found.block_tokens:,} tokens" in note.text for note in found.notes)


def test_paging_is_said_not_to_shrink_a_token():
    notes = [note.text for note in fragmentation(Scenario.default()).notes]
    assert any("does not shrink a token, which costs 80 KiB per GPU either way" in text for text in notes)


def test_a_stated_95th_percentile_is_used():
    found = fragmentation(Scenario(model=MODELS[0], prompt_tokens_p95=20_000))
    # 20,000 + 1,000 tokens; the 190th of 200 steps lies a little below it
    assert 20_000 <= found.p95_tokens <= 21_000
    assert found.p50_tokens == pytest.approx(8_000, rel=0.01)
    assert not any("No 95th percentile" in note.text for note in found.notes)


def test_a_lognormal_has_its_median_and_tail():
    lengths = lognormal_lengths(1_000, 4_000)
    assert len(lengths) == 200
    assert sum(length <= 1_000 for length in lengths) == 100
    assert sum(length <= 4_000 for length in lengths) == 190


def test_a_tail_below_the_median_is_refused():
    with pytest.raises(ScenarioError, match="at least the median"):
        lognormal_lengths(1_000, 999)


def test_pasted_lengths_have_limits():
    assert read_lengths("1\n" * 100_000) == (1,) * 100_000
    with pytest.raises(ScenarioError, match="at most 100,000"):
        read_lengths("1\n" * 100_001)
    with pytest.raises(ScenarioError, match="characters"):
        read_lengths("x" * 2_000_001)
    with pytest.raises(ScenarioError):
        read_lengths("0")
