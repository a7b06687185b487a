"""The budget of one GPU: its lines, its limits, and what must hold whatever goes in."""

from __future__ import annotations

from fractions import Fraction
from statistics import mean, median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.budget import Budget, memory_budget
from kvcalc.errors import ScenarioError
from kvcalc.hardware import GpuSpec
from kvcalc.layers import FullAttention, IndexerKeys, LayerGroup, RecurrentState
from kvcalc.model_spec import ImageTokens, ModelSpec
from kvcalc.tensors import Quantization, QuantRule
from kvcalc.units import GIB, MIB
from scripts.budget_errors import judged, regular

ENGINES = ("vllm", "sglang", "tensorrt_llm", "llamacpp")


def attention(layers: int) -> FullAttention:
    return FullAttention(layers=tuple(range(layers)), query_heads=32, kv_heads=8, key_dim=128, value_dim=128)


def model(
    *,
    vocab: int = 128_256,
    hidden: int = 4096,
    ffn: int = 14_336,
    layers: int = 32,
    groups: tuple[LayerGroup, ...] | None = None,
    image: ImageTokens | None = None,
    experts: tuple[int, int, int] = (0, 0, 0),
    rules: tuple[QuantRule, ...] = (),
    context: int | None = 131_072,
) -> ModelSpec:
    """A model whose weights are not asked for: every test states them."""
    return ModelSpec(
        label="test",
        num_layers=layers,
        hidden_size=hidden,
        vocab_size=vocab,
        intermediate_size=ffn,
        max_context_tokens=context,
        layer_groups=groups or (attention(layers),),
        tensors=(),
        quantization=Quantization(rules=rules),
        num_experts=experts[0],
        experts_per_token=experts[1],
        expert_intermediate_size=experts[2],
        image_tokens=image,
    )


def card(memory_gib: float = 80, usable_gib: float | None = None, **fields: object) -> GpuSpec:
    plain = GpuSpec.custom(
        memory_bytes=int(memory_gib * GIB),
        usable_bytes=None if usable_gib is None else int(usable_gib * GIB),
        link="nvlink",
    )
    return plain.model_copy(update=fields)


def budget(spec: ModelSpec, gpu: GpuSpec, weights_gib: float, **options: object) -> Budget:
    return memory_budget(spec, gpu=gpu, weights_bytes=int(weights_gib * GIB), **options)  # type: ignore[arg-type]


def line(found: Budget, name: str) -> int:
    """Bytes of a line; 0 when there is none."""
    return sum(entry.bytes for entry in found.lines if entry.name == name)


# Worked checks: start-up logs of cards whose total differs from the catalogue's driver.


def test_three_billion_parameters_on_a_t4_leave_1_54_gib() -> None:
    """0.59 x 14.74 - 6.25 - 0.10 - 0.81, arithmetic; an Unsloth notebook's log has 1.74."""
    spec = model(hidden=3072, ffn=8192, layers=28)
    found = budget(
        spec,
        card(15, 14.74),
        6.25,
        engine_version="0.8.5",
        utilization_pct=59,
        max_num_batched_tokens=2048,
        max_num_seqs=160,
    )
    assert found.kv_pool_bytes == pytest.approx(1.54 * GIB, abs=0.02 * GIB)


def test_a_vision_encoder_can_be_the_peak() -> None:
    """Qwen2.5-VL-7B on a T4: encoder 2.5 + cache 16,384 x 3,584 x 2 B + base 0.06 = 2.67 GiB (logged KV: 1.81)."""
    spec = model(vocab=152_064, hidden=3584, ffn=18_944, layers=28, image=ImageTokens(pixels_per_token_side=28))
    found = budget(
        spec,
        card(15, 14.74),
        6.79,
        engine_version="0.9.2",
        utilization_pct=77,
        max_num_batched_tokens=16_384,
        max_num_seqs=1,
    )
    assert found.overhead_bytes == pytest.approx((0.10 + 2.67) * GIB, abs=0.02 * GIB)
    assert found.kv_pool_bytes == pytest.approx(1.79 * GIB, abs=0.02 * GIB)
    assert line(found, "encoder_cache") == 16_384 * 3584 * 2


def test_a_share_may_be_a_fraction_of_a_per_cent() -> None:
    """0.866 x 22.16 - 8.96 - 0.10 - 1.30 = 8.83 GiB, as an L4's log has it (8.98)."""
    found = budget(
        model(vocab=151_936, ffn=12_288, layers=36),
        card(22.5, 22.16),
        8.96,
        engine_version="0.10.2",
        utilization_pct=Fraction(866, 10),
        max_num_batched_tokens=2048,
        max_num_seqs=224,
    )
    assert found.kv_pool_bytes == pytest.approx(8.83 * GIB, abs=0.02 * GIB)
    assert found.utilization_pct == 86.6


