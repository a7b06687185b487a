"""The box for a model that is no preset, without a browser: the Hub, files, and what never leaves it."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from gguf import GGMLQuantizationType as Type
from streamlit.testing.v1 import AppTest

from kvcalc import Scenario, sources, to_link
from kvcalc.errors import HubError
from kvcalc.reading.hf_config import read_config
from kvcalc.sources import Loaded
from kvcalc.ui import inputs, model_hub
from kvcalc.units import MIB, ceil_div
from tests.test_app import TINY, address, button, figures, opened, plain, run, verdict
from tests.test_gguf import LLAMA, written
from tests.test_hub import TOKEN

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub:
    """``sources.from_hub`` that counts its calls: a model named 'org/private' needs the token."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str | None, str | None]] = []

    def __call__(self, model: str, *, revision: str | None = None, token: str | None = None) -> Loaded:
        self.calls.append((model, revision, token))
        if model == "org/private" and token != TOKEN:
            raise HubError("model", "a model you may read", "org/private, which is gated", hint="Give a token.")
        if model == "org/missing":
            raise HubError(
                "model", "a model of the Hub", "org/missing, which it does not have", hint="Check its spelling."
            )
        spec = read_config(TINY, label=model)
        return Loaded(spec=spec, facts=spec.sizing_facts, label=model, revision=COMMIT)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    fake = FakeHub()
    monkeypatch.setattr(sources, "from_hub", fake)
    model_hub._public.clear()
    return fake


def box(source: str) -> AppTest:
    """The page with the model box open at one of its sources."""
    app = opened()
    app.session_state["fold_model"] = True
    app.session_state["model_source"] = source
    return run(app)


def fetched(app: AppTest, model: str, *, revision: str = "", token: str = "") -> AppTest:
    app.text_input(key="hub_id").set_value(model)
    app.text_input(key="hub_revision").set_value(revision)
    app.text_input(key="hub_token").set_value(token)
    button(app, "Read from the Hub").click()
    return run(app)


def sidebar_words(app: AppTest) -> str:
    return plain(" ".join(element.value for element in app.sidebar.markdown))


def test_a_hub_model_becomes_the_model_pinned_to_its_commit(hub: FakeHub) -> None:
    app = fetched(box("hub"), " org/model ", revision="v2")
    found = address(app)
    assert (found.model, found.model_label) == ("pasted", f"org/model @ {COMMIT[:7]}")
    assert found.model_facts == read_config(TINY).sizing_facts
    assert hub.calls == [("org/model", "v2", None)]
    assert f"Read from the Hub at commit {COMMIT}." in sidebar_words(app)
    again = opened(to_link(found))
    assert (verdict(again), figures(again)) == (verdict(app), figures(app))


def test_a_hub_model_is_read_once_an_hour_for_all(hub: FakeHub) -> None:
    for _ in range(2):
        fetched(box("hub"), "org/model")
    assert len(hub.calls) == 1
    fetched(box("hub"), "org/model", revision="v2")
    assert len(hub.calls) == 2


def test_what_a_token_opened_is_kept_for_nobody(hub: FakeHub) -> None:
    assert address(fetched(box("hub"), "org/private", token=TOKEN)).model == "pasted"
    refused = fetched(box("hub"), "org/private")
    assert address(refused).model == Scenario.default().model
    assert hub.calls == [("org/private", None, TOKEN), ("org/private", None, None)]


def test_a_refusal_is_the_hubs_sentence_and_the_model_stays(hub: FakeHub) -> None:
    before = opened()
    app = fetched(box("hub"), "org/missing")
    assert (verdict(app), figures(app)) == (verdict(before), figures(before))
    assert plain(app.sidebar.warning[0].value) == (
        "model: expected a model of the Hub, got 'org/missing, which it does not have'. Check its spelling. "
        "Showing Llama 3.3 70B Instruct until a model is read."
    )
    fetched(app, "org/missing")
    assert len(hub.calls) == 2, "a refusal is not kept"


