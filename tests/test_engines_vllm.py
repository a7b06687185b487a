"""vLLM's allocation: expected values are arithmetic on the engine's rules, or figures printed by vLLM itself."""

from __future__ import annotations

import pytest

from kvcalc.cache import kv_bytes_per_sequence
from kvcalc.engines import Settings, capacity, engine_by_id, requests_at, reserved_bytes_per_sequence
from kvcalc.engines.base import parse_version
from kvcalc.errors import ScenarioError
from kvcalc.layers import ChunkedAttention, CrossAttention, RecurrentState
from tests import engine_specs as shapes
from tests.engine_specs import GIB


def test_uniform_attention_is_pool_over_block() -> None:
    found = capacity(shapes.llama_70b(), pool_bytes=30 * GIB, max_model_len=131_072, tp=4, kv_precision="fp8")
    assert found.bytes_per_block == 80 * 16 * 2 * (2 * 128)  # layers x tokens x heads on a rank x (key + value)
    assert found.num_blocks == 30 * GIB // 655_360 == 49_152
    assert found.blocks_per_request == 131_072 // 16
    assert found.max_concurrency == 6.0
    assert found.reported_tokens == 49_152 * 16
    assert found.needed_bytes == 8_192 * 655_360


def test_heads_are_repeated_past_their_number() -> None:
    eight, sixteen = (capacity(shapes.llama_70b(), pool_bytes=GIB, max_model_len=4096, tp=tp) for tp in (8, 16))
    assert eight.bytes_per_block == sixteen.bytes_per_block == 80 * 16 * 1 * 256 * 2


def test_scales_kept_per_token_and_head_are_paid_for() -> None:
    found = capacity(
        shapes.llama_70b(), pool_bytes=30 * GIB, max_model_len=131_072, tp=4, kv_precision="int8_per_token_head"
    )
    assert found.bytes_per_block == 80 * 16 * 2 * (256 + 8)
    assert (found.num_blocks, found.reported_tokens) == (47_662, 762_592)  # vLLM 0.32's own planner


def test_the_busiest_pipeline_stage_decides() -> None:
    found = capacity(shapes.llama_70b(), pool_bytes=30 * GIB, max_model_len=131_072, pp=3)
    assert found.bytes_per_block == 27 * 16 * 8 * 256 * 2  # stages of 27, 27 and 26 layers
    assert found.num_blocks == 18_204


def test_latents_are_whole_on_every_tp_rank_and_dcp_deals_tokens() -> None:
    one, eight, dealt = (
        capacity(shapes.deepseek_v3(), pool_bytes=40 * GIB, max_model_len=131_072, block_size=64, tp=tp, dcp=dcp)
        for tp, dcp in ((1, 1), (8, 1), (8, 8))
    )
    assert one.bytes_per_block == eight.bytes_per_block == dealt.bytes_per_block == 61 * 64 * 576 * 2
    assert one.reported_tokens == eight.reported_tokens == 611_136  # vLLM 0.32's own planner
    assert dealt.blocks_per_request == 131_072 // 8 // 64
    assert dealt.reported_tokens == 8 * eight.reported_tokens


def test_index_keys_share_the_latents_block() -> None:
    found = capacity(shapes.deepseek_v32(), pool_bytes=40 * GIB, max_model_len=131_072, tp=8)
    assert found.block_size == 64
    assert found.bytes_per_block == 61 * 64 * (1152 + 132)
    assert found.reported_tokens == 548_352  # vLLM 0.32's own planner


def test_fp8_of_sparse_latents_becomes_the_656_byte_layout_and_says_so() -> None:
    found = capacity(shapes.deepseek_v32(), pool_bytes=40 * GIB, max_model_len=131_072, kv_precision="fp8")
    assert found.bytes_per_block == 61 * 64 * (512 + 4 * 4 + 2 * 64 + 132)
    assert [note.field for note in found.notes] == ["kv_precision"]
    dense = capacity(shapes.deepseek_v3(), pool_bytes=40 * GIB, max_model_len=131_072, kv_precision="fp8")
    assert dense.bytes_per_block == 61 * 64 * 576
    assert not dense.notes


