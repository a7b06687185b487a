"""What stands beside the figures: notes, and the steps from a token to a request. No browser."""

from __future__ import annotations

import pytest

from kvcalc import Scenario, evaluate
from kvcalc.document import document_answer
from kvcalc.document_size import DocumentQuestion
from kvcalc.explain import steps
from kvcalc.levers import best_moves
from kvcalc.ui import document_words, wording
from tests.support import ROOT

LLAMA = "meta-llama/Llama-3.3-70B-Instruct"
DEEPSEEK = "deepseek-ai/DeepSeek-V3"
GEMMA = "google/gemma-3-27b-it"
QWEN_NEXT = "Qwen/Qwen3-Next-80B-A3B-Instruct"


def note(scenario: Scenario) -> str:
    report = evaluate(scenario)
    return wording.requests_note(report, best_moves(report) if report.fits else ())


def test_the_first_note_is_the_best_move_whatever_the_state() -> None:
    for scenario in (
        Scenario(model=LLAMA),
        Scenario(model=LLAMA, target_tpot_ms=15),
        Scenario(model=LLAMA, target_requests=500),
    ):
        best = best_moves(evaluate(scenario))[0]
        assert note(scenario).startswith(f"{best.after_requests} with ")
    too_small = evaluate(Scenario(model=LLAMA, tp=1, pp=1))
    assert not too_small.fits
    assert note(too_small.scenario) == f"{too_small.would_fit[0].requests} with {too_small.would_fit[0].change}"


def test_the_first_note_splits_what_replicas_hold_together() -> None:
    report = evaluate(Scenario(model=LLAMA, replicas=2))
    assert note(report.scenario) == f"{report.concurrency} on each of 2 replicas"


def test_kv_per_token_says_how_often_it_is_stored() -> None:
    # MLA keeps 61 x (512 + 64) x 2 B = 70,272 B = 68.6 KiB, whole on each of 8 ranks.
    assert wording.kv_note(evaluate(Scenario(model=DEEPSEEK, gpu="h200-sxm", tp=8))) == (
        "68.6 KiB per token, stored 8 times"
    )
    assert wording.kv_note(evaluate(Scenario(model=LLAMA))) == "320 KiB per token"


def test_the_note_under_the_band_is_what_the_target_is_held_against() -> None:
    report = evaluate(Scenario(model=LLAMA, target_tpot_ms=50))
    assert report.tpot is not None
    assert wording.tpot_note(report) == f"typical {report.tpot.typical_s * 1e3:.0f} ms, target 50 ms"


@pytest.mark.parametrize(
    ("scenario", "whole", "each"),
    [
        (Scenario(model=LLAMA, tp=4), "8,000 × 327,680 B", "2.44 GiB ÷ TP 4"),
        # 8 KV heads on 16 ranks: each is stored twice.
        (Scenario(model=LLAMA, tp=16, gpu="h200-sxm"), "8,000 × 327,680 B × 2 copies", "4.88 GiB ÷ TP 16"),
        (Scenario(model=DEEPSEEK, tp=8, gpu="h200-sxm"), "8,000 × 70,272 B × 8 copies", "4.19 GiB ÷ TP 8"),
        # 61 layers on 2 stages: 31 and 30.
        (
            Scenario(model=DEEPSEEK, tp=4, pp=2, gpu="h200-sxm"),
            "8,000 × 70,272 B × 4 copies",
            "2.09 GiB ÷ TP 4 × 31 of 61 layers",
        ),
        # 10 full layers and 52 with a window of 1,024, halved by TP 2: 625 MiB and 416 MiB become 312.5 and 208.
        (
            Scenario(model=GEMMA, tp=2),
            "8,000 × 81,920 B + 1,024 × 425,984 B",
            "full attention 312 MiB + sliding window 208 MiB",
        ),
    ],
)
def test_a_request_is_worked_out_from_its_tokens(scenario: Scenario, whole: str, each: str) -> None:
    found = {step.title: step.numbers for step in steps(evaluate(scenario))[0].steps}
    assert (found["KV per request, all GPUs"], found["KV per request, busiest GPU"]) == (whole, each)


def test_a_state_is_part_of_a_request_and_not_of_a_token() -> None:
    """12 layers keep 2 x 2 x 256 x 2 B a token; 36 keep a state of 8,192 x 3 + 524,288 values in 16 bits."""
    scenario = Scenario(model=QWEN_NEXT, tp=1, pp=1, gpu="h200-sxm", weight_precision="int4")
    found = {step.title: step.numbers for step in steps(evaluate(scenario))[0].steps}
    state = 36 * (3 * 8_192 + 524_288) * 2
    assert found["KV per request, all GPUs"] == f"8,000 × {12 * 2 * 2 * 256 * 2:,} B + {state:,} B"


def test_a_document_for_a_server_that_holds_nothing_promises_no_times() -> None:
    found = document_answer(Scenario(model=LLAMA, tp=1, pp=1), DocumentQuestion.of_pages(12))
    shown = {figure.label: (figure.value, figure.note) for figure in document_words.figures(found)}
    assert shown["Displaced"] == ("0", "none runs today")
    assert shown["First token"] == shown["Time per token"] == shown["GPUs needed"] == ("–", "none runs today")


def test_no_button_is_filled_with_the_accent() -> None:
    """Streamlit writes white on it in both themes; on the dark theme's light blue that is 2.2:1."""
    filled = [path.name for path in (ROOT / "kvcalc" / "ui").glob("*.py") if '"primary"' in path.read_text("utf-8")]
    assert filled == []