def test_a_refusal_goes_with_the_model_it_was_beside(hub: FakeHub) -> None:
    app = fetched(box("hub"), "org/missing")
    app.selectbox(key=inputs.key("model")).set_value("google/gemma-3-27b-it")
    assert not run(app).sidebar.warning


def test_an_empty_id_asks_nobody(hub: FakeHub) -> None:
    assert "got nothing" in plain(fetched(box("hub"), "").sidebar.warning[0].value)
    assert not hub.calls


@pytest.mark.parametrize("model", ["org/model", "org/private", "org/missing"])
def test_a_token_is_nowhere_but_in_its_field(hub: FakeHub, model: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    app = fetched(box("hub"), model, token=TOKEN)
    kept = {name: repr(value) for name, value in app.session_state._state.filtered_state.items()}
    assert [name for name, value in kept.items() if TOKEN in value] == ["hub_token"]
    assert TOKEN not in repr(app.query_params)
    assert TOKEN not in caplog.text
    shown = [element.value for element in (*app.markdown, *app.warning, *app.sidebar.markdown)]
    assert TOKEN not in repr(shown)


def test_measured_figures_of_the_old_model_go_with_it(hub: FakeHub) -> None:
    link = to_link(Scenario(**{**dict(Scenario.default()), "weights_mib": 30_000, "kv_pool_mib": 20_000}))
    app = opened(link)
    app.session_state["fold_model"], app.session_state["model_source"] = True, "hub"
    found = address(fetched(run(app), "org/model"))
    assert (found.weights_mib, found.kv_pool_mib) == (None, None)


def uploaded(app: AppTest, name: str, content: bytes) -> AppTest:
    app.get("file_uploader")[0].upload(name, content)
    return run(app)


def test_a_gguf_header_becomes_the_model_with_its_exact_weights(tmp_path: Path) -> None:
    tensors = {"token_embd.weight": ([128_256, 4096], Type.Q8_0), "output_norm.weight": ([4096], Type.F32)}
    file = written(tmp_path, "llama", LLAMA | {"general.name": "Mine", "general.file_type": 7}, tensors)
    app = opened(to_link(Scenario(model="meta-llama/Llama-3.1-8B-Instruct", tp=1, pp=1)))
    app.session_state["fold_model"], app.session_state["model_source"] = True, "file"
    found = address(uploaded(run(app), "mine.gguf", file.read_bytes()))
    assert (found.model, found.model_label, found.weight_precision) == ("pasted", "Mine", "q8_0")
    # Q8_0 keeps 32 values in 34 bytes; the norm is fp32.
    assert found.weights_mib == ceil_div(128_256 * 4096 // 32 * 34 + 4096 * 4, MIB)


def test_a_config_file_becomes_the_model() -> None:
    app = uploaded(box("file"), "config.json", json.dumps(TINY).encode())
    assert address(app).model_facts == read_config(TINY).sizing_facts


@pytest.mark.parametrize("content", [b"", b"GGUF", b"\xff\xfe\x00", b"[1]", b"PK\x03\x04"])
def test_a_file_that_is_no_model_is_refused_in_words(content: bytes) -> None:
    app = uploaded(box("file"), "config.json", content)
    assert len(app.sidebar.warning) == 1
    assert address(app).model == Scenario.default().model


def test_the_box_draws_only_what_is_chosen() -> None:
    assert not opened().get("file_uploader")
    assert not box("hub").get("file_uploader")
    assert [element.key for element in box("config").text_area] == ["paste_text"]


TEXTS: dict[str, Any] = {
    "a README's code block": "# Model\n```json\n" + json.dumps(TINY) + "\n```\n",
    "AutoConfig's repr": "LlamaConfig " + json.dumps(TINY, indent=2),
}


@pytest.mark.parametrize("words", TEXTS.values(), ids=TEXTS)
def test_whatever_holds_a_config_is_read(words: str) -> None:
    app = box("config")
    app.text_area(key="paste_text").set_value(words)
    button(app, "Use this config").click()
    assert address(run(app)).model_facts == read_config(TINY).sizing_facts
