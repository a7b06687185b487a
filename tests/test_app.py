"""The page's wiring, without a browser: inputs reach the core, its answer reaches the page, nothing typed is lost."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import parse_qsl, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamlit.testing.v1 import AppTest

from kvcalc import Scenario, ScenarioError, evaluate, from_link, read_model, to_link
from kvcalc.levers import best_moves
from kvcalc.scenario import CustomGpu
from kvcalc.ui import inputs, state, text
from kvcalc.units import fmt_count, fmt_gib, fmt_ms_band, fmt_seconds, fmt_tokens
from tests.support import ROOT

TINY = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 256,
    "intermediate_size": 512,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}


def opened(link: str = "") -> AppTest:
    """The page after its first run, from a link's query string."""
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30)
    for name, value in parse_qsl(link, keep_blank_values=True):
        app.query_params[name] = value
    return run(app)


def run(app: AppTest) -> AppTest:
    app.run()
    assert not app.exception
    return app


def unfolded(link: str = "") -> AppTest:
    """The page with every folded box open."""
    app = opened(link)
    for name in ("attention", "split", "engine", "workload"):
        app.session_state[f"fold_{name}"] = True
    return run(app)


def typed(app: AppTest, field: str, words: str) -> AppTest:
    app.text_input(key=inputs.key(field)).set_value(words)
    return run(app)


def verdict(app: AppTest) -> str:
    return plain(app.header[0].value)


def plain(markdown: str) -> str:
    """Markdown without its escapes and colour."""
    shown = markdown.replace("\\", "").replace(":orange[", "", 1)
    return shown.replace(":]", ":", 1) if shown != markdown.replace("\\", "") else shown


def figures(app: AppTest) -> dict[str, str]:
    return {metric.label: metric.value for metric in app.metric}


def address(app: AppTest) -> Scenario:
    """The scenario in the address bar."""
    pairs = {name: value[0] if isinstance(value, list) else value for name, value in app.query_params.items()}
    found = from_link(urlencode(pairs))
    assert found.notes == ()
    return found.scenario


def test_the_first_visit_answers_the_default_scenario() -> None:
    app, report = opened(), evaluate(Scenario.default())
    assert report.tpot is not None
    assert verdict(app) == report.sentence
    assert figures(app) == {
        "Requests at once": fmt_count(report.total_concurrency),
        "KV per request": fmt_gib(report.kv_bytes_per_request),
        "Time per token": fmt_ms_band(report.tpot.low_s, report.tpot.high_s),
        "Longest context": fmt_tokens(report.longest_context_tokens),
    }
    assert not app.warning
    assert not app.info


def test_the_arithmetic_of_the_default_shows_320_kib_per_token() -> None:
    # 2 x 80 layers x 8 KV heads x 128 x 2 bytes
    shown = " ".join(element.proto.body for element in opened().get("html"))
    assert "2 × 80 × 8 × 128 × 2" in shown
    assert "327,680 B = 320 KiB" in shown


def test_a_changed_input_changes_the_answer_and_the_address() -> None:
    app = typed(opened(), "prompt_tokens", "15,000")
    wanted = Scenario(**{**dict(Scenario.default()), "prompt_tokens": 15_000})
    assert verdict(app) == evaluate(wanted).sentence
    assert address(app) == wanted


@pytest.mark.parametrize(
    ("typed_in", "shown"), [("15000", "15,000"), (" 15 000 ", "15,000"), ("15_000", "15,000"), ("lots", "lots")]
)
def test_a_number_is_tidied_and_anything_else_is_left_as_typed(typed_in: str, shown: str) -> None:
    app = typed(opened(), "prompt_tokens", typed_in)
    assert app.text_input(key=inputs.key("prompt_tokens")).value == shown


def test_a_link_opens_as_the_scenario_it_names() -> None:
    scenario = Scenario(
        model="google/gemma-3-27b-it",
        gpu="custom",
        custom_gpu=CustomGpu(memory_mib=100_000, bandwidth_gb_per_s=2_000),
        kv_precision="fp8",
        utilization_pct=85,
        max_num_seqs=17,
        prefix_caching=False,
        hybrid_manager=False,
        target_tpot_ms=None,
        target_requests=9,
        attention="mqa",
    )
    app = opened(to_link(scenario))
    assert verdict(app) == evaluate(scenario).sentence
    assert address(app) == scenario
    assert app.text_input(key=inputs.key("memory_mib")).value == "100,000"
    assert app.text_input(key=inputs.key("target_tpot_ms")).value == ""
    assert not app.info


