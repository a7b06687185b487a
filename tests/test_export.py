"""What leaves the page: Markdown, JSON, CSV, the serve command, and the command line."""

import csv
import io
import json
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
