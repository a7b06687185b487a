"""Levers, the waterfall, mistakes and comparisons: consistent with the report, and silent on healthy scenarios."""

import pytest

from kvcalc import Scenario, ScenarioError, evaluate
from kvcalc.catalogue import model_presets
from kvcalc.comparison import compare
from kvcalc.evaluation import answer
from kvcalc.kv_formats import smaller_formats
from kvcalc.levers import best_moves, levers
from kvcalc.mistakes import mistakes
from kvcalc.model_choice import smaller_models
from kvcalc.scenario import spec_of
from kvcalc.waterfall import waterfall

DEEPSEEK = "deepseek-ai/DeepSeek-V3"
GEMMA = "google/gemma-3-27b-it"
HYBRID = "Qwen/Qwen3-Next-80B-A3B-Instruct"


def changed(scenario, **update):
    return Scenario(**{**dict(scenario), **update})


def ids(scenario):
    return [found.id for found in mistakes(evaluate(scenario))]


def test_levers_come_in_the_order_people_pull_them():
    order = ["architecture", "quantisation", "offload", "layout", "engine"]
    families = [lever.family for lever in levers(Scenario.default()).levers]
    assert families == sorted(families, key=order.index)
    assert set(families) == set(order)


@pytest.mark.parametrize("model", [Scenario.default().model, DEEPSEEK, GEMMA, HYBRID])
def test_each_lever_says_what_its_scenario_brings_or_why_it_cannot(model):
    found = levers(Scenario(model=model))
    for lever in found.levers:
        assert (lever.why_not is None) == (lever.after is not None)
        if lever.scenario is not None:
            assert lever.after.requests == answer(lever.scenario).concurrency * lever.scenario.replicas
            assert lever.gpus == lever.scenario.tp * lever.scenario.pp * lever.scenario.replicas


def test_a_lever_that_cannot_work_says_why():
    found = levers(Scenario.default())
    reasons = {lever.title: lever.why_not for lever in found.levers}
    assert reasons["NVFP4 KV"] == "NVFP4 needs FP4 arithmetic, which H100 SXM 80GB does not have."
    assert "no KV head twice" in reasons["Decode context parallelism"]


def test_llama_cpp_is_not_offered_fp8_kv():
    found = levers(Scenario(model="Qwen/Qwen3-8B", engine="llamacpp"))
    fp8 = next(lever for lever in found.levers if lever.title.startswith("FP8 (per tensor) KV"))
    assert fp8.why_not.startswith("llama.cpp does not store")
    assert any(lever.title == "Q8_0 KV" and lever.after is not None for lever in found.levers)


def test_weights_already_in_fewer_bits_are_not_quantised_again():
    found = levers(Scenario(model=DEEPSEEK))
    fp8 = next(lever for lever in found.levers if lever.title == "FP8 weights")
    assert fp8.why_not == "The weights take 8 bits already."


def test_models_that_engine_or_gpu_cannot_load_are_not_offered():
    # NVFP4 checkpoints need FP4 arithmetic, which an H100 lacks and a B200 has.
    for gpu, offered in (("h100-sxm-80gb", False), ("b200-sxm-180gb", True)):
        models = smaller_models(Scenario(model=DEEPSEEK, gpu=gpu, tp=8, pp=2), count=20)
        assert any("NVFP4" in row.id for row in models) == offered
    for row in smaller_models(Scenario(model="Qwen/Qwen3-32B", engine="llamacpp", weight_precision="q4_k_m"), count=20):
        assert not spec_of(row.scenario).quantization.rules
        assert row.scenario.weight_precision == "q4_k_m"


def test_smaller_models_come_least_kv_first():
    models = smaller_models(Scenario.default(), count=20)
    assert [row.kv_bytes for row in models] == sorted(row.kv_bytes for row in models)
    assert models
    assert all(row.requests > evaluate(Scenario.default()).total_concurrency for row in models)


def test_a_format_that_only_adds_scales_is_not_smaller():
    # DeepSeek's FP8 latent carries scales that plain FP8 does not: no lever.
    formats, _ = smaller_formats(answer(Scenario(model=DEEPSEEK, kv_precision="fp8_ds_mla")).inputs)
    assert "fp8" not in {row.id for row in formats}


