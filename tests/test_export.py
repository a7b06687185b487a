"""What leaves the page: Markdown, JSON, CSV, the serve command, and the command line."""

import csv
import io
import json
import math
import re
import subprocess
import sys

import pytest

from kvcalc import Scenario, evaluate, explain, export, to_link
from kvcalc.__main__ import main

LLAMA_70B = "meta-llama/Llama-3.3-70B-Instruct"


@pytest.fixture(scope="module")
def report():
    return evaluate(Scenario(model=LLAMA_70B, tp=4, pp=1))


def test_markdown_holds_the_verdict_the_link_and_every_assumption(report):
    text = export.to_markdown(report, address="https://kvcalc.example/")
    assert report.sentence.split(":")[0] in text
    assert f"https://kvcalc.example/?{to_link(report.scenario)}" in text
    for assumption in report.assumptions:
        assert assumption.field.replace("_", "\\_") in text


def test_traffic_and_price_are_repeated_in_the_scenario_line():
    fields = {"requests_per_hour": 3_600, "prompt_tokens_p95": 20_000, "price_cents_per_gpu_hour": 250}
    line = export.scenario_line(evaluate(Scenario(model=LLAMA_70B, tp=4, pp=1, **fields)))
    assert line.endswith("3,600 requests per hour, 95th percentile 20,000 + 1,000 · $2.50 per GPU-hour as typed")


def test_without_a_price_the_scenario_line_is_silent_about_money(report):
    assert "$" not in export.scenario_line(report)
    assert "per hour" not in export.scenario_line(report)


def test_markdown_cannot_be_broken_by_a_models_name():
    from kvcalc import read_model

    facts = read_model(LLAMA_70B).sizing_facts
    evil = "x|y<script>alert(1)</script>`$[a](http://b)"
    scenario = Scenario(model="pasted", model_facts=facts, model_label=evil, tp=4, pp=1)
    text = export.to_markdown(evaluate(scenario))
    lines = [line for line in text.splitlines() if not line.startswith("Link:")]
    assert "<script>" not in "\n".join(lines)


def test_json_is_the_whole_report(report):
    assert json.loads(export.to_json(report))["concurrency"] == report.concurrency


def test_csv_has_a_row_per_context_and_never_rises(report):
    rows = list(csv.DictReader(io.StringIO(export.to_csv(report))))
    requests = [float(row["reserved_requests"]) for row in rows]
    assert len(rows) > 20
    assert requests == sorted(requests, reverse=True)


def test_the_serve_command_names_what_was_chosen():
    scenario = Scenario(model=LLAMA_70B, tp=4, pp=2, kv_precision="fp8", utilization_pct=85, max_num_seqs=64)
    assert export.serve_command(scenario) == (
        "vllm serve meta-llama/Llama-3.3-70B-Instruct --max-model-len 32768 --tensor-parallel-size 4 "
        "--pipeline-parallel-size 2 --kv-cache-dtype fp8 --max-num-seqs 64 --gpu-memory-utilization 0.85"
    )


def test_the_arithmetic_shows_320_kib_per_token_and_how(report):
    requests = explain.steps(report)[0]
    step = requests.steps[0]
    assert step.numbers == "2 × 80 × 8 × 128 × 2"
    assert step.value == "327,680 B = 320 KiB"


def test_the_arithmetic_ends_in_the_figure_of_the_report(report):
    last = explain.steps(report)[0].steps[-1]
    assert last.value == f"{report.concurrency:,}"


def test_the_budget_step_adds_up_in_the_shown_digits(report):
    step = next(step for step in explain.steps(report)[0].steps if step.title.startswith("KV pool"))
    first, *rest = (float(part) for part in step.numbers.split(" − "))
    assert first - sum(rest) == pytest.approx(float(step.value.removesuffix(" GiB")), abs=0.05)


def test_the_command_line_prints_markdown_for_the_default(capsys):
    assert main([]) == 0
    assert capsys.readouterr().out.startswith("## Fits")


def test_the_command_line_opens_a_link_and_prints_json(capsys, report):
    assert main(["--link", to_link(report.scenario), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["concurrency"] == report.concurrency


def test_the_command_line_says_no_with_1_when_it_does_not_fit(capsys):
    assert main(["--model", LLAMA_70B, "--set", "tp=1", "--set", "pp=1"]) == 1
    assert "Does not fit" in capsys.readouterr().out


def test_the_command_line_names_a_bad_field_with_2(capsys):
    assert main(["--set", "tp=three"]) == 2
    assert "tp: expected" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("tp=-1", "tp: expected a whole number from 1 to 65,536, got -1."),
        ("tp=1.5", "tp: expected a whole number, got '1.5'."),
        ("busy=yes", "busy: expected true or false, got 'yes'."),
    ],
)
def test_the_command_line_says_what_a_field_takes(setting, says, capsys):
    assert main(["--set", setting]) == 2
    assert says in capsys.readouterr().err


def test_a_revision_without_a_hub_model_is_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--revision", "main"])
    assert ended.value.code == 2
    assert "--revision belongs to --hub" in capsys.readouterr().err


