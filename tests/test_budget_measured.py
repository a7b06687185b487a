"""What was measured replaces what was estimated: lines, bands, notes, and what a change makes untrue."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc import explain
from kvcalc.budget import Budget, memory_budget
from kvcalc.catalogue import gpu, model
from kvcalc.errors import ScenarioError
from kvcalc.evaluation import evaluate
from kvcalc.export import serve_command
from kvcalc.measured import DECIDED_BY, changed
from kvcalc.scenario import Scenario
from kvcalc.share import from_link, to_link
from kvcalc.units import GIB, MIB

ENGINES = ("vllm", "sglang", "tensorrt_llm", "llamacpp")
LLAMA = model("meta-llama/Llama-3.1-8B-Instruct")
H100 = gpu("h100-sxm-80gb")


def budget(**options: Any) -> Budget:
    return memory_budget(LLAMA, gpu=H100, **options)


def line(found: Budget, name: str) -> int:
    return sum(entry.bytes for entry in found.lines if entry.name == name)


def names(found: Budget) -> list[str]:
    return [entry.name for entry in found.lines]


# One line at a time.


@pytest.mark.parametrize(
    ("option", "name"),
    [("non_torch_bytes", "non_torch"), ("activations_bytes", "activations"), ("cuda_graphs_bytes", "cuda_graphs")],
)
def test_a_measured_overhead_is_its_line_without_a_band(option: str, name: str) -> None:
    plain, found = budget(), budget(**{option: 3 * GIB})
    entry = next(entry for entry in found.lines if entry.name == name)
    assert (entry.bytes, entry.low_bytes, entry.high_bytes, entry.formula) == (3 * GIB,) * 3 + ("as measured",)
    assert found.kv_pool_bytes == plain.kv_pool_bytes - (3 * GIB - line(plain, name))


def test_the_band_narrows_with_every_line_and_is_gone_with_the_last() -> None:
    known: dict[str, int] = {}
    widths = []
    for option in ("cuda_graphs_bytes", "non_torch_bytes", "activations_bytes"):
        found = budget(**known)
        widths.append(found.kv_pool_high_bytes - found.kv_pool_low_bytes)
        known[option] = line(found, option.removesuffix("_bytes"))
    found = budget(**known)
    widths.append(found.kv_pool_high_bytes - found.kv_pool_low_bytes)
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] == 0
    assert found.kv_pool_bytes == budget().kv_pool_bytes


def test_what_was_measured_is_no_assumption() -> None:
    found = budget(non_torch_bytes=GIB)
    assert "outside PyTorch" in {entry.field for entry in budget().assumptions}
    assert "outside PyTorch" not in {entry.field for entry in found.assumptions}


def test_a_measured_peak_of_a_vision_model_holds_its_encoder_cache() -> None:
    spec = model("Qwen/Qwen2.5-VL-7B-Instruct")
    assert "encoder_cache" in names(memory_budget(spec, gpu=H100))
    assert "encoder_cache" not in names(memory_budget(spec, gpu=H100, activations_bytes=3 * GIB))


@pytest.mark.parametrize(("version", "charged"), [("0.19.2", False), ("0.20.0", True)])
def test_measured_graphs_come_out_of_the_pool_only_where_the_engine_charges_them(
    version: str, *, charged: bool
) -> None:
    plain = budget(engine_version=version, cuda_graphs_bytes=0)
    found = budget(engine_version=version, cuda_graphs_bytes=GIB)
    assert line(found, "cuda_graphs") == GIB
    assert (found.kv_pool_bytes == plain.kv_pool_bytes) is not charged


def test_activations_measured_on_sglang_stand_beside_the_pool() -> None:
    plain, found = budget(engine="sglang"), budget(engine="sglang", activations_bytes=2 * GIB)
    assert found.kv_pool_bytes == plain.kv_pool_bytes
    assert line(plain, "kept_free") - line(found, "kept_free") == line(found, "activations") == 2 * GIB


# The pool.


def test_a_measured_pool_tells_the_overhead() -> None:
    """Share 0.90 x 79.19 - 14.99 - 51.40 GiB is overhead, whatever the estimate was."""
    options: dict[str, Any] = {"engine_version": "0.11", "utilization_pct": 90, "weights_bytes": 14_990 * GIB // 1000}
    found = budget(kv_pool_bytes=5140 * GIB // 100, **options)
    requested = -(-H100.usable_bytes * 9 // 10)
    assert line(found, "other_overhead") == requested - 14_990 * GIB // 1000 - 5140 * GIB // 100
    assert found.overhead_low_bytes == found.overhead_bytes == found.overhead_high_bytes
    assert line(found, "kept_free") == H100.usable_bytes - requested
    assert not {"activations", "non_torch"} & set(names(found))


def test_a_pool_set_by_hand_keeps_the_estimates_and_leaves_the_rest_free() -> None:
    plain, found = budget(), budget(kv_pool_bytes=20 * GIB)
    assert (found.kv_pool_low_bytes, found.kv_pool_bytes, found.kv_pool_high_bytes) == (20 * GIB,) * 3
    assert line(found, "activations") == line(plain, "activations")
    assert line(found, "kept_free") == line(plain, "kept_free") + plain.kv_pool_bytes - 20 * GIB
    assert [note.field for note in found.notes] == ["kv_pool_mib"]


def test_a_pool_that_leaves_less_than_the_estimate_is_believed() -> None:
    """All of the card but 1 GiB beside the weights: the overhead is that GiB at most."""
    weights = 15 * GIB
    found = budget(weights_bytes=weights, kv_pool_bytes=H100.usable_bytes - weights - GIB)
    assert line(found, "other_overhead") == GIB
    assert line(found, "kept_free") == 0


@pytest.mark.parametrize(("extra", "explained"), [(0, True), (1, False)])
def test_a_pool_larger_than_the_card_is_answered_with_an_unexplained_line(extra: int, *, explained: bool) -> None:
    weights = 15 * GIB
    known = {"non_torch_bytes": 0, "activations_bytes": 0, "cuda_graphs_bytes": 0, "weights_bytes": weights}
    found = budget(kv_pool_bytes=H100.usable_bytes - weights + extra, **known)
    assert ("unexplained" not in names(found)) is explained
    assert line(found, "unexplained") == -extra
    assert any("exceed the card" in note.text for note in found.notes) is not explained


def test_on_sglang_and_tensorrt_the_pool_gives_up_a_share_of_each_byte() -> None:
    """pool = f (usable - overhead) - weights; one GiB less pool is 1 / f GiB more overhead."""
    for engine, share in (("sglang", Fraction(8, 10)), ("tensorrt_llm", Fraction(8, 10))):
        plain = budget(engine=engine, utilization_pct=80)
        step = GIB // 10
        found = budget(engine=engine, utilization_pct=80, kv_pool_bytes=plain.kv_pool_bytes - step)
        assert line(found, "other_overhead") - plain.overhead_bytes == pytest.approx(step / share, abs=2)


MEASURED = st.none() | st.integers(min_value=0, max_value=120 * GIB)


@given(
    engine=st.sampled_from(ENGINES),
    pool=MEASURED,
    non_torch=MEASURED,
    activations=MEASURED,
    graphs=MEASURED,
    weights=st.none() | st.integers(min_value=1, max_value=120 * GIB),
    chunked=st.booleans(),
)
def test_lines_sum_to_the_card_whatever_was_measured(
    *,
    engine: str,
    pool: int | None,
    non_torch: int | None,
    activations: int | None,
    graphs: int | None,
    weights: int | None,
    chunked: bool,
) -> None:
    found = budget(
        engine=engine,
        kv_pool_bytes=pool,
        non_torch_bytes=non_torch,
        activations_bytes=activations,
        cuda_graphs_bytes=graphs,
        weights_bytes=weights,
        chunked_prefill=chunked,
    )
    assert sum(entry.bytes for entry in found.lines) == found.memory_bytes
    assert found.kv_pool_low_bytes <= found.kv_pool_bytes <= found.kv_pool_high_bytes
    assert pool is None or found.kv_pool_bytes == pool
    assert all(entry.bytes >= 0 for entry in found.lines if entry.name not in ("over_the_card", "unexplained"))
    assert all(entry.low_bytes <= entry.bytes <= entry.high_bytes for entry in found.lines)


@pytest.mark.parametrize(
    "field", ["kv_pool_bytes", "non_torch_bytes", "activations_bytes", "cuda_graphs_bytes", "max_model_len"]
)
@pytest.mark.parametrize("wrong", [-1, 1.5, True, "1"])
def test_a_measured_size_that_is_none_is_refused(field: str, wrong: object) -> None:
    with pytest.raises(ScenarioError, match=field):
        budget(**{field: wrong})


# Long prompts.


def test_without_chunked_prefill_a_step_holds_the_longest_prompt() -> None:
    """Llama-3.1-8B, forward pass of T tokens: T x 2 B x (3 x 14,336 + 3 x 4,096); above 0.29 the sampler is smaller."""
    found = budget(chunked_prefill=False, max_model_len=131_072)
    assert found.max_num_batched_tokens == 131_072
    assert line(found, "activations") == 131_072 * 2 * (3 * 14_336 + 3 * 4_096) + -(-6 * GIB // 100)
    assert "max_num_batched_tokens" in {entry.field for entry in found.assumptions}


@pytest.mark.parametrize(("length", "tokens"), [(8_191, 8_192), (8_192, 8_192), (8_193, 8_193)])
def test_a_prompt_shorter_than_a_step_changes_nothing(length: int, tokens: int) -> None:
    assert budget(chunked_prefill=False, max_model_len=length).max_num_batched_tokens == tokens


def test_chunked_prefill_makes_the_context_limit_cost_nothing() -> None:
    assert budget(max_model_len=8_192).lines == budget(max_model_len=131_072).lines


def scenario(**fields: object) -> Scenario:
    given = {"model": "meta-llama/Llama-3.1-8B-Instruct", "gpu": "h100-sxm-80gb", "tp": 1, "max_model_len": 131_072}
    return Scenario(**{**given, **fields})


def note(found: Scenario, field: str) -> str:
    return " ".join(entry.text for entry in evaluate(found).notes if entry.field == field)


def test_the_report_says_what_an_uncut_prompt_costs_and_where_it_runs_out() -> None:
    costs = note(scenario(chunked_prefill=False), "chunked_prefill")
    assert "131,072 tokens take 13.56 GiB" in costs
    assert "Turn chunked prefill on" not in costs
    out = note(scenario(chunked_prefill=False, gpu="l4", weight_precision="int8"), "chunked_prefill")
    assert "Turn chunked prefill on" in out
    assert not note(scenario(), "chunked_prefill")


def test_a_step_that_is_too_large_is_named_with_what_is_left() -> None:
    text = note(scenario(gpu="l4", weight_precision="int8", max_num_batched_tokens=131_072), "max_num_batched_tokens")
    assert "is left beside the weights" in text
    assert "Lower max_num_batched_tokens" in text


def test_sglang_warns_where_a_step_does_not_fit_beside_the_pool() -> None:
    """10% of the memory kept free is 7.9 GiB; 131,072 tokens x 2 B x (3 x 14,336 + 3 x 4,096) are 13.5 GiB."""
    uncut, cut = (scenario(engine="sglang", utilization_pct=90, chunked_prefill=chunked) for chunked in (False, True))
    assert "about 13.5 GiB of activations and 7.9 GiB is kept free" in note(uncut, "max_num_batched_tokens")
    assert not note(cut, "max_num_batched_tokens")


def test_the_arithmetic_shows_activations_by_tokens_of_a_step() -> None:
    section = next(x for x in explain.steps(evaluate(scenario())) if x.title.startswith("KV pool"))
    titles = [step.title for step in section.steps if step.title.startswith("Activations of")]
    assert titles[0].endswith("a step of 2,048 tokens")
    assert titles[-1].endswith("one step, 131,072 tokens")
    assert {"Weights", "KV cache", "Kept free"} <= {step.title for step in section.steps}


# End to end.


def test_measured_weights_are_compared_with_the_computed() -> None:
    """8,030,261,248 parameters x 2 B = 14.96 GiB, head and tables included."""
    close, far = scenario(weights_mib=15_350), scenario(weights_mib=9_000)
    assert evaluate(close).budget.weights_bytes == 15_350 * MIB
    assert "14.99 GiB as measured, 14.96 GiB computed." in note(close, "weights_mib")
    assert "may be of another model" not in note(close, "weights_mib")
    assert "may be of another model" in note(far, "weights_mib")


def test_a_link_keeps_what_was_measured() -> None:
    measured = scenario(
        weights_mib=15_350, kv_pool_mib=50_000, non_torch_mib=100, activations_mib=4_900, cuda_graphs_mib=0
    )
    assert from_link(to_link(measured)).scenario == measured


def test_a_change_returns_to_estimates_what_it_makes_untrue() -> None:
    measured = scenario(weights_mib=15_350, kv_pool_mib=50_000, non_torch_mib=100, activations_mib=4_900)
    wider = changed(measured, {"tp": 2})
    assert (wider.weights_mib, wider.kv_pool_mib, wider.non_torch_mib, wider.activations_mib) == (None,) * 4
    shared = changed(measured, {"utilization_pct": 95})
    assert (shared.weights_mib, shared.kv_pool_mib, shared.non_torch_mib) == (15_350, None, 100)
    longer = changed(measured, {"prompt_tokens": 3_000, "kv_precision": "fp8"})
    assert (longer.kv_pool_mib, longer.prompt_tokens) == (50_000, 3_000)
    assert changed(measured, {"tp": 1}) == measured


def test_every_field_a_measurement_depends_on_is_a_field() -> None:
    assert set(DECIDED_BY) <= set(Scenario.model_fields)
    assert set().union(*DECIDED_BY.values()) <= set(Scenario.model_fields)


def test_the_band_of_the_pool_is_a_band_of_requests() -> None:
    short = {"prompt_tokens": 700, "output_tokens": 300}
    report = evaluate(scenario(**short))
    assert report.requests_low < report.capacities.reserved_requests < report.requests_high
    known = evaluate(scenario(kv_pool_mib=50_000, **short))
    assert known.requests_low == known.capacities.reserved_requests == known.requests_high


# Shares and shared memory.


def test_the_share_is_one_of_what_a_process_sees_not_of_the_driver_s_figure() -> None:
    """81,559 MiB on the card, 79.19 GiB for a process: 0.90 of the latter, rounded up to a byte."""
    found = budget(utilization_pct=90)
    assert H100.memory_bytes > H100.usable_bytes
    assert found.requested_bytes == -(-H100.usable_bytes * 9 // 10)
    assert line(found, "driver") == H100.memory_bytes - H100.usable_bytes


@pytest.mark.parametrize(("share", "tp", "refused"), [(99, 1, False), (100, 1, True), (98, 2, False), (99, 2, True)])
def test_a_share_that_is_not_free_on_an_empty_card_is_named(share: int, tp: int, *, refused: bool) -> None:
    """H100 logs: 78.68 of 79.19 GiB are free at TP 1 (99.3%), 77.66 at TP 2 (98.06%)."""
    found = budget(utilization_pct=share, tp=tp)
    assert ("utilization_pct" in {note.field for note in found.notes}) is refused


def test_a_pool_and_prompts_set_by_hand_reach_the_serve_command() -> None:
    command = serve_command(scenario(kv_pool_mib=20_480, chunked_prefill=False)) or ""
    assert "--kv-cache-memory-bytes 21474836480" in command
    assert "--no-enable-chunked-prefill" in command
    assert "chunked" not in (serve_command(scenario()) or "")


@pytest.mark.parametrize("name", ["dgx-spark", "h100-sxm-80gb"])
def test_a_machine_that_shares_its_memory_has_the_wider_band(name: str) -> None:
    found = memory_budget(LLAMA, gpu=name, engine_version="0.19")
    shared = "Memory is shared with the host" in " ".join(entry.reason for entry in found.assumptions)
    assert shared is gpu(name).unified_memory
    assert (found.overhead_high_bytes - found.overhead_bytes > 8 * GIB) is shared
    assert found.requested_bytes <= gpu(name).usable_bytes