def test_fp8_kv_without_fp8_arithmetic_comes_with_a_caution():
    found = levers(Scenario(model="Qwen/Qwen3-8B", gpu="a100-sxm-80gb"))
    fp8 = next(lever for lever in found.levers if lever.title == "FP8 (per tensor) KV")
    assert "has no FP8 arithmetic" in fp8.verify


def test_offload_brings_no_request():
    found = levers(Scenario.default())
    offload = next(lever for lever in found.levers if lever.family == "offload")
    assert offload.after.requests == found.now.requests
    assert "no room for running requests" in offload.verify


def test_best_moves_still_gain():
    report = evaluate(Scenario.default())
    moves = best_moves(report)
    assert moves
    assert all(move.after_requests > move.before_requests == report.total_concurrency for move in moves)


def test_the_waterfall_of_llama_70b_by_hand():
    # 64 query heads share 8 KV heads; 2 x 80 layers x 8 heads x 128 x 2 bytes x 8,000 tokens x 100 sessions
    found = waterfall(answer(Scenario.default()), sessions=100, active=40)
    now = 2 * 80 * 8 * 128 * 2 * 8_000 * 100
    assert [(step.id, step.before_bytes, step.after_bytes) for step in found.steps] == [
        ("every_head", 0, 8 * now),
        ("heads", 8 * now, now),
        ("kv_next", now, now // 2),
        ("offload", now // 2, now // 2 * 40 // 100),
    ]
    assert (found.now_bytes, found.end_bytes) == (now, now // 5)
    assert found.sentence.startswith("FP8 KV and offload bring 100 sessions from 244 to 48.8 GiB;")


def test_the_waterfall_ends_where_the_report_stands():
    for model in (DEEPSEEK, GEMMA, HYBRID, "openai/gpt-oss-120b"):
        scenario = Scenario(model=model)
        found = waterfall(answer(scenario), sessions=10)
        applied = [step for step in found.steps if step.is_applied]
        assert found.now_bytes == applied[-1].after_bytes == 10 * evaluate(scenario).kv_bytes_per_request
        assert all(
            step.before_bytes == last.after_bytes for last, step in zip(found.steps, found.steps[1:], strict=False)
        )


def test_tensor_parallel_repeats_are_a_step_the_wrong_way():
    repeats = next(step for step in waterfall(answer(Scenario(model=DEEPSEEK))).steps if step.id == "repeats")
    assert repeats.factor == pytest.approx(1 / 8)


# Mistakes


def test_the_default_scenario_makes_no_mistake():
    assert ids(Scenario.default()) == []


def test_hardly_any_preset_is_called_a_mistake():
    found = {preset.id: ids(Scenario(model=preset.id)) for preset in model_presets()}
    assert max(map(len, found.values())) <= 1
    # Latent caches repeat on every rank, and a few models have fewer KV heads than the GPUs they need.
    others = [name for name, names in found.items() if names and names != ["repeats"]]
    assert len(others) <= 5


def test_weights_that_fit_alone():
    scenario = Scenario(
        model="meta-llama/Llama-3.3-70B-Instruct", tp=2, pp=1, prompt_tokens=30_000, output_tokens=1_000
    )
    found = mistakes(evaluate(scenario))[0]
    assert found.id == "weights_only"
    assert found.sentence.startswith("The weights fit, 65.7 GiB of 79.2 GiB per GPU")
    assert evaluate(found.scenario).fits


def test_a_context_limit_that_cannot_be_batched_and_one_that_can():
    scenario = Scenario(model="Qwen/Qwen3-8B", tp=1, pp=1, kv_pool_mib=5_000)
    # 2 x 36 layers x 8 heads x 128 x 2 bytes = 147,456 a token: 5,000 MiB are 35,555 tokens
    assert ids(changed(scenario, max_model_len=32_768)) == ["limit_not_batched"]
    assert ids(changed(scenario, max_model_len=17_000)) == []
    found = mistakes(evaluate(changed(scenario, max_model_len=32_768)))[0]
    assert "1.1 of them fit" in found.sentence
    assert ids(found.scenario) == []


def test_a_context_limit_far_above_the_95th_percentile_and_one_that_is_not():
    scenario = Scenario(model="Qwen/Qwen3-8B", prompt_tokens=1_000, output_tokens=500, prompt_tokens_p95=3_000)
    assert ids(changed(scenario, max_model_len=14_000)) == ["limit_far_above"]
    assert ids(changed(scenario, max_model_len=13_999)) == []


def test_a_long_prompt_without_chunks():
    scenario = changed(Scenario.default(), prompt_tokens=30_000)
    assert ids(changed(scenario, chunked_prefill=False)) == ["not_chunked"]
    assert ids(changed(scenario, chunked_prefill=True)) == []


def test_repeats_name_the_layout_that_deals_them_out():
    found = mistakes(evaluate(Scenario(model=DEEPSEEK)))[0]
    assert found.id == "repeats"
    assert "8 times over" in found.sentence
    assert found.scenario.dcp == 8
    assert evaluate(found.scenario).total_concurrency > evaluate(Scenario(model=DEEPSEEK)).total_concurrency


def test_a_memory_share_without_headroom():
    assert ids(changed(Scenario.default(), utilization_pct=100)) == ["no_headroom"]
    assert ids(changed(Scenario.default(), utilization_pct=95)) == []


def test_draft_tokens_that_eat_the_pool():
    scenario = Scenario(model=HYBRID, prompt_tokens=500, output_tokens=100, max_model_len=4_096)
    assert ids(scenario) == []
    assert ids(changed(scenario, speculative_tokens=4)) == ["drafts"]


# Comparisons


def test_half_the_kv_serves_twice_as_many_on_the_same_gpus():
    scenario = Scenario.default()
    found = compare((scenario, changed(scenario, kv_precision="fp8")))
    assert found.sentence == "B serves twice as many on the same GPUs."
    assert [column.label for column in found.columns] == ["now", "FP8 KV"]
    rows = {row.name: row for row in found.rows}
    assert [cell.delta for cell in rows["kv"].cells] == ["", "−1.2"]
    assert [cell.text for cell in rows["pool"].cells] == ["141 GiB", "141 GiB"]
    assert rows["pool"].cells[1].delta == "same"
    assert [cell.text for cell in rows["kv_precision"].cells] == ["BF16", "FP8"]


def test_figures_are_those_of_the_reports():
    scenario = Scenario.default()
    scenarios = (scenario, changed(scenario, gpu="h200-sxm-141gb"), changed(scenario, tp=8))
    found = compare(scenarios)
    for column, one in zip(found.columns, scenarios, strict=True):
        assert column.report == evaluate(one)
        assert column.requests_delta == column.report.total_concurrency - found.columns[0].report.total_concurrency
    assert "on 4 × H200" in found.sentence
    assert "on 8 GPUs instead of 4" in found.sentence


def test_curves_stand_on_the_same_contexts_up_to_each_limit():
    scenario = Scenario.default()
    found = compare((scenario, changed(scenario, max_model_len=16_384)))
    long, short = ({point.context_tokens: point.requests for point in curve} for curve in found.curves)
    assert set(short) <= set(long)
    assert (max(long), max(short)) == (32_768, 16_384)
    for curve, tokens in zip((long, short), found.context_tokens, strict=True):
        assert tokens in curve


def test_the_same_scenario_twice_says_so():
    found = compare((Scenario.default(), Scenario.default()))
    assert found.sentence == "B serves as many on the same GPUs."
    assert found.columns[1].label == "the same"


def test_a_first_scenario_that_serves_none():
    scenario = Scenario.default()
    found = compare((changed(scenario, tp=1), scenario))
    assert found.sentence.startswith("A serves none; B serves ")


@pytest.mark.parametrize("count", [0, 1, 5])
def test_two_to_four_scenarios(count):
    with pytest.raises(ScenarioError, match="2 to 4"):
        compare((Scenario.default(),) * count)
