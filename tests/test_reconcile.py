"""A log beside the prediction: the columns add up, and the words name what moved the pool."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.enginelog import EngineLog, calibrate, parse
from kvcalc.evaluation import evaluate
from kvcalc.reconcile import Reconciliation, reconcile, same_layout
from kvcalc.reconcile_words import explanations, sentence
from kvcalc.scenario import Scenario
from kvcalc.units import GIB, MIB

SCENARIO = Scenario(
    model="meta-llama/Llama-3.1-8B-Instruct", gpu="h100-sxm-80gb", tp=1, pp=1, engine="vllm", engine_version="0.32.0"
)
PLAIN = reconcile(SCENARIO)
OVERHEADS = ("non_torch", "activations", "cuda_graphs")


def predicted(name: str) -> int:
    line = PLAIN.line(name)
    assert line is not None
    return line.predicted_bytes


def log(**moved_bytes: int) -> EngineLog:
    """A log that prints every line, each moved by so much from the prediction; the pool is what they leave."""
    size = {name: predicted(name) + moved_bytes.get(name, 0) for name in ("request", "weights", *OVERHEADS)}
    pool = size["request"] - size["weights"] - sum(size[name] for name in OVERHEADS)
    return EngineLog(
        engine="vllm",
        version="0.32.0",
        requested_bytes=size["request"],
        weights_bytes=size["weights"],
        non_torch_bytes=size["non_torch"],
        activation_bytes=size["activations"],
        cuda_graph_bytes=size["cuda_graphs"],
        cuda_graphs_charged=True,
        kv_pool_bytes=pool,
    )


def moved(found: Reconciliation) -> dict[str, int | None]:
    return {line.name: line.difference_bytes for line in found.lines}


def test_without_a_log_the_prediction_stands_alone() -> None:
    budget = evaluate(SCENARIO).budget
    assert [line.logged_bytes for line in PLAIN.lines] == [None] * len(PLAIN.lines)
    assert (PLAIN.has_log, PLAIN.logged) == (False, None)
    assert predicted("kv_pool") == budget.kv_pool_bytes
    assert predicted("request") == budget.requested_bytes
    assert sentence(PLAIN).startswith("Predicted: ")
    assert explanations(PLAIN) == ()


def test_a_log_equal_to_the_prediction_leaves_nothing() -> None:
    found = reconcile(SCENARIO, log())
    assert set(moved(found).values()) == {0}
    assert sentence(found) == "Your log matches the prediction within 0.1%."
    assert [cause.title for cause in explanations(found)][-1] == "Nothing is left over"


def test_graphs_that_take_all_that_is_missing_are_named() -> None:
    """0.91 GiB of more graphs and 0.14 GiB of more activations leave a pool that is 1.05 GiB smaller."""
    found = reconcile(SCENARIO, log(cuda_graphs=91 * GIB // 100, activations=14 * GIB // 100))
    gap = moved(found)
    assert (gap["cuda_graphs"], gap["activations"]) == (91 * GIB // 100, 14 * GIB // 100)
    assert gap["kv_pool"] == -(91 * GIB // 100) - 14 * GIB // 100
    # 1.05 of the pool's 55.92 GiB
    assert sentence(found) == (
        "Your engine holds 2% fewer tokens than predicted; CUDA graphs take 0.91 of the 1.05 GiB."
    )
    assert [cause.title for cause in explanations(found)][:2] == [
        "CUDA graphs, 0.91 GiB more",
        "Activations, 0.14 GiB more",
    ]


def test_a_line_that_takes_more_than_is_missing_is_not_a_part_of_it() -> None:
    found = reconcile(SCENARIO, log(activations=3 * GIB, non_torch=-predicted("non_torch")))
    assert sentence(found).endswith("; activations take 3.00 GiB more.")


@pytest.mark.parametrize(
    ("moves", "words"),
    [
        ({"activations": -GIB // 2, "weights": -GIB}, "; weights take 1.00 GiB less."),
        ({"request": -4 * GIB}, "; it may use 4.00 GiB less memory."),
        ({"request": 4 * GIB}, "; it may use 4.00 GiB more memory."),
    ],
)
def test_the_largest_part_in_the_pools_direction_is_named(moves: dict[str, int], words: str) -> None:
    found = sentence(reconcile(SCENARIO, log(**moves)))
    assert found.endswith(words)
    assert ("more tokens" in found) == (sum(moves.values()) > 0 or "weights" in moves)


def test_one_line_the_log_does_not_print_is_found_by_subtraction() -> None:
    whole = log(cuda_graphs=GIB)
    found = reconcile(SCENARIO, whole.model_copy(update={"cuda_graph_bytes": None}))
    line = found.line("cuda_graphs")
    assert line is not None
    assert (line.by_subtraction, line.difference_bytes) == (True, GIB)


def test_several_such_lines_are_found_together() -> None:
    whole = log(cuda_graphs=GIB, activations=2 * GIB)
    found = reconcile(SCENARIO, whole.model_copy(update={"cuda_graph_bytes": None, "activation_bytes": None}))
    line = found.line("unlogged")
    assert line is not None
    assert line.label == "Activations, CUDA graphs"
    assert (line.by_subtraction, line.difference_bytes) == (True, 3 * GIB)
    assert "overheads it does not print take 3.00 of the 3.00 GiB." in sentence(found)


def test_what_printed_lines_do_not_explain_is_left_over() -> None:
    whole = log()
    assert whole.kv_pool_bytes is not None
    found = reconcile(SCENARIO, whole.model_copy(update={"kv_pool_bytes": whole.kv_pool_bytes - 5 * GIB}))
    assert moved(found)["left_over"] == 5 * GIB
    assert "something the log does not name takes 5.00 of the 5.00 GiB." in sentence(found)


def test_graphs_outside_the_pool_are_no_line_of_it() -> None:
    outside = log().model_copy(update={"cuda_graphs_charged": False, "kv_pool_bytes": None})
    line = reconcile(SCENARIO, outside).line("cuda_graphs")
    assert line is not None
    assert line.logged_bytes == 0


sizes = st.integers(-2 * GIB, 2 * GIB)


@given(
    moves=st.fixed_dictionaries(dict.fromkeys(("request", "weights", "activations"), sizes)),
    hidden=st.sets(st.sampled_from(["weights_bytes", "non_torch_bytes", "activation_bytes", "cuda_graph_bytes"])),
)
def test_both_columns_add_up_whatever_the_log_prints(moves: dict[str, int], hidden: set[str]) -> None:
    found = reconcile(SCENARIO, log(**moves).model_copy(update=dict.fromkeys(hidden)))
    first, *taken, pool = found.lines
    assert (first.name, pool.name) == ("request", "kv_pool")
    assert first.predicted_bytes - sum(line.predicted_bytes for line in taken) == pool.predicted_bytes
    assert (first.logged_bytes or 0) - sum(line.logged_bytes or 0 for line in taken) == pool.logged_bytes


PUBLISHED = """\
INFO Initializing a V1 LLM engine (v0.19.0) with config: model='meta-llama/Llama-3.1-8B-Instruct', \
max_seq_len=16000, tensor_parallel_size=2, pipeline_parallel_size=1, enforce_eager=False, kv_cache_dtype=auto
INFO Model loading took 7.51 GiB memory and 10.1 seconds
INFO Available KV cache memory: 63.76 GiB
INFO GPU KV cache size: 1,044,624 tokens
INFO Maximum concurrency for 16,000 tokens per request: 65.29x
"""
"""github.com/jgchn/llm-d-planner @d3121e05, run at a share of 0.95."""


def test_a_published_log_is_compared_in_its_own_layout_and_counts() -> None:
    found = reconcile(Scenario(**{**dict(SCENARIO), "utilization_pct": 95}), parse(PUBLISHED))
    assert found.logged is not None
    assert (found.logged.tokens, found.logged.concurrency, found.max_model_len) == (1_044_624, 65.29, 16_000)
    assert found.scenario.tp == 2
    assert "The log is of TP 2, the scenario of TP 1: predicted here as the log ran." in [n.text for n in found.notes]
    assert not same_layout(SCENARIO, parse(PUBLISHED))


def test_a_calibrated_scenario_is_compared_with_its_estimates() -> None:
    """The link of a calibrated scenario shows the same lines as the log did, to the MiB it keeps."""
    told = log(cuda_graphs=GIB)
    kept = calibrate(SCENARIO, told).scenario
    found, again = reconcile(SCENARIO, told), reconcile(kept)
    assert (again.predicted, again.has_log) == (found.predicted, True)
    for line in found.lines:
        other = again.line(line.name)
        assert other is not None
        assert abs((line.logged_bytes or 0) - (other.logged_bytes or 0)) <= MIB


LLAMACPP = """\
llama_context: n_ctx = 8192
load_tensors: CUDA0 model buffer size = 15317.02 MiB
llama_kv_cache: CUDA0 KV buffer size = 1024.00 MiB
llama_context: CUDA0 compute buffer size = 560.00 MiB
"""


def test_llama_cpp_is_held_to_what_its_context_needs_not_to_what_is_free() -> None:
    """2 x 32 layers x 8 KV heads x 128 x 2 bytes x 8,192 tokens = 1,024 MiB."""
    scenario = Scenario(**{**dict(SCENARIO), "engine": "llamacpp", "engine_version": None, "max_model_len": 8192})
    found = reconcile(scenario, parse(LLAMACPP))
    assert moved(found)["kv_pool"] == 0
    assert found.predicted.pool_bytes == 1024 * MIB
    assert found.line("request") is None
    assert sentence(found) == "Your log matches the prediction within 0.1%."


def test_a_text_that_is_no_log_says_so() -> None:
    found = reconcile(SCENARIO, parse("hello"))
    assert sentence(found) == "No line of your log was understood."
    assert "No line of this text was understood" in found.notes[-1].text


def test_an_engine_that_did_not_start_says_why() -> None:
    text = (
        "ERROR To serve at least one request with the models's max seq len (131072), (16.00 GiB KV cache is needed, "
        "which is larger than the available KV cache memory (9.72 GiB). Based on the available memory, the estimated "
        "maximum model length is 79600."
    )
    assert sentence(reconcile(SCENARIO, parse(text))).startswith("Your engine did not start: ")


@pytest.mark.parametrize(("printed", "said"), [("-3.10", "−3.10 GiB"), ("0.00", "0.00 GiB")])
def test_a_log_without_room_for_kv_is_told_so(printed: str, said: str) -> None:
    found = reconcile(SCENARIO, parse(f"Available KV cache memory: {printed} GiB\n"))
    assert sentence(found) == f"Your log leaves no memory for KV cache: the pool it prints is {said}."