def delta_net(layers: int) -> RecurrentState:
    return RecurrentState(
        layers=tuple(range(layers)), family="gated_delta_net", heads=32, conv_tokens=3, conv_channels=8192
    )


def test_a_text_only_eager_run_of_a_delta_net_has_no_warm_up() -> None:
    """0.8 x 31.84 - 17.62 - 0.25 - 0.93 = 6.67 GiB, as an RTX 5090's log has it (6.67)."""
    spec = model(vocab=248_320, hidden=5120, ffn=17_408, layers=64, groups=(delta_net(64),))
    options = {"engine_version": "0.20.0", "utilization_pct": 80}
    found = budget(spec, card(31.84), 17.62, enforce_eager=True, **options)
    assert found.kv_pool_bytes == pytest.approx(6.67 * GIB, abs=0.02 * GIB)
    assert line(budget(spec, card(31.84), 17.62, **options), "linear_attention") == 2 * GIB


@pytest.mark.parametrize(("capability", "expected_gib"), [("9.0", 0), ("12.0", 2)])
def test_the_delta_net_warm_up_stays_away_from_hopper(capability: str, expected_gib: int) -> None:
    found = budget(model(groups=(delta_net(32),)), card(80, compute_capability=capability), 15, engine_version="0.19")
    assert line(found, "linear_attention") == expected_gib * GIB


# Against every start-up log at hand.


def test_the_pool_is_within_0_15_gib_of_half_of_the_regular_logs_and_beats_share_less_weights_four_times() -> None:
    logs = [item for item in judged() if regular(item)]
    errors = [abs(item.error_gib) for item in logs]
    assert len(logs) > 90
    assert median(errors) < 0.15
    assert mean(errors) < 0.4
    assert 4 * mean(errors) < mean(abs(item.baseline_gib) for item in logs)


def test_seventeen_of_twenty_regular_logs_lie_in_the_band() -> None:
    assert mean(item.inside for item in judged() if regular(item)) >= 0.85


# What changed between releases.


@pytest.mark.parametrize(("version", "per_logit"), [("0.16.0", 38), ("0.17.0", 14), ("0.28.1", 14), ("0.29.0", 6)])
def test_the_sampler_holds_38_then_14_then_6_bytes_per_logit(version: str, per_logit: int) -> None:
    """Doubling the requests from 256 to 512 adds per_logit x 256 x 128,256 bytes of activations."""
    few, many = (
        line(
            budget(model(ffn=0), card(80), 15, engine_version=version, max_num_seqs=seqs, max_num_batched_tokens=2048),
            "activations",
        )
        for seqs in (256, 512)
    )
    assert many - few == per_logit * 256 * 128_256


@pytest.mark.parametrize(
    ("version", "eager", "charged"), [("0.19.2", False, 0), ("0.20.0", False, 1), ("0.20.0", True, 0)]
)
def test_cuda_graphs_are_charged_from_0_20_and_never_in_eager_mode(version: str, eager: bool, charged: int) -> None:
    """1,024 requests capture 51 piecewise and 51 full graphs: 0.25 + 0.00017 x 32 x 102 GiB."""
    found = budget(model(), card(80), 15, engine_version=version, enforce_eager=eager)
    assert line(found, "cuda_graphs") == pytest.approx(charged * (0.25 + 0.00017 * 32 * 102) * GIB, abs=1)


def test_256_requests_capture_51_and_35_graphs() -> None:
    found = budget(model(), card(40), 15, engine_version="0.21")
    assert line(found, "cuda_graphs") == pytest.approx((0.25 + 0.00017 * 32 * (51 + 35)) * GIB, abs=1)


@pytest.mark.parametrize(("version", "share"), [("0.20.2", 90), ("0.21", 92), (None, 92)])
def test_the_default_share_rose_with_0_21(version: str | None, share: int) -> None:
    assert budget(model(), card(80), 15, engine_version=version).utilization_pct == share


@pytest.mark.parametrize(
    ("memory_gib", "capability", "tokens", "seqs"),
    [
        (160, "10.0", 16_384, 1024),
        (159.9, "10.0", 8192, 1024),
        (70, "9.0", 8192, 1024),
        (69.9, "9.0", 2048, 256),
        (80, "8.0", 2048, 256),
    ],
)
def test_batch_limits_follow_the_class_of_gpu(memory_gib: float, capability: str, tokens: int, seqs: int) -> None:
    """vLLM 0.32 arg_utils: 160 GiB and more, 70 GiB and more but not an A100, the rest."""
    found = budget(model(), card(memory_gib, compute_capability=capability), 15)
    assert (found.max_num_batched_tokens, found.max_num_seqs) == (tokens, seqs)


