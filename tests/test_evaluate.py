"""evaluate(): one report, every number in it consistent with every other."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvcalc
from kvcalc import ConfigError, KvcalcError, Scenario, ScenarioError, evaluate
from kvcalc.catalogue import gpus, model_presets
from kvcalc.units import GIB

LLAMA_70B = "meta-llama/Llama-3.3-70B-Instruct"


def test_the_default_scenario_fits_and_says_how_many():
    report = evaluate(Scenario.default())
    assert report.fits
    assert report.sentence.startswith("Fits: ")
    assert report.concurrency >= 1
    assert report.tpot is not None


def test_llama_70b_keeps_320_kib_per_token():
    # 2 x 80 layers x 8 KV heads x 128 x 2 bytes = 327,680 = 320 x 1,024
    report = evaluate(Scenario(model=LLAMA_70B))
    assert report.kv_bytes_per_token == 2 * 80 * 8 * 128 * 2 == 320 * 1024
    assert report.kv_bytes_per_request == 8_000 * 327_680


def test_requests_at_once_are_whole_blocks_of_the_pool():
    # blocks of 16 tokens; 8,000 tokens are 500 blocks; a TP 4 rank holds 2 of 8 heads
    report = evaluate(Scenario(model=LLAMA_70B, tp=4, pp=1, target_tpot_ms=None, max_num_seqs=100_000))
    block = 16 * 327_680 // 4
    blocks = report.budget.kv_pool_bytes // block
    assert report.capacity.bytes_per_block == block
    assert report.concurrency in {blocks // 500, (blocks - 1) // 500}  # one block is vLLM's null block


def test_a_scenario_that_names_only_a_model_is_filled_in_like_the_default():
    assert Scenario(model=Scenario.default().model) == Scenario.default()


def test_a_small_model_gets_one_gpu_and_a_large_one_more():
    assert Scenario(model="Qwen/Qwen3-8B").tp == 1
    assert Scenario(model=LLAMA_70B).tp in (2, 4)


def test_a_model_with_a_short_context_gets_lengths_it_admits():
    config = {
        "model_type": "llama",
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "hidden_size": 512,
        "intermediate_size": 1024,
        "vocab_size": 32000,
        "max_position_embeddings": 2048,
    }
    facts = kvcalc.read_model(config).sizing_facts
    scenario = Scenario(model="pasted", model_facts=facts)
    assert scenario.context_tokens == 2048
    assert scenario.max_model_len == 2048
    assert evaluate(scenario).fits


def test_not_fitting_is_an_answer_with_what_would_fit():
    report = evaluate(Scenario(model=LLAMA_70B, tp=1, pp=1))
    assert not report.fits
    assert report.concurrency == 0
    assert report.verdict == "does_not_fit"
    assert report.shortfall_bytes == report.budget.shortfall_bytes > 0
    assert report.tpot is None
    assert 1 <= len(report.would_fit) <= 3
    for row in report.would_fit:
        again = evaluate(row.scenario)
        assert again.fits
        assert again.concurrency == row.requests


def test_a_request_one_token_over_the_models_limit_is_not_possible():
    at_limit = Scenario(model=LLAMA_70B, tp=8, pp=1, prompt_tokens=131_071, output_tokens=1, max_model_len=131_072)
    assert evaluate(at_limit).fits
    over = evaluate(Scenario(**{**dict(at_limit), "output_tokens": 2}))
    assert over.verdict == "over_model_limit"
    assert not over.fits


def test_the_smallest_limit_binds():
    report = evaluate(Scenario(model="Qwen/Qwen3-8B", max_num_seqs=7, target_tpot_ms=None))
    assert report.concurrency == 7
    assert report.binding_limit == "engine_cap"
    assert [limit.name for limit in report.limits if limit.binds] == ["engine_cap"]
    assert report.limits[0].requests == 7


def test_a_tighter_speed_target_never_admits_more():
    counts = [
        evaluate(Scenario(model=LLAMA_70B, tp=4, pp=1, target_tpot_ms=target)).concurrency
        for target in (10, 25, 50, 100)
    ]
    assert counts == sorted(counts)


def test_the_speed_limit_is_the_edge_of_the_target():
    report = evaluate(Scenario(model=LLAMA_70B, tp=4, pp=1, target_tpot_ms=25, target_requests=None))
    assert report.binding_limit == "speed_target"
    assert report.tpot.typical_s <= 0.025
    one_more = kvcalc.decode_step(
        kvcalc.read_model(LLAMA_70B),
        gpu="h100-sxm-80gb",
        tp=4,
        batch=report.concurrency + 1,
        context_tokens=8_000,
        prompt_tokens=7_000,
        output_tokens=1_000,
    )
    assert one_more.typical_s > 0.025


def test_budget_lines_sum_to_the_card():
    report = evaluate(Scenario.default())
    assert sum(line.bytes for line in report.budget.lines) == report.gpu.memory_bytes == report.budget.memory_bytes


def test_mla_repeats_on_every_rank_and_the_page_says_so():
    report = evaluate(Scenario(model="deepseek-ai/DeepSeek-V3", gpu="h200-sxm", tp=8, pp=1))
    # 61 layers x (512 + 64) x 2 bytes on each of 8 ranks
    assert report.kv_bytes_per_token == 61 * 576 * 2
    assert report.kv_bytes_per_request == 8 * 8_000 * 61 * 576 * 2
    assert report.replication_ratio == 8
    assert any("repeats" in note.text for note in report.notes)


def test_heads_that_split_evenly_do_not_repeat():
    report = evaluate(Scenario(model=LLAMA_70B, tp=8, pp=1))
    assert report.replication_ratio == 1
    assert not any("repeats" in note.text for note in report.notes)


def test_the_three_capacities_are_named_and_ordered():
    found = evaluate(Scenario.default()).capacities
    assert found.ideal_requests >= found.reserved_requests
    assert len({*found.why}) == 3


def test_a_what_if_on_attention_changes_the_cache_and_says_so():
    base = evaluate(Scenario(model=LLAMA_70B, tp=4, pp=1))
    mha = evaluate(Scenario(model=LLAMA_70B, tp=4, pp=1, attention="mha"))
    mqa = evaluate(Scenario(model=LLAMA_70B, tp=4, pp=1, attention="mqa"))
    mla = evaluate(Scenario(model=LLAMA_70B, tp=4, pp=1, attention="mla"))
    assert mha.kv_bytes_per_token == 2 * 80 * 64 * 128 * 2
    assert mqa.kv_bytes_per_token == 2 * 80 * 1 * 128 * 2
    assert mla.kv_bytes_per_token == 80 * (512 + 64) * 2
    assert base.kv_bytes_per_token * 8 == mha.kv_bytes_per_token
    assert any(assumption.field == "attention" for assumption in mha.assumptions)
    # k and v projections grow from 8 to 64 heads: 2 x 80 x 8,192 x (64 - 8) x 128 parameters
    assert mha.model.parameters.total - base.model.parameters.total == 2 * 80 * 8192 * (64 - 8) * 128


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"tp": 3}, "tp"),
        ({"tp": 0}, "tp"),
        ({"prompt_tokens": -1}, "prompt_tokens"),
        ({"prompt_tokens": 0, "output_tokens": 0}, "prompt_tokens"),
        ({"prompt_tokens": 1.5}, "prompt_tokens"),
        ({"prompt_tokens": True}, "prompt_tokens"),
        ({"utilization_pct": 0}, "utilization_pct"),
        ({"utilization_pct": 101}, "utilization_pct"),
        ({"gpu": "abacus"}, "gpu"),
        ({"gpu": "custom"}, "custom_gpu"),
        ({"model": "pasted"}, "model_facts"),
        ({"kv_precision": "fp7"}, "kv_precision"),
        ({"weight_precision": "fp7"}, "precision"),
        ({"attention": "gqa-7"}, "attention"),
        ({"engine": "exllama"}, "engine"),
        ({"engine_version": "latest"}, "engine_version"),
        ({"colour": "blue"}, "colour"),
        ({"dcp": 3}, "dcp"),
        ({"ep": 2}, "ep"),
    ],
)
def test_a_bad_field_is_refused_by_name(fields, field):
    with pytest.raises(KvcalcError) as refused:
        evaluate(Scenario(**{"model": LLAMA_70B, "tp": 4, "pp": 1, **fields}))
    assert refused.value.field == field
    assert str(refused.value).startswith(f"{field}: expected ")


def test_an_unknown_model_is_refused_with_names_like_it():
    with pytest.raises(KvcalcError, match=r"Llama-3\.3-70B"):
        Scenario(model="meta-llama/Llama-3.3-70B-Instrukt")


def test_the_report_survives_json():
    report = evaluate(Scenario.default())
    assert kvcalc.Report.model_validate_json(report.model_dump_json()) == report


def test_the_scenario_survives_json():
    scenario = Scenario.default()
    assert Scenario.from_json(scenario.model_dump_json()) == scenario


def test_a_broken_scenario_file_is_refused_in_our_voice():
    with pytest.raises(ScenarioError):
        Scenario.from_json("{not json")


def test_a_custom_gpu_without_compute_has_no_first_token_time():
    gpu = {"memory_mib": 81_920, "bandwidth_gb_per_s": 2_000}
    report = evaluate(Scenario(model="Qwen/Qwen3-8B", gpu="custom", custom_gpu=gpu))
    assert report.fits
    assert report.ttft is None
    assert report.budget.memory_bytes == 81_920 * 2**20


@pytest.mark.parametrize("preset", [preset.id for preset in model_presets()])
def test_every_preset_evaluates_on_the_default_gpu(preset):
    report = evaluate(Scenario(model=preset))
    assert sum(line.bytes for line in report.budget.lines) == report.budget.memory_bytes
    assert report.fits == bool(report.capacities.reserved_requests) or report.verdict != "fits"


@pytest.mark.parametrize("gpu", [gpu.id for gpu in gpus()])
def test_every_gpu_evaluates(gpu):
    report = evaluate(Scenario(model="Qwen/Qwen3-8B", gpu=gpu))
    assert report.budget.memory_bytes == report.gpu.memory_bytes


@settings(max_examples=60, deadline=None)
@given(
    model=st.sampled_from([LLAMA_70B, "Qwen/Qwen3-8B", "deepseek-ai/DeepSeek-V3", "google/gemma-3-27b-it"]),
    gpu=st.sampled_from(["h100-sxm-80gb", "l4", "b200-sxm", "rtx-4090"]),
    tp=st.sampled_from([1, 2, 4, 8]),
    pp=st.sampled_from([1, 2, 3]),
    prompt=st.integers(1, 200_000),
    kv=st.sampled_from(["auto", "fp8"]),
    target=st.none() | st.integers(1, 200),
)
def test_any_report_is_consistent_with_itself(model, gpu, tp, pp, prompt, kv, target):
    report = evaluate(
        Scenario(
            model=model,
            gpu=gpu,
            tp=tp,
            pp=pp,
            prompt_tokens=prompt,
            output_tokens=100,
            kv_precision=kv,
            target_tpot_ms=target,
        )
    )
    assert sum(line.bytes for line in report.budget.lines) == report.budget.memory_bytes
    assert report.requests_low <= report.capacities.reserved_requests <= report.requests_high
    assert report.capacities.reserved_requests <= report.capacities.ideal_requests
    assert report.reserved_bytes_per_request_per_gpu >= report.kv_bytes_per_request_per_gpu
    assert report.concurrency <= min(limit.requests for limit in report.limits)
    if report.concurrency:
        assert report.concurrency * report.reserved_bytes_per_request_per_gpu <= report.budget.kv_pool_bytes
    if report.tpot is not None:
        assert report.tpot.floor_s <= report.tpot.low_s <= report.tpot.typical_s <= report.tpot.high_s


def test_a_pool_one_block_short_of_a_request_does_not_hold_it():
    from kvcalc.engines import requests_at

    spec = kvcalc.read_model("Qwen/Qwen3-8B")
    # 36 layers x 2 x 8 heads x 128 x 2 bytes x 16 tokens per block; 1,600 tokens are 100 blocks
    block = 36 * 2 * 8 * 128 * 2 * 16
    holds = [requests_at(spec, pool_bytes=block * blocks, context_tokens=1_600) for blocks in (99, 102)]
    assert holds == [0, 1]


def test_config_errors_of_a_pasted_model_name_the_key():
    with pytest.raises(ConfigError, match="num_hidden_layers"):
        Scenario(model="pasted", model_facts='{"model_type": "llama", "hidden_size": 4096}')


def test_gib_is_two_to_the_thirty():
    assert GIB == 2**30
