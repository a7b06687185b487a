"""Models from the Hub and from GGUF files, up to the scenario and the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gguf import GGMLQuantizationType as Type

from kvcalc.__main__ import main
from kvcalc.catalogue import read_gguf_model, read_model
from kvcalc.errors import HubError
from kvcalc.evaluation import evaluate
from kvcalc.scenario import PASTED, Scenario
from kvcalc.share import from_link, to_link
from kvcalc.sources import from_gguf, from_hub
from kvcalc.units import MIB
from tests.hub_server import COMMIT, Hub, Repo, running_hub, safetensors
from tests.test_gguf import LLAMA, written

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 100,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}
# Embedding 100 x 64; per layer q and o 64 x 64, k and v 32 x 64, three 128 x 64, two norms; one norm at the end.
PARAMETERS = 100 * 64 + 2 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 128 * 64 + 2 * 64) + 64
# The whole of a Q8_0 file of two tensors: blocks of 32 values take 34 bytes.
TENSORS = {"token_embd.weight": ([128_256, 4096], Type.Q8_0), "output_norm.weight": ([4096], Type.F32)}
TENSOR_BYTES = 128_256 * 4096 // 32 * 34 + 4096 * 4


@pytest.fixture(scope="module")
def server() -> Iterator[Hub]:
    from huggingface_hub import close_session

    with running_hub() as hub:
        yield hub
        close_session()


@pytest.fixture
def hub(server: Hub, monkeypatch: pytest.MonkeyPatch) -> Hub:
    monkeypatch.setenv("HF_ENDPOINT", server.address)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    server.clear()
    whole = safetensors({"all": ("BF16", [PARAMETERS], 2 * PARAMETERS)})
    server.repos["org/model"] = Repo({"config.json": json.dumps(CONFIG).encode(), "model.safetensors": whole})
    return server


@pytest.fixture
def q8_0(tmp_path: Path) -> Path:
    return written(tmp_path, "llama", LLAMA | {"general.file_type": 7, "general.name": "Llama 3.1 8B"}, TENSORS)


# The Hub.


@pytest.mark.usefixtures("hub")
def test_a_hub_model_becomes_a_scenario_pinned_to_its_commit() -> None:
    loaded = from_hub("org/model")
    assert (loaded.label, loaded.revision, loaded.weights_bytes) == ("org/model", COMMIT, 2 * PARAMETERS)
    assert loaded.spec.parameters.total == PARAMETERS
    scenario = loaded.scenario(tp=1, pp=1)
    assert (scenario.model, scenario.model_label, scenario.weights_mib) == (PASTED, "org/model", None)
    assert from_link(to_link(scenario)).scenario == scenario
    assert evaluate(scenario).model.parameters.total == PARAMETERS


@pytest.mark.usefixtures("hub")
def test_the_census_is_compared_with_the_headers() -> None:
    said = " ".join(note.text for note in from_hub("org/model").notes)
    assert "they agree" in said
    assert "Its tensors take" in said


@pytest.mark.usefixtures("hub")
def test_the_command_line_reads_the_hub_and_names_the_commit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--hub", "org/model", "--set", "tp=1", "--set", "pp=1"]) == 0
    out, said = capsys.readouterr()
    assert "org/model" in out
    assert COMMIT in said


@pytest.mark.usefixtures("hub")
def test_what_the_hub_refuses_is_one_sentence_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(HubError):
        from_hub("org/none")
    assert main(["--hub", "org/none"]) == 2
    assert capsys.readouterr().err.startswith("kvcalc: model: expected")


# GGUF.


def test_a_gguf_file_brings_its_mix_and_its_bytes(q8_0: Path) -> None:
    loaded = from_gguf(q8_0)
    assert (loaded.weight_precision, loaded.weights_bytes, loaded.label) == ("q8_0", TENSOR_BYTES, "Llama 3.1 8B")
    scenario = loaded.scenario(engine="llamacpp", gpu="rtx-4090", tp=1, pp=1)
    assert scenario.weights_mib == -(-TENSOR_BYTES // MIB)
    assert evaluate(scenario).budget.weights_bytes == -(-TENSOR_BYTES // MIB) * MIB


def test_over_several_gpus_the_weights_are_computed(q8_0: Path) -> None:
    assert from_gguf(q8_0).scenario(tp=2).weights_mib is None
    assert from_gguf(q8_0).scenario(tp=1, pp=2).weights_mib is None


def test_another_precision_than_the_file_s_is_computed(q8_0: Path) -> None:
    assert from_gguf(q8_0).scenario(tp=1, pp=1, weight_precision="q4_k_m").weights_mib is None


def test_the_first_bytes_of_an_upload_do_as_well_as_the_file(q8_0: Path) -> None:
    assert from_gguf(q8_0.read_bytes()) == from_gguf(q8_0)


def test_read_model_takes_a_gguf_file_and_names_its_mix(q8_0: Path) -> None:
    spec = read_model(q8_0)
    assert spec.layer_groups == read_gguf_model(q8_0)[0].layer_groups
    assert [entry.value for entry in spec.assumptions if entry.field == "weight_precision"] == ["q8_0"]


def test_the_command_line_reads_a_gguf_file(q8_0: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--gguf", str(q8_0), "--set", "engine=llamacpp", "--set", "tp=1", "--set", "pp=1", "--json"]
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["scenario"]["weight_precision"] == "q8_0"


# Logs.


def test_the_command_line_takes_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "engine.log"
    log.write_bytes(b"\xff junk\nModel loading took 14.99 GiB memory\nAvailable KV cache memory: 40.00 GiB\n")
    model = ["--model", "meta-llama/Llama-3.1-8B-Instruct", "--set", "tp=1", "--set", "pp=1", "--json"]
    assert main([*model, "--log", str(log)]) == 0
    scenario = Scenario.from_json(json.dumps(json.loads(capsys.readouterr().out)["scenario"]))
    assert (scenario.weights_mib, scenario.kv_pool_mib) == (15_350, 40_960)
    assert main([*model, "--log", str(tmp_path / "none.log")]) == 2
    assert "--log: expected a readable file" in capsys.readouterr().err