@pytest.mark.parametrize(
    ("length", "batched", "charged", "tokens"),
    [
        # 10 full layers set the group size; 52 windows fill 6 groups: 512 + 6 x (8192 / 16 + 1)
        (8_192, 8_192, 512 + 6 * 513, 74_773),
        # past the window 1,023 + 2 x 8,192 tokens are reserved: 8,192 + 6 x (ceil(17,407 / 16) + 1)
        (131_072, 8_192, 8_192 + 6 * (1_088 + 1), 291_658),
        (131_072, 2_048, 8_192 + 6 * (320 + 1), 424_487),
    ],
)
def test_windows_reserve_for_the_tokens_in_flight(length: int, batched: int, charged: int, tokens: int) -> None:
    found = capacity(shapes.gemma_27b(), pool_bytes=40 * GIB, max_model_len=length, max_num_batched_tokens=batched)
    assert found.bytes_per_block == 10 * 16 * 16 * 256 * 2
    assert found.blocks_per_request == charged
    assert found.reported_tokens == tokens  # vLLM 0.32's own planner
    whole, window = found.groups
    assert (whole.groups, whole.padding_layers) == (1, 0)
    assert (window.groups, window.padding_layers) == (6, 8)


@pytest.mark.parametrize(
    ("version", "asynchronous", "pp", "batches"),
    [("0.25.1", True, 1, 1), ("0.26", True, 1, 2), ("0.26", False, 1, 1), (None, True, 2, 3), (None, False, 2, 2)],
)
def test_batches_in_flight_by_release(version: str | None, asynchronous: bool, pp: int, batches: int) -> None:
    found = capacity(
        shapes.gpt_oss_120b(),
        pool_bytes=10 * GIB,
        max_model_len=131_072,
        pp=pp,
        async_scheduling=asynchronous,
        engine_version=version,
    )
    reserved = -(-(127 + batches * 8_192) // 16) + 1
    assert found.blocks_per_request == 8_192 + reserved


def test_a_running_window_holds_far_less_than_is_charged() -> None:
    plan = engine_by_id("vllm").plan(shapes.gpt_oss_120b(), Settings())
    assert plan.blocks_per_request(131_072) == 8_192 + 1_033
    assert plan.reserved_bytes(131_072) == (8_192 + 128 // 16 + 1) * 589_824
    assert plan.requests_at(10 * GIB, 131_072) == (18_204 - 1) // 8_201


@pytest.mark.parametrize(("tokens", "blocks"), [(1, 1), (16, 1), (17, 2), (32, 2), (33, 3)])
def test_blocks_fill_up_before_the_next_is_taken(tokens: int, blocks: int) -> None:
    plan = engine_by_id("vllm").plan(shapes.llama_70b(), Settings())
    assert plan.blocks_per_request(tokens) == blocks
    assert plan.reserved_bytes(tokens) == blocks * plan.bytes_per_block


@pytest.mark.parametrize(("tokens", "window_blocks"), [(128, 8), (129, 9), (144, 9), (145, 9), (100_000, 9)])
def test_a_window_of_128_takes_at_most_nine_blocks(tokens: int, window_blocks: int) -> None:
    spec = shapes.model(shapes.sliding(range(4), 128), layers=4)
    plan = engine_by_id("vllm").plan(spec, Settings())
    assert plan.reserved_bytes(tokens) == window_blocks * plan.bytes_per_block


@pytest.mark.parametrize(("version", "places"), [("0.11.2", 12), ("0.12", 13), ("0.17", 13)])
def test_nearly_equal_buckets_share_the_larger_size(version: str, places: int) -> None:
    """12 windows and 13 full layers (gpt-oss-20b with a drafter): 13 < 1.25 x 12, but not before 0.12."""
    spec = shapes.model(shapes.sliding(range(12), 128), shapes.full(range(12, 25)), layers=25)
    found = capacity(spec, pool_bytes=GIB, max_model_len=4096, engine_version=version)
    assert found.bytes_per_block == places * 16 * 8 * 256 * 2


@pytest.mark.parametrize(("version", "places"), [("0.17.1", 10), ("0.18", 14)])
def test_the_ratio_grew_from_five_quarters_to_three_halves(version: str, places: int) -> None:
    spec = shapes.model(shapes.sliding(range(10), 128), shapes.full(range(10, 24)), layers=24)
    found = capacity(spec, pool_bytes=GIB, max_model_len=4096, engine_version=version)
    assert found.bytes_per_block == places * 16 * 8 * 256 * 2


def test_a_ratio_of_exactly_three_halves_does_not_merge() -> None:
    spec = shapes.model(shapes.sliding(range(10), 128), shapes.full(range(10, 25)), layers=25)
    found = capacity(spec, pool_bytes=GIB, max_model_len=4096)
    assert [group.groups for group in found.groups] == [1, 2]
    assert found.groups[1].padding_layers == 5


def test_smaller_pages_get_longer_blocks_when_the_ratio_is_whole() -> None:
    spec = shapes.model(shapes.full((0, 1), kv_heads=8), shapes.sliding((2, 3), 128, kv_heads=16), layers=4)
    whole, window = capacity(spec, pool_bytes=GIB, max_model_len=4096).groups
    assert (whole.block_tokens, window.block_tokens) == (32, 16)
    assert whole.page_bytes == window.page_bytes == 16 * 16 * 256 * 2


def test_other_pages_are_padded() -> None:
    spec = shapes.model(shapes.full((0, 1), kv_heads=8), shapes.sliding((2, 3), 128, kv_heads=12), layers=4)
    whole, window = capacity(spec, pool_bytes=GIB, max_model_len=4096).groups
    assert (whole.block_tokens, whole.padding_bytes) == (16, 16 * (12 - 8) * 256 * 2)
    assert window.padding_bytes == 0


def test_without_the_hybrid_manager_windows_are_stored_in_full() -> None:
    found = capacity(shapes.gemma_27b(), pool_bytes=40 * GIB, max_model_len=131_072, hybrid_manager=False)
    assert found.bytes_per_block == 62 * 16 * 16 * 256 * 2
    assert found.blocks_per_request == 8_192
    old = capacity(shapes.gemma_27b(), pool_bytes=40 * GIB, max_model_len=131_072, engine_version="0.7.3")
    assert old.bytes_per_block == found.bytes_per_block
    assert [note.field for note in old.notes] == ["engine_version"]


def test_windows_alone_stay_windows_without_the_hybrid_manager() -> None:
    spec = shapes.model(shapes.sliding(range(32), 4096), layers=32)
    on, off = (
        capacity(spec, pool_bytes=GIB, max_model_len=131_072, hybrid_manager=manager).blocks_per_request
        for manager in (True, False)
    )
    assert on == off == -(-(4_095 + 16_384) // 16) + 1


def test_chunks_reserve_without_the_extra_block() -> None:
    """Llama 4 Scout at TP 8: 12 full and 36 chunked layers, 34.1x with the hybrid manager and 13.3x without."""
    whole, chunked = shapes.every(4, 48, offset=3)
    local = ChunkedAttention(
        layers=tuple(chunked), query_heads=40, kv_heads=8, key_dim=128, value_dim=128, chunk_tokens=8192
    )
    spec = shapes.model(shapes.full(whole, query_heads=40), local, layers=48)
    on = capacity(spec, pool_bytes=40 * GIB, max_model_len=131_072, tp=8)
    off = capacity(spec, pool_bytes=40 * GIB, max_model_len=131_072, tp=8, hybrid_manager=False)
    assert on.blocks_per_request == 8_192 + 3 * (8_192 + 16_384) // 16
    assert round(on.max_concurrency, 1) == 34.1
    assert round(off.max_concurrency, 1) == 13.3
    assert [note.field for note in on.notes] == ["hybrid_manager"]


@pytest.mark.parametrize(
    ("tp", "caching", "precision", "block", "charged", "tokens"),
    [
        # state 49,152 + 1,048,576 bytes; 2,048 bytes per token: 34 x 16 tokens hold it. 241 + 3 x 2 blocks
        (1, True, "bf16", 544, 241 + 6, 852_233),
        (2, False, "bf16", 544, 241 + 3, 1_725_423),
        # one KV head stays whole on four ranks while the state halves: 17 x 16 tokens
        (4, True, "bf16", 272, 482 + 6, 1_725_691),
        (1, True, "fp32", 1_056, 125 + 6, 827_454),
    ],
)
def test_the_attention_page_grows_to_hold_a_state(
    tp: int, caching: bool, precision: str, block: int, charged: int, tokens: int
) -> None:
    found = capacity(
        shapes.qwen3_next(),
        pool_bytes=20 * GIB,
        max_model_len=131_072,
        tp=tp,
        prefix_caching=caching,
        state_precision=precision,
    )
    assert found.block_size == block
    assert found.blocks_per_request == charged
    assert found.reported_tokens == tokens  # vLLM 0.32's own planner


def test_a_log_of_a_hybrid_before_the_tokens_changed_their_meaning() -> None:
    """vllm issue 40691: 0.19, 32,768 tokens, prints 290,864 tokens and 33.04x; 1,484 to 1,487 blocks."""
    found = capacity(
        shapes.qwen35_27b(),
        pool_bytes=1_487 * 16 * 784 * 4 * 512 * 2,
        max_model_len=32_768,
        prefix_caching=False,
        engine_version="0.19",
    )
    assert found.block_size == 784  # state 3,207,168 bytes / 4,096 per token, in steps of 16
    assert found.blocks_per_request == 42 + 3
    assert round(found.max_concurrency, 2) == 33.04
    assert found.reported_tokens == 1_487 // 4 * 784 == 290_864
    newer = capacity(
        shapes.qwen35_27b(),
        pool_bytes=1_487 * 16 * 784 * 4 * 512 * 2,
        max_model_len=32_768,
        prefix_caching=False,
        engine_version="0.24",
    )
    assert newer.reported_tokens == 1_487 * 32_768 // 45 == 1_082_800


def test_the_declared_state_precision_is_honoured_from_0_17() -> None:
    blocks = [
        capacity(
            shapes.qwen35_27b(), pool_bytes=GIB, max_model_len=8_192, prefix_caching=False, engine_version=v
        ).block_size
        for v in ("0.16", "0.17")
    ]
    # conv 3 x 10,240 x 2 = 61,440; state 786,432 x 2 or x 4; over 4,096 bytes per token in steps of 16
    assert blocks == [400, 784]


@pytest.mark.parametrize(
    ("drafted", "kv", "block"), [(0, "bf16", 784), (3, "bf16", 800), (0, "fp8", 1_568), (3, "fp8", 1_600)]
)
def test_drafted_tokens_widen_the_convolution_and_so_the_block(drafted: int, kv: str, block: int) -> None:
    found = capacity(
        shapes.qwen35_27b(), pool_bytes=GIB, max_model_len=8_192, speculative_tokens=drafted, kv_precision=kv
    )
    assert found.block_size == block


def test_a_drafter_caches_too() -> None:
    """GLM-5.1 at TP 8 with MTP: 79 layers of 656 + 132 bytes, 319,232 tokens in 18.51 GiB (start-up log)."""
    plain, drafting = (
        capacity(shapes.deepseek_v32(), pool_bytes=GIB, max_model_len=4_096, kv_precision="fp8", speculative_tokens=n)
        for n in (0, 1)
    )
    assert plain.bytes_per_block == 61 * 64 * 788
    assert drafting.bytes_per_block == 62 * 64 * 788


def test_drafting_without_mtp_layers_says_what_is_missing() -> None:
    found = capacity(shapes.llama_70b(), pool_bytes=GIB, max_model_len=4_096, speculative_tokens=3)
    assert [note.field for note in found.notes] == ["speculative_tokens"]


def test_states_keep_a_page_per_drafted_token() -> None:
    plan = engine_by_id("vllm").plan(shapes.qwen35_27b(), Settings(speculative_tokens=2, kv_precision="fp8"))
    states = plan.group_table(262_144)[1]
    assert states.groups == 3
    assert states.padding_layers == 3  # 48 states in groups of 17: "3 padding layers, 6.25 %" in a log
    assert states.blocks_per_request == 3 * (2 + 2)


@pytest.mark.parametrize(("version", "pages"), [("0.28", 2), ("0.31", 2), ("0.32", 3)])
def test_mamba2_adds_a_checkpoint_page_from_0_32(version: str, pages: int) -> None:
    assert _mamba2(version).groups[1].blocks_per_request == pages


def test_mamba2_kept_a_state_per_block_from_0_15_to_0_27() -> None:
    block = _mamba2("0.24").block_size
    assert block % 256 == 0
    assert _mamba2("0.24").groups[1].blocks_per_request == -(-8_192 // block)


def _mamba2(version: str) -> object:
    mamba = RecurrentState(
        layers=(0, 1),
        family="mamba2",
        heads=128,
        conv_tokens=3,
        conv_channels=128 * 80,
        conv_group_channels=2 * 128,
        conv_groups=8,
        state_values=128 * 80 * 128,
        state_precision="fp32",
    )
    spec = shapes.model(shapes.full((2, 3)), mamba, layers=4)
    return capacity(spec, pool_bytes=GIB, max_model_len=8_192, engine_version=version)


def test_another_sequence_is_held_in_blocks_of_its_own() -> None:
    """Whisper-large-v3: 32 + 32 layers of 20 heads of 64; 28 blocks of its own tokens, 94 of 1,500 others."""
    cross = CrossAttention(
        layers=tuple(range(32)), query_heads=20, kv_heads=20, key_dim=64, value_dim=64, source_tokens=1_500
    )
    spec = shapes.model(shapes.full(range(32), kv_heads=20, head_dim=64, query_heads=20), cross, layers=32)
    found = capacity(spec, pool_bytes=4 * GIB, max_model_len=448)
    assert found.bytes_per_block == 32 * 16 * 20 * 128 * 2
    assert found.blocks_per_request == 28 + 94
    assert found.reported_tokens == 6_014  # vLLM 0.32's own planner


def test_compressed_caches_are_packed_side_by_side() -> None:
    """DeepSeek-V4-Flash: vLLM 0.32's own planner answers 42,853 blocks and 10,778 per request of 1 Mi tokens."""
    found = capacity(
        shapes.deepseek_v4_flash(), pool_bytes=40 * GIB, max_model_len=2**20, tp=8, kv_precision="fp8_ds_mla"
    )
    assert found.bytes_per_block == 21 * (37_440 + 8_640) + 20 * 1_728
    assert found.num_blocks == 42_853
    in_flight = 2 * 8_192
    windows = 2 * (-(-(127 + in_flight) // 64) + 1)
    compressors = -(-(7 + in_flight) // 4) + 1 + -(-(127 + in_flight) // 8) + 1
    assert found.blocks_per_request == 4_096 + windows + compressors == 10_778


@pytest.mark.parametrize(("version", "longest"), [("0.28", 10 * 16), ("0.29", 9 * 16)])
def test_the_start_up_check_leaves_the_null_block_out_from_0_29(version: str, longest: int) -> None:
    found = capacity(shapes.llama_70b(), pool_bytes=10 * 5_242_880, max_model_len=4_096, engine_version=version)
    assert found.bytes_per_block == 5_242_880
    assert found.longest_context_that_fits == longest


def test_the_start_up_check_counted_layers_before_0_17() -> None:
    """Gemma-3-27B: 52 windows are 6 groups of 10 places; earlier only the 52 were asked for."""
    layer = 16 * 16 * 256 * 2
    charged = -(-(1_023 + 8_192) // 16) + 1
    old, new = (
        capacity(shapes.gemma_27b(), pool_bytes=GIB, max_model_len=131_072, engine_version=v).needed_bytes
        for v in ("0.16", "0.17")
    )
    assert old == layer * (10 * 8_192 + 52 * charged)
    assert new == layer * 10 * (8_192 + 6 * charged)


def test_a_pool_below_one_block_is_an_answer() -> None:
    found = capacity(shapes.llama_70b(), pool_bytes=1_000, max_model_len=4_096)
    assert (found.num_blocks, found.max_concurrency, found.reported_tokens) == (0, 0.0, 0)
    assert found.longest_context_that_fits == 0


def test_the_steady_count_leaves_the_null_block_out() -> None:
    pool = 2 * 256 * 5_242_880
    assert requests_at(shapes.llama_70b(), pool_bytes=pool, context_tokens=4_096) == 1
    assert requests_at(shapes.llama_70b(), pool_bytes=pool + 5_242_880, context_tokens=4_096) == 2


def test_the_model_limit_is_the_longest_context_of_a_cache_that_never_grows() -> None:
    spec = shapes.model(shapes.delta_net(range(4), value_heads=32), layers=4, max_context_tokens=8_192)
    assert capacity(spec, pool_bytes=GIB, max_model_len=4_096).longest_context_that_fits == 8_192


@pytest.mark.parametrize(
    ("spec", "keywords", "field"),
    [
        (shapes.llama_70b(), {"tp": 3}, "tp"),
        (shapes.llama_70b(), {"tp": 4, "dcp": 3}, "dcp"),
        (shapes.gemma_27b(), {"tp": 4, "dcp": 2}, "dcp"),
        (shapes.llama_70b(), {"block_size": 0}, "block_size"),
        (shapes.llama_70b(), {"block_size": -16}, "block_size"),
        (shapes.llama_70b(), {"pool_bytes": -1}, "pool_bytes"),
        (shapes.llama_70b(), {"max_model_len": 0}, "max_model_len"),
        (shapes.llama_70b(), {"max_num_batched_tokens": 0}, "max_num_batched_tokens"),
        (shapes.llama_70b(), {"engine_version": "newest"}, "engine_version"),
        (shapes.llama_70b(), {"engine": "tgi"}, "engine"),
        (shapes.qwen3_next(), {"hybrid_manager": False}, "hybrid_manager"),
        (shapes.deepseek_v4_flash(), {"block_size": 64}, "block_size"),
    ],
)
def test_refusals_name_the_field(spec: object, keywords: dict[str, object], field: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        capacity(spec, **({"pool_bytes": GIB, "max_model_len": 4_096} | keywords))  # type: ignore[arg-type]
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("0.6", (0, 6, 0, 0)),
        ("0.20.2", (0, 20, 2, 0)),
        ("v0.24.0+cu129", (0, 24, 0, 0)),
        ("0.11.2.post2", (0, 11, 2, 0)),
        ("0.20.2rc1.dev249", (0, 20, 2, -1)),
        ("b6123", (0, 6123, 0, 0)),
    ],
)
def test_versions_as_engines_print_them(text: str, version: tuple[int, ...]) -> None:
    assert parse_version(text) == version


def test_a_pre_release_counts_as_the_release_before() -> None:
    """0.20.1rc1.dev16 prints 67,728 tokens beside 1.06x of 180,000: the old meaning (club-3090 issue 46)."""
    old, new = (
        capacity(shapes.qwen3_next(), pool_bytes=GIB, max_model_len=4_096, engine_version=v).reported_tokens
        for v in ("0.20.1rc1.dev16", "0.20.1")
    )
    assert old < new


def test_reserved_is_ideal_plus_rounding() -> None:
    ideal = kv_bytes_per_sequence(shapes.llama_70b(), context_tokens=1_000)
    reserved = reserved_bytes_per_sequence(shapes.llama_70b(), context_tokens=1_000)
    assert reserved - ideal == (63 * 16 - 1_000) * 327_680


def test_a_format_the_engine_lacks_is_flagged() -> None:
    found = capacity(shapes.llama_70b(), pool_bytes=GIB, max_model_len=4_096, kv_precision="q8_0")
    assert [note.field for note in found.notes] == ["kv_precision"]
    latent = capacity(shapes.deepseek_v3(), pool_bytes=GIB, max_model_len=4_096, kv_precision="fp8_per_token_head")
    assert [note.field for note in latent.notes] == ["kv_precision"]
