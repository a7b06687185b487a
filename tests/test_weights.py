"""Laws of the weight bytes; the numbers are in tests/cases."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcalc.catalogue import read_model
from kvcalc.model_spec import ModelSpec
from kvcalc.precision import weight_formats
from kvcalc.weights import _expert_share, streamed_weight_bytes, weight_bytes, weights_by_part

ROUTED: ModelSpec = read_model(
    {
        "model_type": "qwen3_moe",
        "num_hidden_layers": 6,
        "hidden_size": 512,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 256,
        "intermediate_size": 1024,
        "vocab_size": 4096,
        "mlp_only_layers": [0],
        "decoder_sparse_step": 1,
    }
)
PRECISIONS = ["checkpoint", *(row.id for row in weight_formats())]
TP, PP, EP = st.sampled_from([1, 2, 4, 8]), st.integers(1, 6), st.sampled_from([1, 2, 4, 8])


@given(precision=st.sampled_from(PRECISIONS), tp=TP, pp=PP, ep=EP)
def test_the_parts_sum_to_the_whole(precision: str, tp: int, pp: int, ep: int) -> None:
    lines = weights_by_part(ROUTED, precision=precision, tp=tp, pp=pp, ep=ep)
    assert sum(line.bytes for line in lines) == weight_bytes(ROUTED, precision=precision, tp=tp, pp=pp, ep=ep)
    assert sum(line.parameters for line in lines) == ROUTED.parameters.total


@given(precision=st.sampled_from(PRECISIONS), pp=PP, ep=EP)
def test_more_tensor_parallel_ranks_never_hold_more_each_nor_less_together(precision: str, pp: int, ep: int) -> None:
    loads = [weight_bytes(ROUTED, precision=precision, tp=tp, pp=pp, ep=ep) for tp in (1, 2, 4, 8)]
    assert loads == sorted(loads, reverse=True)
    whole = weight_bytes(ROUTED, precision=precision, pp=pp, ep=ep)
    assert all(tp * load >= whole for tp, load in zip((1, 2, 4, 8), loads, strict=True))


@given(precision=st.sampled_from(PRECISIONS))
def test_stages_together_hold_at_least_the_model(precision: str) -> None:
    for pp in (2, 3, 6):
        assert pp * weight_bytes(ROUTED, precision=precision, pp=pp) >= weight_bytes(ROUTED, precision=precision)


@settings(max_examples=30)
@given(precision=st.sampled_from(PRECISIONS), tp=TP, batch=st.integers(1, 512))
def test_a_step_reads_more_with_a_larger_batch_and_never_more_than_is_held(precision: str, tp: int, batch: int) -> None:
    read = streamed_weight_bytes(ROUTED, precision=precision, tp=tp, batch=batch)
    assert read <= streamed_weight_bytes(ROUTED, precision=precision, tp=tp, batch=batch + 1)
    assert read < weight_bytes(ROUTED, precision=precision, tp=tp)


@pytest.mark.parametrize(
    ("smaller", "larger"),
    [
        ("q2_k", "q3_k_m"),
        ("q3_k_m", "q4_k_m"),
        ("q4_k_s", "q4_k_m"),
        ("int4", "nvfp4"),
        ("nvfp4", "fp8"),
        ("fp8", "bf16"),
    ],
)
def test_fewer_bits_take_fewer_bytes(smaller: str, larger: str) -> None:
    assert weight_bytes(ROUTED, precision=smaller) < weight_bytes(ROUTED, precision=larger)


def test_a_weight_is_two_bytes_in_sixteen_bits() -> None:
    assert weight_bytes(ROUTED, precision="bf16") == 2 * ROUTED.parameters.total


def test_equal_models_share_a_cache_entry_and_different_ones_do_not() -> None:
    again = read_model(ROUTED.model_copy().sizing_facts)
    assert hash(again) == hash(ROUTED)
    wider = read_model(
        {
            "model_type": "llama",
            "num_hidden_layers": 1,
            "hidden_size": 64,
            "num_attention_heads": 1,
            "intermediate_size": 64,
            "vocab_size": 64,
        }
    )
    assert weight_bytes(wider) == 2 * wider.parameters.total != weight_bytes(ROUTED)


@pytest.mark.parametrize(
    ("tp", "ep", "ranks"),
    [(1, 1, 1), (4, 1, 4), (4, 4, 4), (1, 4, 4), (2, 8, 8), (4, 2, 4), (8, 4, 8)],
)
def test_experts_are_dealt_whole_over_ep_ranks_and_cut_over_the_rest_of_tp(tp: int, ep: int, ranks: int) -> None:
    """vLLM deals over all ranks (EP = TP x DP); SGLang and TensorRT-LLM cut each expert over tp / ep of them."""
    whole, shared = (
        next(line.bytes for line in weights_by_part(ROUTED, **layout) if line.part == "routed_experts")
        for layout in ({}, {"tp": tp, "ep": ep})
    )
    assert shared * ranks == whole


@given(batch=st.integers(min_value=1, max_value=3000), experts=st.sampled_from(((8, 2), (128, 4), (256, 8), (512, 10))))
def test_the_expected_share_of_experts_is_exact_to_a_part_in_a_trillion(batch: int, experts: tuple[int, int]) -> None:
    every, each = experts
    picked, of = _expert_share(every, each, batch)
    exact = 1 - Fraction(every - each, every) ** batch
    assert exact <= Fraction(picked, of) <= exact + Fraction(1, 10**12)
    assert Fraction(*_expert_share(every, each, batch + 1)) >= Fraction(picked, of)


@pytest.mark.parametrize("pp", [1, 2, 5])
def test_a_tied_head_is_a_part_of_its_own_where_another_stage_holds_the_embedding(pp: int) -> None:
    spec = read_model("google/gemma-2-2b")
    lines = weights_by_part(spec, pp=pp)
    assert sum(line.bytes for line in lines) == weight_bytes(spec, pp=pp)
    # The last stage of several is the busiest: the table is as large as four of its layers.
    head = [line for line in lines if line.part == "lm_head"]
    assert [line.parameters for line in head] == ([] if pp == 1 else [256_000 * 2_304])
