"""Start-up logs: hostile text, several ranks, and a scenario that then agrees with the log."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.enginelog import as_logged, calibrate, parse
from kvcalc.evaluation import evaluate
from kvcalc.scenario import Scenario
from kvcalc.share import from_link, to_link
from kvcalc.units import GIB, MIB

START = """\
INFO [utils.py:233] non-default args: {'max_model_len': 16000, 'gpu_memory_utilization': 0.95}
INFO Initializing a V1 LLM engine (v0.19.0) with config: model='meta-llama/Llama-3.1-8B-Instruct', \
max_seq_len=16000, tensor_parallel_size=2, pipeline_parallel_size=1, enforce_eager=False, kv_cache_dtype=auto
INFO Model loading took 7.51 GiB memory and 10.1 seconds
INFO Available KV cache memory: 63.76 GiB
INFO GPU KV cache size: 1,044,624 tokens
INFO Maximum concurrency for 16,000 tokens per request: 65.29x
"""
"""Llama-3.1-8B over two H100 at share 0.95 (github.com/jgchn/llm-d-planner @d3121e05: weights 7.51, pool 63.76 GiB).
Tokens: 63.76 GiB / (32 layers x 2 x 4 heads x 128 x 2 B x 16 tokens) = 65,289 blocks of 16."""


def llama(**fields: object) -> Scenario:
    given = {"model": "meta-llama/Llama-3.1-8B-Instruct", "gpu": "h100-sxm-80gb", "tp": 2, "max_model_len": 16_000}
    return Scenario(**{**given, **fields})


def fields_of(notes: object) -> set[str]:
    return {note.field for note in notes}  # type: ignore[attr-defined]


# Round trips: the calibrated scenario prints what the log printed.

ROUND_TRIPS = {
    # https://github.com/vllm-project/vllm/issues/10517: 1,952 blocks of 16 on an RTX 3090, V0
    "vLLM V0, blocks": (
        {"model": "meta-llama/Llama-3.1-8B-Instruct", "gpu": "rtx-3090", "tp": 1, "max_model_len": 20_000},
        "model weights take 14.99GiB; non_torch_memory takes 0.40GiB; PyTorch activation peak memory takes 2.02GiB; "
        "the rest of the memory reserved for KV Cache is 3.81GiB.\n# GPU blocks: 1952, # CPU blocks: 2048",
        31_232,
    ),
    # https://github.com/vllm-project/vllm/pull/12569: no pool is printed, only blocks
    "vLLM 0.7, no pool": (
        {"model": "meta-llama/Llama-3.1-70B-Instruct", "gpu": "h100-sxm-80gb", "tp": 1, "max_model_len": 2048}
        | {"weight_precision": "int8"},
        "Loading model weights took 67.7229 GB\n# GPU blocks: 1381\n"
        "Maximum concurrency for 2048 tokens per request: 10.79x",
        1381 * 16,
    ),
    # tonghuikang/blog 2025-12-28 vllm-logs: windows, the older accounting
    "vLLM 0.11.2, gpt-oss-120b": (
        {"model": "openai/gpt-oss-120b", "gpu": "h100-sxm-80gb", "tp": 1, "max_model_len": 98_304},
        "LLM engine (v0.11.2) with config\nModel loading took 65.9651 GiB memory and 60 seconds\n"
        "Available KV cache memory: 8.99 GiB\nGPU KV cache size: 130,960 tokens\n"
        "Maximum concurrency for 98,304 tokens per request: 2.46x",
        130_960,
    ),
    "vLLM 0.19, TP 2": ({}, START, 1_044_624),
    # https://github.com/vllm-project/vllm/issues/21348: 367,404 tokens x 94 layers x 2 x 128 x 2 B = 16.47 GiB
    "SGLang, TP 4": (
        {
            "model": "Qwen/Qwen3-235B-A22B",
            "weight_precision": "fp8",
            "gpu": "h100-sxm-80gb",
            "tp": 4,
            "engine": "sglang",
        }
        | {"max_model_len": 40_960},
        "KV Cache is allocated. #tokens: 367404, K size: 8.23 GB, V size: 8.23 GB\n"
        "max_total_num_tokens=367404, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=2048, "
        "context_len=40960",
        367_404,
    ),
}


@pytest.mark.parametrize("name", ROUND_TRIPS)
def test_a_calibrated_scenario_reports_the_tokens_of_its_log(name: str) -> None:
    fields, text, tokens = ROUND_TRIPS[name]
    found = calibrate(llama(**fields), parse(text))
    report = evaluate(found.scenario)
    # A MiB, the unit of the scenario, holds 21 tokens of 48,128 B: where a block is a token, the last may hold more.
    assert tokens <= report.capacities.reported_tokens <= tokens + (21 if "SGLang" in name else 0)
    assert sum(line.bytes for line in report.budget.lines) == report.gpu.memory_bytes
    assert report.budget.kv_pool_low_bytes == report.budget.kv_pool_bytes == report.budget.kv_pool_high_bytes
    assert from_link(to_link(found.scenario)).scenario == found.scenario


def test_the_pool_stays_within_the_two_decimals_it_was_printed_with() -> None:
    found = calibrate(llama(), parse(START))
    assert abs((found.scenario.kv_pool_mib or 0) * MIB - 63.76 * GIB) <= GIB / 200 + MIB
    assert (found.scenario.weights_mib, found.scenario.engine_version) == (7690, "0.19.0")
    assert found.scenario.utilization_pct == 95
    assert not found.notes


def test_as_logged_takes_over_how_the_engine_was_started() -> None:
    found = as_logged(Scenario(model="meta-llama/Llama-3.1-8B-Instruct", tp=4, engine="sglang"), parse(START))
    scenario = found.scenario
    assert (scenario.engine, scenario.tp, scenario.max_model_len, scenario.utilization_pct) == ("vllm", 2, 16_000, 95)
    assert evaluate(scenario).capacities.reported_tokens == 1_044_624


# What cannot be used is said.


def test_figures_of_another_layout_are_not_used() -> None:
    found = calibrate(llama(tp=4), parse(START))
    assert (found.scenario.weights_mib, found.scenario.kv_pool_mib) == (None, None)
    assert "tp" in fields_of(found.notes)


@pytest.mark.parametrize(("tp", "used"), [(1, False), (2, True), (8, True)])
def test_the_tag_of_a_rank_is_no_more_than_a_lower_bound(tp: int, *, used: bool) -> None:
    """From 0.11 on rank 0 prints alone: a log of eight ranks may show two tags, or one."""
    log = parse("(Worker_TP1 pid=3) INFO Available KV cache memory: 6.87 GiB\n")
    found = calibrate(llama(tp=tp), log)
    assert (found.scenario.kv_pool_mib is not None) is used
    assert ("tp" in fields_of(found.notes)) is not used


def test_a_llama_cpp_log_sets_the_cache_it_allocated() -> None:
    """Llama-3.1-8B at n_ctx 16,384 in two slots: 16,384 x 131,072 B = 2 GiB."""
    text = (
        "load_tensors:        CUDA0 model buffer size =  4403.49 MiB\nllama_context: n_seq_max     = 2\n"
        "llama_context: n_ctx         = 16384\nllama_context: n_ctx_per_seq = 8192\n"
        "llama_kv_cache:      CUDA0 KV buffer size =  2048.00 MiB\n"
        "llama_context:      CUDA0 compute buffer size =   258.48 MiB\n"
    )
    found = calibrate(llama(tp=1, engine="llamacpp", gpu="rtx-4090", max_model_len=8_192), parse(text))
    report = evaluate(found.scenario)
    assert (found.scenario.weights_mib, found.scenario.kv_pool_mib, found.scenario.activations_mib) == (4403, 2048, 258)
    assert (report.capacities.reported_tokens, report.capacities.reserved_requests) == (16_384, 2)


def test_another_context_limit_is_named_and_kept() -> None:
    found = calibrate(llama(max_model_len=32_768), parse(START))
    assert found.scenario.max_model_len == 32_768
    assert "max_model_len" in fields_of(found.notes)


def test_another_engine_is_set_and_named() -> None:
    found = calibrate(llama(engine="sglang"), parse(START))
    assert (found.scenario.engine, "engine" in fields_of(found.notes)) == ("vllm", True)


def test_a_choice_the_log_contradicts_is_kept_and_named() -> None:
    log = parse(START + "INFO Defaulting max_num_seqs to 1024 for LLM_CLASS usage context.\n")
    kept = calibrate(llama(max_num_seqs=64), log)
    taken = calibrate(llama(), log)
    assert (kept.scenario.max_num_seqs, "max_num_seqs" in fields_of(kept.notes)) == (64, True)
    assert (taken.scenario.max_num_seqs, "max_num_seqs" in fields_of(taken.notes)) == (1024, False)


def test_tokens_that_the_pool_cannot_hold_are_named() -> None:
    """https://github.com/vllm-project/vllm/issues/21348: the printed 8.11 GiB is another rank's."""
    scenario = llama(model="Qwen/Qwen3-235B-A22B", weight_precision="fp8", tp=4, max_model_len=40_960)
    found = calibrate(scenario, parse("Available KV cache memory: 8.11 GiB\nGPU KV cache size: 178,880 tokens"))
    assert found.scenario.kv_pool_mib == round(8.11 * 1024)
    assert "kv_pool_mib" in fields_of(found.notes)