def test_a_bad_field_of_a_link_is_named_and_the_rest_is_kept() -> None:
    link = to_link(Scenario.default()).replace("prompt=7000", "prompt=many").replace("output=1000", "output=500")
    app = opened(link)
    assert "prompt: expected a whole number, got 'many'" in plain(app.info[0].value)
    assert app.text_input(key=inputs.key("output_tokens")).value == "500"


def test_an_unknown_view_is_named() -> None:
    app = opened("view=fleet")
    assert "view: expected capacity" in plain(app.info[0].value)
    assert figures(app)


def test_a_bad_input_is_said_once_and_takes_only_its_figures_away() -> None:
    app = typed(typed(opened(), "output_tokens", "2,000"), "prompt_tokens", "seven")
    report = evaluate(Scenario(**{**dict(Scenario.default()), "output_tokens": 2_000}))
    assert [plain(box.value) for box in app.warning] == [
        "prompt_tokens: expected a whole number, got 'seven'. Type digits only."
    ]
    assert figures(app) == {
        "Requests at once": "–",
        "KV per request": "–",
        "Time per token": "–",
        "Longest context": fmt_tokens(report.longest_context_tokens),
    }
    assert app.text_input(key=inputs.key("prompt_tokens")).value == "seven"
    assert app.text_input(key=inputs.key("output_tokens")).value == "2,000"
    assert address(app).output_tokens == 2_000, "the address keeps the last scenario that was one"
    assert verdict(typed(app, "prompt_tokens", "7,000")) == report.sentence


def test_what_the_core_refuses_is_shown_in_its_own_words() -> None:
    app = typed(unfolded(), "pp", "81")
    assert "pp: expected at most one stage per layer (80), got 81." in plain(app.warning[0].value)
    assert set(figures(app).values()) == {"–"}


def test_nothing_is_clamped() -> None:
    app = typed(unfolded(), "utilization_pct", "120")
    assert "utilization_pct: expected a whole number from 1 to 100, got 120." in plain(app.warning[0].value)
    assert app.text_input(key=inputs.key("utilization_pct")).value == "120"


def test_an_empty_field_shows_what_the_engine_would_use() -> None:
    app = unfolded()
    budget = evaluate(Scenario.default()).budget
    assert app.text_input(key=inputs.key("max_num_seqs")).placeholder == fmt_count(budget.max_num_seqs)


def pasted(app: AppTest, words: str, name: str = "") -> AppTest:
    app.session_state["fold_model"] = True
    run(app)
    app.text_area(key="paste_text").set_value(words)
    app.text_input(key="paste_name").set_value(name)
    button(app, "Use this config").click()
    return run(app)


def button(app: AppTest, label: str) -> Any:
    return next(found for found in app.button if found.label == label)


def test_a_pasted_config_becomes_the_model_and_travels_in_the_link() -> None:
    app = pasted(opened(), json.dumps({**TINY, "unrelated": "x" * 5_000}), "Tiny")
    found = address(app)
    assert (found.model, found.model_label) == ("pasted", "Tiny")
    assert found.model_facts == read_model(TINY).sizing_facts
    assert len(to_link(found)) < 1_500
    again = opened(to_link(found))
    assert (verdict(again), figures(again)) == (verdict(app), figures(app))


RUBBISH = ("", "{", "<html><body>404</body></html>", "[1, 2]", '{"model_type": "t5"}', "\x00")


@pytest.mark.parametrize("rubbish", RUBBISH)
def test_pasted_rubbish_is_refused_near_its_box_and_the_model_stays(rubbish: str) -> None:
    before = opened()
    shown = (verdict(before), figures(before))
    app = pasted(before, rubbish)
    assert (verdict(app), figures(app)) == shown
    assert len(app.sidebar.warning) == 1
    assert "Showing Llama 3.3 70B Instruct until a model is read." in plain(app.sidebar.warning[0].value)


def test_a_refusal_goes_once_a_config_is_read() -> None:
    assert not pasted(pasted(opened(), "{"), json.dumps(TINY)).warning


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "$x$ :red[a] **b** `c`", "[a](javascript:alert(1))"])
def test_a_name_is_shown_as_text(name: str) -> None:
    app = pasted(opened(), json.dumps(TINY), name)
    line = next(element.value for element in app.main.markdown if element.value.startswith(":small[:gray["))
    assert text.markdown(name) in line