@pytest.mark.parametrize(("context", "tokens"), [(1024, 2048), (32_768, 32_768), (32_769, 2048)])
def test_old_releases_batched_a_whole_prompt_unless_it_was_long(context: int, tokens: int) -> None:
    assert budget(model(context=context), card(24), 5, engine_version="0.6").max_num_batched_tokens == tokens


def test_more_requests_than_tokens_of_a_step_do_not_run() -> None:
    assert budget(model(), card(80), 15, max_num_seqs=512, max_num_batched_tokens=256).max_num_seqs == 256


# Shape of the model.


def test_expert_workspace_is_added_from_0_17_and_fused_mxfp4_kernels_need_none() -> None:
    """4 experts of width 2,880 per token: T x 4 x 2 B x (max(2 x 2880, 2880) + 2880)."""
    workspace = 8192 * 4 * 2 * (2 * 2880 + 2880)
    mixed = model(hidden=2880, ffn=0, vocab=201_088, experts=(128, 4, 2880))
    fused = model(hidden=2880, ffn=0, vocab=201_088, experts=(128, 4, 2880), rules=(QuantRule(weight_format="mxfp4"),))
    options = {"engine_version": "0.19", "max_num_batched_tokens": 8192}
    difference = line(budget(mixed, card(80), 15, **options), "activations") - line(
        budget(fused, card(80), 15, **options), "activations"
    )
    assert difference == pytest.approx(workspace, abs=1)


def test_pictures_turned_off_cost_nothing() -> None:
    spec = model(image=ImageTokens(pixels_per_token_side=32))
    text = model()
    seeing, blind = budget(spec, card(80), 15), budget(spec, card(80), 15, images=False)
    assert line(seeing, "encoder_cache") == 16_384 * 4096 * 2
    assert blind.kv_pool_bytes == budget(text, card(80), 15).kv_pool_bytes


@pytest.mark.parametrize(
    ("gpus", "link", "gib"),
    [
        ((1, 1), "nvlink", "0.25"),
        ((2, 1), "nvlink", "2.1"),
        ((8, 1), "nvlink", "1.74"),
        ((2, 1), "pcie", "1.2"),
        ((1, 2), "nvlink", "0.07"),
    ],
)
def test_what_lies_outside_pytorch_follows_the_layout(gpus: tuple[int, int], link: str, gib: str) -> None:
    """Logged medians: 0.25 alone, 2.1 and 1.74 over NVLink, 1.2 over PCIe, 0.07 between stages."""
    tp, pp = gpus
    found = budget(model(), card(80, link=link), 5, engine_version="0.19", tp=tp, pp=pp)
    assert line(found, "non_torch") == pytest.approx(Fraction(gib) * GIB, abs=1)


def test_an_irregular_model_may_need_four_gib_more() -> None:
    sparse = model(groups=(attention(32), IndexerKeys(layers=tuple(range(32)), key_dim=128)))
    found = budget(sparse, card(80), 15, engine_version="0.19")
    assert found.overhead_high_bytes == found.overhead_bytes + 4 * GIB
    assert "overhead band" in {assumption.field for assumption in found.assumptions}


def test_shared_memory_widens_the_band_and_says_so() -> None:
    found = budget(model(), card(120, unified_memory=True), 15, engine_version="0.19")
    plain = budget(model(), card(120), 15, engine_version="0.19")
    assert found.overhead_high_bytes - plain.overhead_high_bytes == pytest.approx(8.3 * GIB, abs=1)
    assert found.overhead_low_bytes < plain.overhead_low_bytes


# The verdict.


def test_one_byte_decides_whether_weights_fit() -> None:
    """At the estimate: request less overhead is what weights may take."""
    found = budget(model(), card(80), 15)
    most = found.requested_bytes - found.overhead_bytes
    fitting = memory_budget(model(), gpu=card(80), weights_bytes=most - 1)
    full = memory_budget(model(), gpu=card(80), weights_bytes=most)
    over = memory_budget(model(), gpu=card(80), weights_bytes=most + 1)
    assert (fitting.kv_pool_bytes, fitting.shortfall_bytes) == (1, 0)
    assert (full.kv_pool_bytes, full.shortfall_bytes) == (0, 0)
    assert (over.kv_pool_bytes, over.shortfall_bytes) == (0, 1)
    assert {fitting.verdict, full.verdict, over.verdict} == {"may_not_start"}