def test_a_negative_pool_leaves_the_estimate_and_is_named() -> None:
    found = calibrate(llama(), parse("Available KV cache memory: -1.44 GiB\nModel loading took 67.72 GiB memory"))
    assert (found.scenario.kv_pool_mib, found.scenario.weights_mib) == (None, 69_345)
    assert "kv_pool_mib" in fields_of(found.notes)
    assert any("may be of another model" in note.text for note in evaluate(found.scenario).notes)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("GPU KV cache size: 900,000,000,000 tokens", "kv_pool_mib"),
        ("Available KV cache memory: 99999999 GiB", "kv_pool_mib"),
        ("Model loading took 0.00 GiB memory", "weights_mib"),
        ("model weights take 15.00GiB; non_torch_memory takes -0.35GiB; PyTorch activation peak memory takes 1.00GiB; "
         "the rest of the memory reserved for KV Cache is 40.00GiB", "non_torch_mib"),
    ],
    ids=["tokens", "pool", "weights", "below zero"],
)  # fmt: skip
def test_a_figure_that_cannot_be_is_left_out_and_named(text: str, field: str) -> None:
    found = calibrate(llama(), parse(text))
    assert getattr(found.scenario, field) is None
    assert field in fields_of(found.notes)


def test_a_release_that_is_none_is_named() -> None:
    found = calibrate(llama(), parse(START.replace("v0.19.0", "v0.19.0.1.2.3")))
    assert (found.scenario.engine_version, "engine_version" in fields_of(found.notes)) == (None, True)


