"""How long the core takes. `make bench` prints each time as a ratio to a fixed loop of the same run, so that
machines of different speed can be compared."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import kvcalc
from kvcalc.deployment_search import search
from kvcalc.fleet import fleet

ROOT = Path(__file__).resolve().parent.parent
MODELS = {
    "dense": "meta-llama/Llama-3.3-70B-Instruct",
    "windowed": "google/gemma-3-27b-it",
    "latent": "deepseek-ai/DeepSeek-V3",
    "hybrid": "Qwen/Qwen3-Next-80B-A3B-Instruct",
}

PROGRAMS = {
    "python alone": "pass",
    "import kvcalc": "import kvcalc",
    "first answer": "import kvcalc; kvcalc.evaluate(kvcalc.Scenario.default())",
}


def fixed_loop() -> int:
    """The yardstick: a hundred thousand additions."""
    total = 0
    for number in range(100_000):
        total += number
    return total


def test_yardstick(benchmark: BenchmarkFixture) -> None:
    assert benchmark(fixed_loop) == 99_999 * 100_000 // 2


@pytest.mark.parametrize("kind", MODELS)
def test_kv_bytes_per_sequence(benchmark: BenchmarkFixture, kind: str) -> None:
    spec = kvcalc.read_model(MODELS[kind])
    assert benchmark(kvcalc.kv_bytes_per_sequence, spec, context_tokens=8_000) > 0


@pytest.mark.parametrize("kind", MODELS)
def test_evaluate(benchmark: BenchmarkFixture, kind: str) -> None:
    scenario = kvcalc.Scenario(model=MODELS[kind])
    assert benchmark(kvcalc.evaluate, scenario).scenario == scenario


def test_link_round_trip(benchmark: BenchmarkFixture) -> None:
    scenario = kvcalc.Scenario.default()
    assert benchmark(lambda: kvcalc.from_link(kvcalc.to_link(scenario))).scenario == scenario


@pytest.mark.parametrize("program", PROGRAMS)
def test_new_process(benchmark: BenchmarkFixture, program: str) -> None:
    benchmark.pedantic(subprocess.check_call, ([sys.executable, "-c", PROGRAMS[program]],), {"cwd": ROOT}, rounds=5)


def test_deployment_search(benchmark: BenchmarkFixture) -> None:
    """Every GPU, layout and precision for one wish; about 4,500 candidates."""
    scenario = kvcalc.Scenario(model=MODELS["dense"], target_requests=20)
    assert benchmark(search, scenario).met > 0


def test_fleet(benchmark: BenchmarkFixture) -> None:
    scenario = kvcalc.Scenario(model=MODELS["dense"], requests_per_hour=36_000, prompt_tokens_p95=20_000)
    found = benchmark(fleet, scenario)
    assert found is not None
    assert found.fits