def test_the_command_line_reads_a_config_file(tmp_path, capsys):
    config = tmp_path / "config.json"
    config.write_text(
        json.dumps(
            {
                "model_type": "llama",
                "num_hidden_layers": 32,
                "num_attention_heads": 32,
                "num_key_value_heads": 8,
                "hidden_size": 4096,
                "intermediate_size": 14336,
                "vocab_size": 128256,
                "max_position_embeddings": 131072,
            }
        )
    )
    assert main(["--config", str(config), "--json"]) == 0
    # 2 x 32 x 8 x 128 x 2
    assert json.loads(capsys.readouterr().out)["kv_bytes_per_token"] == 131_072


def test_the_module_runs_as_a_program():
    done = subprocess.run([sys.executable, "-m", "kvcalc", "--link-only"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith("v=1&model=")


HOLDING = {
    "one pool of vLLM, the block it keeps empty apart": {"model": LLAMA_70B, "tp": 4, "pp": 1},
    "two pools of SGLang": {"model": "google/gemma-3-27b-it", "engine": "sglang", "tp": 1, "pp": 1},
    "states and tokens in SGLang": {"model": "ai21labs/AI21-Jamba-1.5-Mini", "engine": "sglang", "tp": 2, "pp": 1},
    "two windows of TensorRT-LLM": {"model": "google/gemma-3-27b-it", "engine": "tensorrt_llm", "tp": 1, "pp": 1},
    "states in TensorRT-LLM": {"model": "ai21labs/AI21-Jamba-1.5-Mini", "engine": "tensorrt_llm", "tp": 2, "pp": 1},
}


def step_of(scenario, title):
    found = [step for section in explain.steps(evaluate(scenario)) for step in section.steps]
    return next(step for step in found if step.title.startswith(title))


def quotients(numbers):
    """Each '(a − b) ÷ c' or 'a ÷ c' of a line, worked out."""
    plain = numbers.replace(",", "").replace(" B", "")
    found = re.findall(r"\(?(\d+)(?: − (\d+)\))? ÷ (\d+)", plain)
    return [(int(pool) - int(kept or 0)) // int(each) for pool, kept, each in found]


@pytest.mark.parametrize("name", HOLDING)
def test_the_requests_a_pool_holds_are_the_division_that_is_shown(name):
    scenario = Scenario(**HOLDING[name])
    step = step_of(scenario, "Requests the KV pool holds")
    assert f"{min(quotients(step.numbers)):,}" == step.value
    assert step.value == f"{evaluate(scenario).capacities.reserved_requests:,}"


def test_llama_cpp_shows_the_slots_that_fit_and_one_more_that_does_not():
    step = step_of(Scenario(model="google/gemma-3-27b-it", engine="llamacpp", tp=1, pp=1), "Requests the KV pool")
    sizes = re.findall(r"([\d,]+) slots? takes? ([\d,]+) B", step.numbers)
    (held, taken), (more, too_much) = ([int(word.replace(",", "")) for word in pair] for pair in sizes)
    pool = int(step.numbers.rpartition(" of ")[2].removesuffix(" B").replace(",", ""))
    assert (more, f"{held:,}") == (held + 1, step.value)
    assert taken <= pool < too_much


@pytest.mark.parametrize("kv", ["bf16", "int8_per_token_head", "int4_per_token_head"])
def test_kv_per_token_multiplies_out_whatever_the_width_its_scales_are_for(kv):
    # gpt-oss heads are 64 wide, so that a scale per head weighs twice what it does at 128.
    step = step_of(Scenario(model="openai/gpt-oss-20b", kv_precision=kv), "KV per token, full attention")
    product = math.prod(float(factor) for factor in step.numbers.split(" × "))
    assert product == pytest.approx(float(step.value.partition(" B")[0].replace(",", "")), rel=1e-5)


def test_what_exceeds_the_card_is_put_back_so_that_the_pool_comes_to_nothing():
    step = step_of(Scenario(model="deepseek-ai/DeepSeek-V3", tp=1, pp=1), "KV pool, each GPU")
    terms = re.findall(r"([−+]?) ?([\d.]+)", step.numbers.replace(",", ""))
    assert "+ over the card" in step.formula
    assert sum((-1 if sign == "−" else 1) * float(size) for sign, size in terms) == pytest.approx(0, abs=0.05)
    assert step.value == "0.00 GiB"


def test_gpus_that_cost_nothing_leave_an_arithmetic():
    scenario = Scenario(model=LLAMA_70B, tp=4, pp=1, requests_per_hour=3_600, price_cents_per_gpu_hour=0)
    assert step_of(scenario, "Cost per million output").value == "$0.00"


@pytest.mark.parametrize("target_tpot_ms", [None, 50, 1])
@pytest.mark.parametrize("gpu", ["h100-sxm-80gb", "rtx-4090"])
def test_whatever_runs_is_bound_by_one_limit(gpu, target_tpot_ms):
    report = evaluate(Scenario(model="Qwen/Qwen2.5-72B", gpu=gpu, tp=8, pp=1, target_tpot_ms=target_tpot_ms))
    assert [limit.binds for limit in report.limits].count(True) == 1
