"""The engine view's wiring, without a browser: a log reaches the core, its figures the scenario, its text nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamlit.testing.v1 import AppTest

from kvcalc import Scenario, ScenarioError, evaluate, to_link
from kvcalc.enginelog import calibrate, parse
from kvcalc.reconcile import reconcile
from kvcalc.reconcile_words import sentence
from kvcalc.ui import inputs
from kvcalc.ui.sizes import gib_text, read_gib
from kvcalc.units import fmt_count, fmt_gib, fmt_times, fmt_tokens
from tests.test_app import address, button, figures, opened, plain, run, typed, verdict

SCENARIO = Scenario(
    model="meta-llama/Llama-3.3-70B-Instruct", tp=2, pp=1, weight_precision="fp8", gpu="h100-sxm-80gb", engine="vllm"
)
LOG = """\
INFO Model loading took 33.88 GiB and 41.2 seconds
INFO Available KV cache memory: 30.94 GiB
INFO GPU KV cache size: 202,768 tokens
INFO Maximum concurrency for 32,768 tokens per request: 6.19x
INFO Reserving 0.25 GiB for something new
"""


def engine_view(scenario: Scenario = SCENARIO) -> AppTest:
    return opened(f"view=engine&{to_link(scenario)}")


def with_log(app: AppTest, words: str = LOG) -> AppTest:
    app.text_area(key="engine_log_text").set_value(words)
    button(app, "Read the log").click()
    return run(app)


def tables(app: AppTest) -> str:
    return " ".join(element.proto.body for element in app.get("html"))


def labels(app: AppTest) -> list[str]:
    return [found.label for found in app.button]


def test_without_a_log_the_predicted_column_stands_alone() -> None:
    app, report = engine_view(), evaluate(SCENARIO)
    assert verdict(app) == sentence(reconcile(SCENARIO))
    assert figures(app)["KV pool"] == fmt_gib(report.budget.kv_pool_bytes, 2)
    assert figures(app)["Tokens in the pool"] == fmt_tokens(report.capacities.reported_tokens)
    assert "Difference" not in tables(app)
    assert "33.88 GiB" in app.text_area(key="engine_log_text").placeholder
    assert labels(app) == ["Read the log"]


def test_a_log_is_shown_beside_the_prediction() -> None:
    app, found = with_log(engine_view()), reconcile(SCENARIO, parse(LOG))
    assert verdict(app) == sentence(found)
    assert figures(app) == {
        "KV pool": "30.94 GiB",
        "Tokens in the pool": "202,768",
        "At 32,768 tokens": fmt_times(6.19),
        "At your 8,000 tokens": fmt_count(25),
    }
    shown = tables(app)
    assert "Difference" in shown
    assert "33.88" in shown
    assert "Line 5: INFO Reserving 0.25 GiB for something new" in shown
    assert "read 4 of 5 lines" in plain(" ".join(element.value for element in app.main.markdown))


def test_the_logs_figures_become_the_scenarios_and_travel_in_its_link() -> None:
    app = with_log(engine_view())
    button(app, "Use these figures").click()
    kept = address(run(app))
    assert kept == calibrate(SCENARIO, parse(LOG)).scenario
    assert (kept.weights_mib, kept.kv_pool_mib) == (34_693, calibrate(SCENARIO, parse(LOG)).scenario.kv_pool_mib)
    assert "Use these figures" not in labels(app)
    capacity = opened(to_link(kept))
    assert verdict(capacity) == evaluate(kept).sentence
    assert capacity.metric[0].value == "25"
    # Somebody else, with the link and no log, sees the same lines.
    again = engine_view(kept)
    assert figures(again)["KV pool"] == "30.94 GiB"
    assert "Measured" in tables(again)


def test_the_log_itself_is_in_no_link() -> None:
    app = with_log(engine_view(), LOG + "INFO Loading weights of secret-project from /home/somebody\n")
    button(app, "Use these figures").click()
    assert "secret-project" not in str(dict(run(app).query_params))


def test_back_to_the_estimates() -> None:
    kept = calibrate(SCENARIO, parse(LOG)).scenario
    app = engine_view(kept)
    button(app, "Back to the estimates").click()
    found = address(run(app))
    assert (found.weights_mib, found.kv_pool_mib) == (None, None)


def test_a_log_of_another_layout_offers_its_settings_only() -> None:
    app = with_log(engine_view(), LOG + "INFO tensor_parallel_size=4, max_model_len=16000\n")
    assert "Use these figures" not in labels(app)
    button(app, "Set all as the log ran").click()
    assert address(run(app)).tp == 4


def test_a_text_that_is_no_log_is_said_to_be_none() -> None:
    app = with_log(engine_view(), "hello")
    assert verdict(app) == "No line of your log was understood."
    assert labels(app) == ["Read the log"]


def test_a_layout_that_cannot_be_is_said_in_the_cores_words() -> None:
    # 64 query heads do not split over 3 GPUs.
    app = with_log(engine_view(), LOG + "INFO tensor_parallel_size=3\n")
    assert verdict(app) == "Not compared: the log's layout does not go with this model."
    assert "tp: expected" in plain(app.warning[0].value)


def test_an_empty_text_takes_the_log_away() -> None:
    app = with_log(with_log(engine_view()), "")
    assert verdict(app) == sentence(reconcile(SCENARIO))


def test_a_bad_input_is_said_here_too() -> None:
    app = typed(with_log(engine_view()), "prompt_tokens", "seven")
    assert "prompt_tokens: expected a whole number" in plain(app.warning[0].value)


def test_the_log_stays_while_another_view_is_shown() -> None:
    app = with_log(engine_view())
    del app.query_params["view"]
    assert verdict(run(app)) == evaluate(SCENARIO).sentence
    app.query_params["view"] = "engine"
    assert verdict(run(app)) == sentence(reconcile(SCENARIO, parse(LOG)))


def test_measured_figures_are_typed_in_gib_and_an_empty_field_shows_the_estimate() -> None:
    app = opened(to_link(SCENARIO))
    app.session_state["fold_engine"] = True
    weights = next(line.bytes for line in evaluate(SCENARIO).budget.lines if line.name == "weights")
    field = run(app).text_input(key=inputs.key("weights_mib"))
    assert field.placeholder == fmt_gib(weights, 2).removesuffix(" GiB")
    app = typed(app, "weights_mib", "33.88")
    # 33.88 x 1,024 = 34,693.12
    assert address(app).weights_mib == 34_693
    assert app.text_input(key=inputs.key("weights_mib")).value == "33.88"


@given(st.integers(0, 10**9))
def test_a_size_shown_in_gib_reads_back_as_the_same_mib(mib: int) -> None:
    assert read_gib("weights_mib", gib_text(mib)) == mib


@pytest.mark.parametrize(("words", "mib"), [("33.88", 34_693), (" 1,024 gib ", 2**20), ("512 MiB", 512), (".5", 512)])
def test_sizes_as_people_type_them(words: str, mib: int) -> None:
    assert read_gib("weights_mib", words) == mib


@pytest.mark.parametrize("words", ["", ".", "33,88", "33.88 GB", "-1", "1e5", "lots"])
def test_what_is_no_size_is_refused_by_name(words: str) -> None:
    with pytest.raises(ScenarioError, match=r"^weights_mib: expected a size in GiB such as 33.88, got "):
        read_gib("weights_mib", words)