def test_what_exceeds_the_whole_card_is_a_negative_line() -> None:
    found = budget(model(), card(24, 23.5), 30)
    assert line(found, "over_the_card") == found.usable_bytes - 30 * GIB - found.overhead_bytes
    assert line(found, "kept_free") == 0
    assert found.verdict == "does_not_fit"


def test_a_card_whose_process_sees_it_all_has_no_driver_line() -> None:
    assert "driver" not in {entry.name for entry in budget(model(), card(80), 15).lines}
    assert line(budget(model(), card(80, 79), 15), "driver") == GIB


@pytest.mark.parametrize("engine", ENGINES)
def test_every_default_that_was_used_is_named(engine: str) -> None:
    named = {assumption.field for assumption in budget(model(), card(80), 15, engine=engine).assumptions}
    assert {"engine_version", "max_num_seqs", "max_num_batched_tokens"} <= named


def test_what_was_given_is_not_called_an_assumption() -> None:
    found = budget(
        model(), card(80), 15, engine_version="0.19", utilization_pct=90, max_num_seqs=64, max_num_batched_tokens=4096
    )
    assert {assumption.field for assumption in found.assumptions} == {"outside PyTorch"}


@pytest.mark.parametrize("wrong", [0, -5, 101, True, 90.0, "90", Fraction(1001, 10)])
def test_a_share_that_is_none_is_refused(wrong: object) -> None:
    with pytest.raises(ScenarioError, match="utilization_pct"):
        budget(model(), card(80), 15, utilization_pct=wrong)


@pytest.mark.parametrize("field", ["max_num_seqs", "max_num_batched_tokens", "weights_bytes"])
@pytest.mark.parametrize("wrong", [0, -1, 1.5, True])
def test_a_size_that_is_none_is_refused(field: str, wrong: object) -> None:
    given = {"weights_bytes": GIB, field: wrong}
    with pytest.raises(ScenarioError, match=field):
        memory_budget(model(), gpu=card(80), **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_version_that_is_none_is_refused(engine: str) -> None:
    with pytest.raises(ScenarioError, match="engine_version"):
        budget(model(), card(80), 15, engine=engine, engine_version="latest")


# Laws.

weights = st.integers(min_value=1, max_value=200 * GIB)
engines = st.sampled_from(ENGINES)
memories = st.integers(min_value=8 * GIB, max_value=200 * GIB)
kept_by_the_driver = st.integers(min_value=0, max_value=900 * MIB)


@given(
    engine=engines,
    weights=weights,
    memory=memories,
    driver=kept_by_the_driver,
    tp=st.sampled_from((1, 2, 4, 8)),
    share=st.none() | st.integers(min_value=1, max_value=100),
)
def test_lines_sum_to_the_card_and_the_pool_lies_in_its_band(
    *, engine: str, weights: int, memory: int, driver: int, tp: int, share: int | None
) -> None:
    gpu = GpuSpec.custom(memory_bytes=memory, usable_bytes=memory - driver)
    found = memory_budget(model(), gpu=gpu, engine=engine, weights_bytes=weights, tp=tp, utilization_pct=share)
    assert sum(entry.bytes for entry in found.lines) == found.memory_bytes == memory
    assert 0 <= found.kv_pool_low_bytes <= found.kv_pool_bytes <= found.kv_pool_high_bytes <= gpu.usable_bytes
    assert (found.kv_pool_bytes == 0) or (found.shortfall_bytes == 0)
    assert all(entry.bytes >= 0 for entry in found.lines if entry.name != "over_the_card")
    assert all(entry.low_bytes <= entry.bytes <= entry.high_bytes for entry in found.lines)


@given(engine=engines, weights=weights, share=st.integers(min_value=1, max_value=99))
def test_a_larger_share_never_shrinks_the_pool(engine: str, weights: int, share: int) -> None:
    gpu = card(80, 79)
    smaller, larger = (
        memory_budget(model(), gpu=gpu, engine=engine, weights_bytes=weights, utilization_pct=pct)
        for pct in (share, share + 1)
    )
    assert smaller.kv_pool_bytes <= larger.kv_pool_bytes
    assert smaller.shortfall_bytes >= larger.shortfall_bytes


@given(seqs=st.integers(min_value=1, max_value=2047), version=st.sampled_from(("0.8", "0.11", "0.19", "0.28", "0.32")))
def test_more_requests_never_enlarge_the_pool(seqs: int, version: str) -> None:
    fewer, more = (
        budget(model(), card(80), 15, engine_version=version, max_num_seqs=count, max_num_batched_tokens=8192)
        for count in (seqs, seqs + 1)
    )
    assert fewer.kv_pool_bytes >= more.kv_pool_bytes
