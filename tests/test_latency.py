"""Times of a decode step and of a prefill: the floor by arithmetic, the band by its rules."""

from __future__ import annotations

import re
from math import log
from statistics import mean, median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.catalogue import gpu as find_gpu
from kvcalc.catalogue import gpus, read_model
from kvcalc.errors import ScenarioError
from kvcalc.hardware import GpuSpec
from kvcalc.latency import StepTime, decode_step, prefill_time
from kvcalc.latency.flops import attention_flops, linear_flops, matrix_rate
from kvcalc.latency.kv_reads import kv_bytes_read
from kvcalc.latency.tables import latency_tables
from kvcalc.layers import (
    ChunkedAttention,
    CompressedAttention,
    CrossAttention,
    FullAttention,
    IndexerKeys,
    LatentAttention,
    LayerGroup,
    RecurrentState,
    SharedKv,
    SlidingAttention,
)
from kvcalc.model_spec import ModelSpec
from kvcalc.precision import kv_format, state_format
from kvcalc.tensors import Quantization, QuantRule, TensorClass
from scripts import latency_fit
from scripts.latency_errors import judged
from tests.support import ROOT

HIDDEN, LAYERS, VOCAB = 4096, 32, 128_256
STEP = latency_tables().step
EVERY = tuple(range(LAYERS))
MATRICES = 2 * HIDDEN * HIDDEN  # one square attention matrix and one square feed-forward matrix per layer


def tensors(*, experts: int = 0) -> tuple[TensorClass, ...]:
    square = {"rows": HIDDEN, "columns": HIDDEN, "layers": EVERY}
    table = {"rows": VOCAB, "columns": HIDDEN, "shard": "vocab", "quantizable": False}
    ffn = (
        TensorClass(name="mlp.experts.up", part="routed_experts", shard="experts", copies=experts, **square)
        if experts
        else TensorClass(name="mlp.up_proj", part="dense_ffn", **square)
    )
    return (
        TensorClass(name="embed_tokens", part="embedding", role="embedding", layers=(-1,), **table),
        TensorClass(name="self_attn.q_proj", part="attention", role="query", **square),
        ffn,
        TensorClass(name="lm_head", part="lm_head", layers=(-2,), **table),
    )


def full(layers: tuple[int, ...] = EVERY, *, kv_heads: int = 8) -> FullAttention:
    return FullAttention(layers=layers, query_heads=32, kv_heads=kv_heads, key_dim=128, value_dim=128)


def model(
    *groups: LayerGroup,
    experts: int = 0,
    rules: tuple[QuantRule, ...] = (),
    weights: tuple[TensorClass, ...] | None = None,
) -> ModelSpec:
    return ModelSpec(
        label="test",
        num_layers=LAYERS,
        hidden_size=HIDDEN,
        vocab_size=VOCAB,
        intermediate_size=HIDDEN,
        max_context_tokens=131_072,
        layer_groups=groups or (full(),),
        tensors=tensors(experts=experts) if weights is None else weights,
        quantization=Quantization(rules=rules),
        num_experts=experts,
        experts_per_token=2 if experts else 0,
        expert_intermediate_size=HIDDEN if experts else 0,
    )


def card(**fields: object) -> GpuSpec:
    plain = GpuSpec.custom(
        memory_bytes=80 * 2**30,
        bandwidth_bytes_per_s=2 * 10**12,
        bf16_flops_per_s=10**15,
        fp8_flops_per_s=2 * 10**15,
        link="nvlink",
    )
    return plain.model_copy(update=fields)


def step(spec: ModelSpec | None = None, *, gpu: GpuSpec | None = None, **options: object) -> StepTime:
    return decode_step(spec or model(), gpu=gpu or card(), **{"batch": 1, "context_tokens": 0, **options})  # type: ignore[arg-type]


# The floor.