@pytest.mark.parametrize("text", ["", "hello", "GiB " * 50, "{}\n[]\n", "\x00\x1b[\x1b"])
def test_text_without_figures_changes_nothing_and_says_so(text: str) -> None:
    found = calibrate(llama(), parse(text))
    assert found.scenario == llama()
    assert fields_of(found.notes) == {"log"}


# Ranks.


def test_of_several_ranks_the_largest_weights_and_the_smallest_pool_count() -> None:
    """PP logs: rank 0 prints 66.54 and the engine uses the 65.63 of the other stage."""
    log = parse(
        "(Worker_PP0 pid=1) INFO Model loading took 7.10 GiB memory and 3 seconds\n"
        "(Worker_PP1 pid=2) INFO Model loading took 7.90 GiB memory and 3 seconds\n"
        "(Worker_PP0 pid=1) INFO Available KV cache memory: 66.54 GiB\n"
        "(Worker_PP1 pid=2) INFO Current kv cache memory in use is 65.63 GiB.\n"
    )
    assert log.weights_bytes == round(7.90 * GIB)
    assert log.kv_pool_bytes == round(65.63 * GIB)
    assert "kv_pool" in fields_of(log.notes)


def test_every_figure_names_its_line() -> None:
    log = parse("first\nsecond\nINFO Available KV cache memory: 6.87 GiB\n")
    assert [(entry.fact, entry.printed, entry.line.number) for entry in log.readings] == [("kv_pool", "6.87 GiB", 3)]


def test_lines_of_another_program_do_not_decide_the_engine() -> None:
    log = parse(START + "load_tensors: CUDA0 model buffer size = 1.00 MiB\n")
    assert log.engine == "vllm"
    assert log.weights_bytes == round(7.51 * GIB)


# Hostile text.


@pytest.mark.parametrize(
    "text",
    [
        "\x1b[" + "1" * 5_000_000,
        "KV cache size: " * 350_000,
        "Available KV cache memory: 5 GiB\n" * 150_000,
        "[1;1;1;" * 700_000,
        "\\n" * 2_500_000,
        "GPU KV cache size: 1,0" + "00,000" * 800_000 + " tokens",
        "buffer size = " * 350_000,
        "İ" * 2_000_000 + "\nAvailable KV cache memory: 5 GiB",
    ],
    ids=["escape", "needles", "lines", "marks", "escaped ends", "digits", "one line", "longer in lower case"],
)
def test_five_megabytes_of_anything_are_read_in_seconds(text: str) -> None:
    began = time.process_time()
    parse(text)
    assert time.process_time() - began < 6


def test_a_needle_in_a_haystack_is_found() -> None:
    noise = "INFO 05-12 request finished in 1.2 s, 17 tokens\n" * 50_000
    log = parse(noise + START + noise)
    assert (log.kv_tokens, log.version) == (1_044_624, "0.19.0")


@given(st.text(max_size=400))
def test_any_text_is_read_without_an_error(text: str) -> None:
    log = parse(text + "\nAvailable KV cache memory: 6.87 GiB\n" + text)
    assert log.kv_pool_bytes is not None


@given(
    weights=st.integers(min_value=1, max_value=9_999),
    pool=st.integers(min_value=1, max_value=9_999),
    tokens=st.integers(min_value=0, max_value=10**9),
)
def test_figures_come_out_to_the_byte(weights: int, pool: int, tokens: int) -> None:
    """Hundredths of a GiB, rounded to the nearest byte."""
    log = parse(
        f"Model loading took {weights / 100:.2f} GiB memory\nAvailable KV cache memory: {pool / 100:.2f} GiB\n"
        f"GPU KV cache size: {tokens:,} tokens\n"
    )
    assert log.weights_bytes == (weights * GIB + 50) // 100
    assert log.kv_pool_bytes == (pool * GIB + 50) // 100
    assert log.kv_tokens == tokens