@given(st.text())
def test_escaped_markdown_starts_no_markup(words: str) -> None:
    shown = text.markdown(words)
    assert re.search(r"(?<!\\)(?:\\\\)*[<>$`*_\[\]():~|#]", shown) is None
    assert "\n" not in shown


def test_a_field_hidden_by_a_choice_keeps_what_was_typed() -> None:
    app = opened()
    app.selectbox(key=inputs.key("gpu")).set_value("custom")
    app = typed(run(app), "memory_mib", "50000")
    app.selectbox(key=inputs.key("gpu")).set_value("h100-sxm-80gb")
    app = run(app)
    app.selectbox(key=inputs.key("gpu")).set_value("custom")
    assert run(app).text_input(key=inputs.key("memory_mib")).value == "50,000"


def test_a_shared_prefix_and_a_busy_server_are_put_into_words() -> None:
    app = typed(unfolded(), "cached_prompt_tokens", "4,000")
    app.checkbox(key=inputs.key("busy")).check()
    run(app)
    report = evaluate(Scenario(**{**dict(Scenario.default()), "cached_prompt_tokens": 4_000, "busy": True}))
    assert report.prefix is not None
    assert report.first_token is not None
    shown = " ".join(element.proto.body for element in app.get("html"))
    assert report.prefix.sentence in shown
    assert f"on a busy server typically {fmt_seconds(report.first_token.typical_s)}" in shown
    assert f"{fmt_seconds(report.first_token.queue_s)} in the queue" in shown


def test_a_folded_input_keeps_what_was_typed_and_counts() -> None:
    app = typed(unfolded(), "max_num_seqs", "9")
    app.session_state["fold_engine"] = False
    assert run(app).metric[0].value == "9"
    assert typed(app, "prompt_tokens", "7,001").metric[0].value == "9"
    app.session_state["fold_engine"] = True
    assert run(app).text_input(key=inputs.key("max_num_seqs")).value == "9"


def test_going_back_reaches_folded_inputs_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_SETTLING_S", 0)
    app = unfolded()
    before = dict(app.query_params)
    typed(app, "max_num_seqs", "9")
    app.session_state["fold_engine"] = False
    assert address(run(app)).max_num_seqs == 9
    app.query_params = before
    assert address(run(app)).max_num_seqs is None
    app.session_state["fold_engine"] = True
    assert run(app).text_input(key=inputs.key("max_num_seqs")).value == ""


def test_each_move_is_a_link_to_its_scenario() -> None:
    moves = best_moves(evaluate(Scenario.default()))
    shown = " ".join(element.proto.body for element in opened().get("html"))
    for move in moves:
        assert f'href="?{text.html(to_link(move.scenario))}"' in shown


whole = st.integers(1, 10**9)
maybe = st.none() | whole


@given(
    numbers=st.fixed_dictionaries({"replicas": st.integers(1, 2**16), "prompt_tokens": whole, "output_tokens": whole}),
    optional=st.fixed_dictionaries({"max_num_seqs": maybe, "block_size": maybe, "target_tpot_ms": maybe}),
    flags=st.fixed_dictionaries({"prefix_caching": st.booleans(), "images": st.booleans()}),
    hybrid=st.none() | st.booleans(),
    version=st.none() | st.sampled_from(["0.20", "0.6.3"]),
)
def test_what_the_widgets_show_reads_back_as_the_same_scenario(
    numbers: dict[str, int], optional: dict[str, Any], flags: dict[str, bool], hybrid: bool | None, version: str | None
) -> None:
    fields = {
        **dict(Scenario.default()),
        **numbers,
        **optional,
        **flags,
        "hybrid_manager": hybrid,
        "engine_version": version,
    }
    scenario = Scenario(**fields)
    assert inputs.to_scenario(inputs.from_scenario(scenario)) == scenario


@pytest.mark.parametrize("words", ["", "-1", "1.5", "1e5", "٣", "12 apples", "9" * 16])
def test_what_is_no_whole_number_is_refused_by_name(words: str) -> None:
    with pytest.raises(ScenarioError, match=r"^prompt_tokens: expected a whole number, got "):
        inputs.read_number("prompt_tokens", words)


def test_only_an_optional_number_may_be_empty() -> None:
    assert inputs.read_number("block_size", " ", optional=True) is None