def test_the_floor_is_bytes_over_bandwidth() -> None:
    """Weights without the embedding, 2 B each; KV 2 x 8 heads x 128 x 2 B x 32 layers per token."""
    found = step(batch=4, context_tokens=1000)
    weights = 2 * (LAYERS * MATRICES + VOCAB * HIDDEN)
    cached = 4 * 1000 * LAYERS * 2 * 8 * 128 * 2
    assert (found.weight_bytes, found.kv_bytes) == (weights, cached)
    assert found.floor_s == pytest.approx((weights + cached) / 2e12, rel=1e-12)
    assert found.weights_s + found.kv_s == pytest.approx(found.floor_s, rel=1e-12)


def test_kv_heads_repeat_once_tensor_parallelism_exceeds_them() -> None:
    """8 KV heads: half per GPU at TP 2, one at TP 8, still one at TP 16."""
    reads = [step(context_tokens=1000, tp=tp).kv_bytes for tp in (1, 2, 8, 16)]
    assert reads == [reads[0], reads[0] // 2, reads[0] // 8, reads[0] // 8]


def test_pipeline_stages_save_no_time_per_token() -> None:
    alone, staged = step(batch=8, context_tokens=4096), step(batch=8, context_tokens=4096, pp=4)
    assert staged.floor_s == alone.floor_s
    assert "pp" in {assumption.field for assumption in staged.assumptions}


# Against every measurement at hand.


@pytest.mark.parametrize(("routed", "most"), [(False, 0.15), (True, 0.30)])
def test_half_of_the_measurements_are_near_and_three_quarters_in_the_band(routed: bool, most: float) -> None:
    found = [item for item in judged() if item.routed == routed]
    assert len(found) > 500
    assert median(item.error for item in found) <= most
    assert mean(item.inside for item in found) >= 0.75


def test_the_band_is_no_wider_than_promised() -> None:
    for band, high in ((latency_tables().dense, 1.5), (latency_tables().routed, 2.0)):
        assert (band.low_factor, band.high_factor) == (0.85, high)


@pytest.mark.parametrize(("kind", "routed", "most"), [("dense", False, 15.0), ("mixture of experts", True, 30.0)])
def test_methodology_shows_the_same_for_sources_the_fit_has_not_seen(kind: str, routed: bool, most: float) -> None:
    """The table that `python -m scripts.latency_fit --write` wrote, for the measurements and constants of today."""
    text = (ROOT / "METHODOLOGY.md").read_text(encoding="utf-8")
    line = re.search(rf"^\| {kind} \| (\d+) \| (\S+)% \| (\S+)% \| (\S+)% \| (\S+)% \|", text, flags=re.MULTILINE)
    assert line is not None
    seen = [item for item in judged() if item.routed == routed]
    error, inside = 100 * median(item.error for item in seen), 100 * mean(item.inside for item in seen)
    assert line[1] == str(len(seen))
    assert (line[2], line[3]) == (f"{error:.1f}", f"{inside:.1f}")
    assert float(line[4]) <= most
    assert float(line[5]) >= 75


def test_the_fit_script_times_a_step_as_the_calculator_does() -> None:
    constants = latency_fit.shipped()
    for row, item in zip(latency_fit.rows_of(item.case for item in judged()), judged(), strict=True):
        assert latency_fit.typical_s(row, constants) == pytest.approx(item.typical_s, rel=1e-12)


@pytest.mark.parametrize("name", [name for name in latency_fit.NAMES if name != "old"])
def test_no_constant_is_far_from_its_best(name: str) -> None:
    """A tenth more or less of one constant gains less than a hundredth of the objective."""
    rows = latency_fit.rows_of(item.case for item in judged())
    priors = [constant.prior for constant in latency_fit.CONSTANTS.values()]
    logs = [log(value / prior) for value, prior in zip(latency_fit.shipped(old=1.36), priors, strict=True)]
    here = latency_fit.objective(rows, logs)
    for change in (-0.1, 0.1):
        logs[latency_fit.PLACE[name]] += change
        assert latency_fit.objective(rows, logs) > here - 0.01 * here
        logs[latency_fit.PLACE[name]] -= change


# What a step reads of each kind of cache: one layer, 16-bit values.

ONE = (0,)
KINDS: list[tuple[str, LayerGroup, int, int]] = [
    ("every token of full attention", full(ONE), 10_000, 10_000 * 2 * 8 * 128 * 2),
    (
        "a window's tokens",
        SlidingAttention(layers=ONE, query_heads=32, kv_heads=8, key_dim=128, value_dim=128, window_tokens=1024),
        10_000,
        1024 * 2 * 8 * 128 * 2,
    ),
    (
        "a chunk's tokens at most",
        ChunkedAttention(layers=ONE, query_heads=32, kv_heads=8, key_dim=128, value_dim=128, chunk_tokens=8192),
        10_000,
        8192 * 2 * 8 * 128 * 2,
    ),
    (
        "every latent without an indexer",
        LatentAttention(layers=ONE, query_heads=128, latent_dim=512, rope_dim=64),
        10_000,
        10_000 * 576 * 2,
    ),
    (
        "the latents an indexer picks",
        LatentAttention(layers=ONE, query_heads=128, latent_dim=512, rope_dim=64, reads_at_most_tokens=2048),
        10_000,
        2048 * 576 * 2,
    ),
    (
        "all latents while there are fewer than it picks",
        LatentAttention(layers=ONE, query_heads=128, latent_dim=512, rope_dim=64, reads_at_most_tokens=2048),
        2047,
        2047 * 576 * 2,
    ),
    ("every index key", IndexerKeys(layers=ONE, key_dim=128), 10_000, 10_000 * 132),
    (
        "a window, all index keys and the picked compressed latents",
        CompressedAttention(
            layers=ONE,
            query_heads=64,
            latent_dim=448,
            rope_dim=64,
            ratio=4,
            window_tokens=128,
            index_dim=128,
            reads_at_most_tokens=512,
        ),
        10_000,
        (128 + 512) * 512 * 2 + 2500 * 132,
    ),
    (
        "a recurrent state twice, once to read it and once to write it",
        RecurrentState(layers=ONE, family="mamba2", heads=8, conv_tokens=3, conv_channels=512, state_values=65_536),
        10_000,
        2 * (3 * 512 * 2 + 65_536 * 2),
    ),
    (
        "the encoder's tokens whatever the context",
        CrossAttention(layers=ONE, query_heads=16, kv_heads=16, key_dim=64, value_dim=64, source_tokens=1500),
        10_000,
        1500 * 2 * 16 * 64 * 2,
    ),
    ("nothing in a layer that shares the cache of no other", SharedKv(layers=ONE), 10_000, 0),
]


@pytest.mark.parametrize(("sentence", "group", "context", "expected"), KINDS, ids=[kind[0] for kind in KINDS])
def test_a_step_reads(sentence: str, group: LayerGroup, context: int, expected: int) -> None:
    assert sentence
    read = kv_bytes_read(model(group), context_tokens=context, kv=kv_format("bf16"), state=state_format("bf16"), tp=1)
    assert read == expected


def test_layers_that_share_a_cache_read_it_again() -> None:
    """Two of three layers read the first one's: three times the bytes of one layer, though one is stored."""
    group, shared = full(ONE), SharedKv(layers=(1, 2), source_layer=0)
    reads = [
        kv_bytes_read(model(*groups), context_tokens=10_000, kv=kv_format("bf16"), state=state_format("bf16"), tp=1)
        for groups in ((group,), (group, shared))
    ]
    assert reads == [10_000 * 2 * 8 * 128 * 2, 3 * 10_000 * 2 * 8 * 128 * 2]


def test_gemma_3n_s_last_layers_read_the_last_cache_of_their_kind() -> None:
    """30 layers, every fifth full, the last 10 without a cache: 8 read layer 18's window, 2 read layer 19's tokens.

    At 10,000 tokens: (16 + 8) windows of 512 and (4 + 2) layers of every token, 2 KV heads of 256.
    """
    kinds = ["full_attention" if i % 5 == 4 else "sliding_attention" for i in range(30)]
    spec = read_model(
        {
            "model_type": "gemma3n_text",
            "num_hidden_layers": 30,
            "hidden_size": 2048,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "head_dim": 256,
            "intermediate_size": 8192,
            "vocab_size": 262_400,
            "sliding_window": 512,
            "layer_types": kinds,
            "num_kv_shared_layers": 10,
        }
    )
    sources = {group.source_layer: len(group.layers) for group in spec.layer_groups if isinstance(group, SharedKv)}
    assert sources == {18: 8, 19: 2}
    read = kv_bytes_read(spec, context_tokens=10_000, kv=kv_format("bf16"), state=state_format("bf16"), tp=1)
    assert read == (24 * 512 + 6 * 10_000) * 2 * 2 * 256 * 2


# The typical time and its band.

PER_TOKEN_S = STEP.compute_factor * 2 * LAYERS * MATRICES / 1e15
"""Matrix work of one token on one GPU."""


def test_typical_is_the_floor_over_the_efficiency_and_times_per_step_layer_and_token() -> None:
    alone = step(batch=4)
    launches = (STEP.step_us + LAYERS * STEP.per_layer_us) * 1e-6
    assert alone.overhead_s == pytest.approx(launches, rel=1e-12)
    assert alone.compute_s == pytest.approx(4 * PER_TOKEN_S, rel=1e-12)
    parts = alone.floor_s / STEP.hbm_efficiency + launches + 4 * PER_TOKEN_S
    assert alone.typical_s == pytest.approx(parts, rel=1e-12)


def test_tensor_parallel_ranks_share_the_work_and_all_reduce_it() -> None:
    """Two all-reduces per layer of 4,096 x 2 bytes per token; each rank of 2 moves 2 x 1/2 of that."""
    shared = step(batch=4, tp=2)
    moved = 2 * LAYERS * HIDDEN * 2
    assert shared.compute_s == pytest.approx(4 * (PER_TOKEN_S / 2 + moved / (STEP.all_reduce_gb_s * 1e9)), rel=1e-12)
    more = LAYERS * STEP.tp_per_layer_us * 1e-6
    assert shared.overhead_s == pytest.approx(step().overhead_s + more, rel=1e-12)


def test_over_pcie_collectives_take_longer() -> None:
    near, far = step(tp=4), step(tp=4, gpu=card(link="pcie"))
    assert far.overhead_s > near.overhead_s
    assert far.compute_s > near.compute_s


def test_ranks_beyond_one_node_pay_for_the_network() -> None:
    within, beyond = step(tp=8), step(tp=16)
    more = LAYERS * STEP.node_per_layer_us * 1e-6
    assert beyond.overhead_s - within.overhead_s == pytest.approx(more, rel=1e-9)


def test_an_engine_that_deals_layers_over_gpus_decodes_no_faster_with_more() -> None:
    """llama.cpp's default: four cards hold a quarter of the layers each and wait for one another."""
    alone, four = (step(batch=2, context_tokens=1000, tp=tp, engine="llamacpp") for tp in (1, 4))
    assert four.floor_s == alone.floor_s
    assert four.typical_s == pytest.approx(alone.typical_s, rel=1e-12)
    assert "tp" in {assumption.field for assumption in four.assumptions}
    assert step(batch=2, context_tokens=1000, tp=4, engine="vllm").floor_s < alone.floor_s


@pytest.mark.parametrize(
    ("gpu", "efficiency"),
    [("h100-sxm-80gb", STEP.hbm_efficiency), ("rtx-4090", STEP.gddr_efficiency), ("gb10", STEP.lpddr_efficiency)],
)
def test_each_kind_of_memory_comes_near_its_data_sheet_to_its_own_degree(gpu: str, efficiency: float) -> None:
    assert step(gpu=find_gpu(gpu)).bandwidth_efficiency == efficiency


def test_an_unlisted_gpu_counts_as_stacked_memory_unless_the_host_shares_it() -> None:
    assert step().bandwidth_efficiency == STEP.hbm_efficiency
    assert step(gpu=card(unified_memory=True)).bandwidth_efficiency == STEP.lpddr_efficiency


def test_every_gpu_of_the_catalogue_has_one_kind_of_memory() -> None:
    memory = latency_tables().memory
    listed = sorted((*memory.hbm, *memory.gddr, *memory.lpddr))
    assert listed == sorted(gpu.id for gpu in gpus())


def test_the_band_is_wider_for_routed_models() -> None:
    dense, routed = step(), step(model(experts=8))
    assert dense.high_s / dense.typical_s == pytest.approx(1.5)
    assert routed.high_s / routed.typical_s == pytest.approx(2.0)


def test_the_fast_end_never_beats_the_floor() -> None:
    """Where launches hardly count, 0.85 / 0.93 of the floor would be below it."""
    found = step(gpu=card(id="rtx-4090", bf16_flops_per_s=None), batch=256, context_tokens=100_000)
    assert found.low_s == found.floor_s > 0.85 * found.typical_s


def test_a_busy_server_shares_its_steps_with_prefill() -> None:
    """Every step, each of 32 requests brings 8,000 / 1,000 tokens of a prompt."""
    options = {"batch": 32, "context_tokens": 8500, "prompt_tokens": 8000, "output_tokens": 1000}
    idle, busy = step(**options), step(loaded=True, **options)
    expected = 32 * 8 * PER_TOKEN_S
    assert busy.prefill_mix_s == pytest.approx(expected, rel=1e-12)
    assert busy.typical_s == pytest.approx(idle.typical_s + expected, rel=1e-12)
    assert busy.floor_s == idle.floor_s


def test_prompts_keep_all_stages_busy_and_a_decoded_token_one_after_the_other() -> None:
    options = {"batch": 8, "context_tokens": 1000, "prompt_tokens": 1000, "output_tokens": 100, "loaded": True}
    alone, staged = step(**options), step(pp=4, **options)
    assert staged.compute_s == alone.compute_s
    assert staged.prefill_mix_s == pytest.approx(alone.prefill_mix_s / 4, rel=1e-12)


def test_one_request_alone_has_nobody_to_share_with() -> None:
    assert step(loaded=True, prompt_tokens=1000, output_tokens=100).prefill_mix_s == 0


def test_a_busy_server_must_say_how_much_it_writes() -> None:
    with pytest.raises(ScenarioError, match="output_tokens"):
        step(batch=2, loaded=True, prompt_tokens=1000)


def test_a_gpu_without_a_compute_rate_says_that_prefill_is_left_out() -> None:
    found = step(
        gpu=card(bf16_flops_per_s=None), batch=2, loaded=True, context_tokens=1000, prompt_tokens=1000, output_tokens=9
    )
    assert found.prefill_mix_s == 0
    assert "prefill share" in {assumption.field for assumption in found.assumptions}


def test_hardware_that_differs_reads_slower_and_names_its_source() -> None:
    found = step(gpu=card(id="h20-96gb"))
    assert found.bandwidth_efficiency == pytest.approx(STEP.hbm_efficiency / 2.6, rel=1e-12)
    assert any("H20" in assumption.reason for assumption in found.assumptions)


def test_an_engine_that_differs_on_one_kind_of_memory_differs_there_only() -> None:
    for gpu, slowdown in (("a100-sxm-80gb", 1.34), ("rtx-4090", 1)):
        there, elsewhere = (step(gpu=find_gpu(gpu), engine=engine) for engine in ("llamacpp", "vllm"))
        assert elsewhere.bandwidth_efficiency / there.bandwidth_efficiency == pytest.approx(slowdown, rel=1e-12)


def test_a_difference_of_routed_models_leaves_dense_ones_alone() -> None:
    dense, routed = (step(spec, gpu=find_gpu("mi300x")) for spec in (model(), model(experts=8)))
    assert dense.bandwidth_efficiency == STEP.hbm_efficiency
    assert routed.bandwidth_efficiency == pytest.approx(STEP.hbm_efficiency / 2.4, rel=1e-12)


def test_every_exception_is_a_gpu_of_the_catalogue() -> None:
    known = {gpu.id for gpu in gpus()}
    assert {name for row in latency_tables().exceptions for name in row.gpus} <= known


@pytest.mark.parametrize(("field", "least"), [("batch", 1), ("context_tokens", 0)])
@pytest.mark.parametrize("wrong", [-1, 1.5, True, "8"])
def test_counts_are_whole(field: str, least: int, wrong: object) -> None:
    with pytest.raises(ScenarioError, match=f"{field}: expected a whole number from {least}"):
        step(**{field: wrong})


def test_a_gpu_without_bandwidth_has_no_time() -> None:
    with pytest.raises(ScenarioError, match="bandwidth"):
        step(gpu=card(bandwidth_bytes_per_s=None))


# Prefill.

LAUNCHES_S = (STEP.step_us + LAYERS * STEP.per_layer_us) * 1e-6


def test_prefill_is_work_over_rate() -> None:
    """Matrices: 2 x parameters x tokens. Attention: 2 x 32 heads x (128 + 128) x T(T + 1)/2 pairs x 32 layers."""
    work = 2 * LAYERS * MATRICES * 10_000 + 32 * 2 * 32 * 256 * 10_000 * 10_001 // 2
    found = prefill_time(model(), gpu=card(), prompt_tokens=10_000)
    assert found.typical_s == pytest.approx(work / (0.60 * 1e15) + LAUNCHES_S, rel=1e-12)
    assert found.low_s == pytest.approx(work / (0.85 * 1e15), rel=1e-12)
    assert found.high_s == pytest.approx(work / (0.35 * 1e15) + LAUNCHES_S, rel=1e-12)


def test_eight_billion_parameters_at_28_650_tokens_on_an_h200_take_1_17_s() -> None:
    """AccelMark, vLLM 0.7.3: 1,165.86 ms to the first token of a single request. Llama 3.1 8B: 6.98 B in matrices."""
    matrices = 6_979_321_856
    square = TensorClass(name="all", part="dense_ffn", rows=matrices // LAYERS, columns=1, layers=EVERY)
    h200 = card(bandwidth_bytes_per_s=4_800 * 10**9, bf16_flops_per_s=989 * 10**12)
    found = prefill_time(model(weights=(square,)), gpu=h200, prompt_tokens=28_650)
    assert found.low_s < 1.166 < found.high_s
    assert found.typical_s == pytest.approx(1.166, rel=0.15)


def test_a_short_prompt_still_reads_all_weights() -> None:
    found = prefill_time(model(), gpu=card(), prompt_tokens=1)
    assert found.low_s == 2 * (LAYERS * MATRICES + VOCAB * HIDDEN) / 2e12


def test_a_cached_prefix_saves_its_own_work_but_not_the_attention_to_it() -> None:
    whole = prefill_time(model(), gpu=card(), prompt_tokens=20_000)
    rest = prefill_time(model(), gpu=card(), prompt_tokens=20_000, cached_tokens=10_000)
    half = prefill_time(model(), gpu=card(), prompt_tokens=10_000)
    assert half.low_s < rest.low_s < whole.low_s
    assert rest.low_s + half.low_s == pytest.approx(whole.low_s, rel=1e-12)


@pytest.mark.parametrize(("cached", "fits"), [(1000, True), (1001, False)])
def test_no_more_can_be_cached_than_there_is(cached: int, fits: bool) -> None:
    if fits:
        assert prefill_time(model(), gpu=card(), prompt_tokens=1000, cached_tokens=cached).typical_s > 0
        return
    with pytest.raises(ScenarioError, match="cached_tokens"):
        prefill_time(model(), gpu=card(), prompt_tokens=1000, cached_tokens=cached)


PAIRS: list[tuple[str, LayerGroup, int]] = [
    (
        "a window: 1 + 2 + 3 + 3 + 3",
        SlidingAttention(layers=ONE, query_heads=1, kv_heads=1, key_dim=1, value_dim=1, window_tokens=3),
        12,
    ),
    (
        "chunks of 3: 1 + 2 + 3 + 1 + 2",
        ChunkedAttention(layers=ONE, query_heads=1, kv_heads=1, key_dim=1, value_dim=1, chunk_tokens=3),
        9,
    ),
    ("everything: 1 + 2 + 3 + 4 + 5", FullAttention(layers=ONE, query_heads=1, kv_heads=1, key_dim=1, value_dim=1), 15),
    (
        "another sequence of 7 tokens: 5 x 7",
        CrossAttention(layers=ONE, query_heads=1, kv_heads=1, key_dim=1, value_dim=1, source_tokens=7),
        35,
    ),
]


@pytest.mark.parametrize(("sentence", "group", "pairs"), PAIRS, ids=[pair[0] for pair in PAIRS])
def test_five_tokens_see(sentence: str, group: LayerGroup, pairs: int) -> None:
    """One head of width 1 and 1: 2 x (1 + 1) operations per pair."""
    assert sentence
    assert attention_flops(model(group), 5) == 2 * 2 * pairs


def test_mla_is_expanded_to_heads_during_prefill() -> None:
    """128 heads of 192 for keys and 128 for values, as its projections show; else the latent's width twice."""
    latent = LatentAttention(layers=ONE, query_heads=128, latent_dim=512, rope_dim=64)
    projections = (
        TensorClass(name="q_b_proj", part="attention", rows=128 * 192, columns=1536, layers=ONE, role="query"),
        TensorClass(name="o_proj", part="attention", rows=7168, columns=128 * 128, layers=ONE, role="output"),
    )
    assert attention_flops(model(latent, weights=projections), 1) == 2 * 128 * (192 + 128)
    assert attention_flops(model(latent, weights=()), 1) == 2 * 128 * (512 + 512 + 64)


@pytest.mark.parametrize(
    ("precision", "rate"),
    [("bf16", 1), ("fp8", 2), ("int4", 1), ("nvfp4", 1), ("checkpoint", 1)],
)
def test_fp8_rates_count_only_for_fp8_weights(precision: str, rate: int) -> None:
    assert matrix_rate(model(), card(), precision) == rate * 10**15


def test_a_checkpoint_in_fp8_computes_in_fp8_where_the_gpu_can() -> None:
    spec = model(rules=(QuantRule(weight_format="fp8"),))
    assert matrix_rate(spec, card(), "checkpoint") == 2 * 10**15
    assert matrix_rate(spec, card(fp8_flops_per_s=None), "checkpoint") == 10**15


def test_routed_experts_that_are_not_chosen_do_no_work() -> None:
    """2 of 8 experts, and the attention matrix, in each of 32 layers."""
    assert linear_flops(model(experts=8), 1) == 2 * LAYERS * (2 + 1) * HIDDEN * HIDDEN


# Laws.

batches = st.integers(min_value=1, max_value=512)
contexts = st.integers(min_value=0, max_value=200_000)
models = st.sampled_from((model(), model(experts=8), model(KINDS[1][1]), model(KINDS[4][1], KINDS[6][1])))


@given(spec=models, batch=batches, context=contexts, tp=st.sampled_from((1, 2, 4, 8)), loaded=st.booleans())
def test_floor_low_typical_high_stand_in_this_order(
    spec: ModelSpec, batch: int, context: int, tp: int, loaded: bool
) -> None:
    found = step(
        spec, batch=batch, context_tokens=context, tp=tp, loaded=loaded, prompt_tokens=context, output_tokens=100
    )
    assert 0 < found.floor_s <= found.low_s <= found.typical_s <= found.high_s


@given(spec=models, batch=batches, context=contexts)
def test_a_step_never_gets_faster_with_more_requests_or_longer_contexts(
    spec: ModelSpec, batch: int, context: int
) -> None:
    here = step(spec, batch=batch, context_tokens=context)
    more = step(spec, batch=batch + 1, context_tokens=context)
    longer = step(spec, batch=batch, context_tokens=context + 1)
    for field in ("floor_s", "low_s", "typical_s", "high_s"):
        assert getattr(here, field) <= getattr(more, field)
        assert getattr(here, field) <= getattr(longer, field)


@given(prompt=st.integers(min_value=1, max_value=200_000), cached=st.integers(min_value=0, max_value=200_000))
def test_a_longer_prompt_never_takes_less_and_a_cached_one_never_more(prompt: int, cached: int) -> None:
    here = prefill_time(model(), gpu=card(), prompt_tokens=prompt)
    longer = prefill_time(model(), gpu=card(), prompt_tokens=prompt + 1)
    reused = prefill_time(model(), gpu=card(), prompt_tokens=prompt, cached_tokens=min(cached, prompt))
    assert here.low_s <= here.typical_s <= here.high_s
    assert here.typical_s <= longer.typical_s
    assert reused.typical_s <= here.typical_s
