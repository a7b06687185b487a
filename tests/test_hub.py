"""The Hub reader, through the real huggingface_hub session, against a stand-in server on this machine."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest

from kvcalc.errors import HubError
from kvcalc.reading.checkpoint import CheckpointWeights
from kvcalc.reading.hf_config import read_config
from kvcalc.reading.hub import HubModel, census_note, fetch
from kvcalc.reading.hub_address import read_address
from tests.hub_server import COMMIT, Answer, Hub, Repo, running_hub, safetensors
from tests.support import ROOT

TOKEN = "hf_SecretSecretSecretSecretSecret1234"
CONFIG = {
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
}
# Embedding 100 x 64; per layer q and o 64 x 64, k and v 32 x 64, three 128 x 64, two norms; one norm at the end.
PARAMETERS = 100 * 64 + 2 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 128 * 64 + 2 * 64) + 64


@pytest.fixture(scope="module")
def server() -> Iterator[Hub]:
    from huggingface_hub import close_session

    with running_hub() as hub:
        yield hub
        close_session()


@pytest.fixture
def hub(server: Hub, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """An empty stand-in that HF_ENDPOINT points to, without a token in the environment."""
    monkeypatch.setenv("HF_ENDPOINT", server.address)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    server.clear()
    server.repos["org/model"] = Repo({"config.json": json.dumps(CONFIG).encode()})
    return server


class Pauses(list[float]):
    """Waits that are remembered instead of waited."""

    def __call__(self, seconds: float) -> None:
        self.append(seconds)


def refused(model: str = "org/model", **options: object) -> HubError:
    pauses = Pauses()
    with pytest.raises(HubError) as caught:
        fetch(model, pause=pauses, **options)  # type: ignore[arg-type]
    return caught.value


# What is read


def test_a_model_comes_with_its_config_and_the_commit_it_was_read_at(hub: Hub) -> None:
    hub.repos["org/model"].info = {"cardData": {"license": "apache-2.0"}}
    model = fetch("org/model")
    assert (model.model_id, model.revision, model.config_file) == ("org/model", COMMIT, "config.json")
    assert model.config == CONFIG
    assert (model.license, model.gated, model.notes, model.weights) == ("apache-2.0", False, (), None)
    assert [request.path for request in hub.requests] == [
        "/api/models/org/model?blobs=true",
        f"/org/model/resolve/{COMMIT}/config.json",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "org/model",
        "  org/model ",
        "https://huggingface.co/org/model",
        "http://huggingface.co/org/model/",
        "https://www.huggingface.co/org/model?library=transformers#usage",
        "https://huggingface.co/org/model/discussions/12",
        "hf.co/org/model",
        "https://huggingface.co/models/org/model",
        "https://huggingface.co/api/models/org/model",
        "{endpoint}/org/model",
    ],
)
def test_an_id_and_every_address_of_a_model_name_it(hub: Hub, text: str) -> None:
    assert read_address(text.format(endpoint=hub.address), endpoint=hub.address) == ("org/model", None)


@pytest.mark.parametrize(
    ("text", "revision"),
    [
        ("https://huggingface.co/org/model/tree/v1.0", "v1.0"),
        ("https://huggingface.co/org/model/blob/main/config.json", "main"),
        ("https://huggingface.co/org/model/resolve/abc123/config.json?download=true", "abc123"),
        ("https://huggingface.co/org/model/tree/refs%2Fpr%2F5", "refs/pr/5"),
        ("hf.co/gpt2/tree/main", "main"),
    ],
)
def test_an_address_may_name_a_revision(text: str, revision: str) -> None:
    assert read_address(text, endpoint="https://huggingface.co").revision == revision


def test_a_model_without_an_organisation_has_one_name() -> None:
    assert read_address("gpt2", endpoint="https://huggingface.co").model_id == "gpt2"


def test_a_revision_is_asked_for_and_pinned(hub: Hub) -> None:
    hub.repos["org/model"].revisions["refs/pr/5"] = "a" * 40
    assert fetch("org/model", revision="refs/pr/5").revision == "a" * 40
    assert hub.requests[0].path == "/api/models/org/model/revision/refs%2Fpr%2F5?blobs=true"


def test_modelopts_side_file_joins_the_config(hub: Hub) -> None:
    hub.repos["org/model"].files["hf_quant_config.json"] = b'{"quantization": {"quant_algo": "NVFP4"}}'
    assert fetch("org/model").config["hf_quant_config"] == {"quantization": {"quant_algo": "NVFP4"}}


def test_params_json_serves_where_there_is_no_config(hub: Hub) -> None:
    hub.repos["org/model"] = Repo({"params.json": b'{"dim": 64, "n_layers": 2}'})
    assert fetch("org/model").config_file == "params.json"


def test_a_config_with_infinity_in_it_is_read(hub: Hub) -> None:
    hub.repos["org/model"].files["config.json"] = b'{"time_step_limit": [0.0, Infinity], "dim": 1}'
    assert fetch("org/model").config["dim"] == 1


def test_a_renamed_model_is_found_and_its_new_name_told(hub: Hub) -> None:
    hub.repos["old/name"] = Repo(renamed_to="org/model")
    model = fetch("old/name")
    assert model.model_id == "org/model"
    assert [note.text for note in model.notes] == ["old/name is now called org/model."]


def test_a_redirect_within_the_hub_is_followed(hub: Hub) -> None:
    hub.script("/resolve/", Answer(307, {"location": f"/org/model/resolve/{COMMIT}/config.json?cached=1"}))
    assert fetch("org/model").config == CONFIG


def test_gguf_files_are_listed_with_their_size(hub: Hub) -> None:
    hub.repos["org/model"].sizes = {"model-Q4_K_M.gguf": 4_912_898_048}
    assert [(file.name, file.size_bytes) for file in fetch("org/model").gguf_files] == [
        ("model-Q4_K_M.gguf", 4_912_898_048)
    ]


# What the checkpoint holds

SHARDS = {
    "model-00001-of-00002.safetensors": safetensors({"a": ("BF16", [100, 64], 12_800), "s": ("F32", [8], 32)}),
    # Longer than what is asked for first.
    "model-00002-of-00002.safetensors": safetensors({"b": ("BF16", [64], 128)}, padding=150_000),
}


def test_weights_are_summed_over_the_headers_of_all_files(hub: Hub) -> None:
    hub.repos["org/model"].files |= SHARDS
    weights = fetch("org/model").weights
    assert weights == CheckpointWeights(
        values=100 * 64 + 8 + 64,
        weights_bytes=12_800 + 32 + 128,
        values_by_dtype={"BF16": 6_464, "F32": 8},
        bytes_by_dtype={"BF16": 12_928, "F32": 32},
        source="headers",
    )
    assert [request.headers["range"] for request in hub.requests if "range" in request.headers] == [
        "bytes=0-99999",
        "bytes=0-99999",
        f"bytes=8-{7 + int.from_bytes(SHARDS['model-00002-of-00002.safetensors'][:8], 'little')}",
    ]


def test_headers_of_all_files_come_in_one_answer_where_the_hub_offers_it(hub: Hub) -> None:
    hub.repos["org/model"].files |= SHARDS | {"model.safetensors.index.json": b"{}"}
    hub.serves_headers_together = True
    weights = fetch("org/model").weights
    assert weights is not None
    assert (weights.weights_bytes, weights.source) == (12_960, "headers")
    assert not any("range" in request.headers for request in hub.requests)


def test_a_second_copy_under_another_name_is_not_counted(hub: Hub) -> None:
    hub.repos["org/model"].files |= SHARDS | {"consolidated.safetensors": SHARDS["model-00001-of-00002.safetensors"]}
    weights = fetch("org/model").weights
    assert weights is not None
    assert weights.weights_bytes == 12_960


def test_weight_files_elsewhere_are_not_followed_and_the_hubs_own_count_is_used(hub: Hub) -> None:
    hub.repos["org/model"].sizes = {"model.safetensors": 16_060_000_000}
    hub.repos["org/model"].info = {"safetensors": {"parameters": {"BF16": 8_030_261_248}, "total": 8_030_261_248}}
    with running_hub() as elsewhere:
        hub.script("model.safetensors", Answer(302, {"location": f"{elsewhere.address}/file?signed=1"}))
        model = fetch("org/model", token=TOKEN)
        assert elsewhere.requests == []
    assert model.weights is not None
    assert (model.weights.values, model.weights.weights_bytes) == (8_030_261_248, 16_060_000_000)
    assert model.weights.source == "summary"
    assert [note.text for note in model.notes] == [
        "The headers of the weight files were not read (expected the weight files' headers from the Hub, "
        "got a redirect to 127.0.0.1); the Hub's own count is used."
    ]


@pytest.mark.parametrize(
    "header",
    [
        b"",
        (2**60).to_bytes(8, "little") + b"{}",
        (9).to_bytes(8, "little") + b"[1, 2, 3]",
        safetensors({"a": ("BF16", [-1], 2)}),
        safetensors({"a": ("BF16", [2**70], 2)}),
        safetensors({"a": ("BF16", [1] * 100, 2)}),
    ],
)
def test_a_damaged_weight_file_costs_the_weights_not_the_model(hub: Hub, header: bytes) -> None:
    hub.repos["org/model"].files["model.safetensors"] = header
    model = fetch("org/model")
    assert model.config == CONFIG
    assert model.weights is None
    assert "the size is computed from the architecture" in model.notes[0].text


# What is refused, in the words the user sees


def test_a_gated_model_without_a_token(hub: Hub) -> None:
    hub.repos["org/model"].gated = True
    assert str(refused()) == (
        "model: expected a model you may read, got 'org/model, which is gated'. "
        "Accept its terms on the Hub and give a token, or paste the model's config.json."
    )


def test_a_gated_model_with_a_token_is_read(hub: Hub) -> None:
    hub.repos["org/model"].gated = True
    assert fetch("org/model", token=TOKEN).gated


def test_a_gated_model_that_the_tokens_account_may_not_read(hub: Hub) -> None:
    hub.script("/resolve/", Answer(403, {"x-error-code": "GatedRepo"}))
    assert "Accept its terms on the Hub with this token's account, or" in str(refused(token=TOKEN))


def test_a_model_that_does_not_exist_looks_like_a_private_one(hub: Hub) -> None:
    assert str(refused("org/nothing")) == (
        "model: expected a model you may read, got 'org/nothing'. "
        "Check its spelling, give a token if it is private, or paste the model's config.json."
    )


def test_a_model_that_is_not_found(hub: Hub) -> None:
    hub.script("/api/", Answer(404, {"x-error-code": "RepoNotFound"}))
    assert str(refused()) == (
        "model: expected a model on the Hub, got 'org/model'. Check its spelling, or paste the model's config.json."
    )


def test_a_token_that_the_hub_refuses(hub: Hub) -> None:
    hub.script("/api/", Answer(401, {"x-error-message": "Invalid credentials in Authorization header"}))
    assert str(refused(token=TOKEN)) == (
        "token: expected a token that the Hub accepts, got 'one it refuses (not shown)'. "
        "Copy it again, or leave it empty."
    )


def test_a_disabled_model(hub: Hub) -> None:
    hub.script("/api/", Answer(403, {"x-error-message": "Access to this resource is disabled."}))
    assert "got 'org/model, which is disabled'" in str(refused())


def test_a_revision_that_does_not_exist(hub: Hub) -> None:
    assert str(refused(revision="v9")) == (
        "revision: expected a branch, tag or commit of org/model, got 'v9'. "
        "Correct it, or leave it empty for the default branch."
    )


def test_a_repository_without_a_config(hub: Hub) -> None:
    hub.repos["org/model"] = Repo({"README.md": b"hello"})
    assert str(refused()) == ("model: expected a config.json, got 'none in org/model'. Paste the model's config.json.")


def test_a_repository_of_gguf_files_names_them_and_the_base_model(hub: Hub) -> None:
    files = {f"m-Q{bits}_0.gguf": b"" for bits in (4, 5, 6, 8)}
    hub.repos["org/model"] = Repo(files, {"cardData": {"base_model": ["meta-llama/Llama-3.1-8B"]}})
    assert str(refused()) == (
        "model: expected a config.json, got 'none in org/model'. It holds GGUF files alone (m-Q4_0.gguf, m-Q5_0.gguf, "
        "m-Q6_0.gguf and 1 more). Fetch its base model, meta-llama/Llama-3.1-8B, or upload the first megabytes of "
        "one of them."
    )


def test_an_adapter_names_its_base_model(hub: Hub) -> None:
    hub.repos["org/model"] = Repo({"adapter_config.json": b"{}"}, {"cardData": {"base_model": "org/base"}})
    assert str(refused()) == (
        "model: expected a whole model, got 'org/model, an adapter'. Fetch its base model, org/base, instead."
    )


def test_an_image_pipeline(hub: Hub) -> None:
    hub.repos["org/model"] = Repo({"model_index.json": b"{}"})
    assert "got 'org/model, an image pipeline'" in str(refused())


def test_a_config_that_lies_elsewhere_is_not_followed(hub: Hub) -> None:
    with running_hub() as elsewhere:
        hub.script("/resolve/", Answer(302, {"location": elsewhere.address + "/config.json"}))
        error = refused(token=TOKEN)
        assert elsewhere.requests == []
    assert str(error) == (
        "model: expected config.json from the Hub, got 'a redirect to 127.0.0.1'. "
        "Only the Hub itself is asked: paste the model's config.json."
    )


def test_redirects_that_never_end(hub: Hub) -> None:
    hub.script("/api/", *[Answer(307, {"location": "/api/models/org/model"})] * 20)
    assert "got 'more than 5 redirects'" in str(refused())
    assert len(hub.requests) == 6


def test_too_many_requests_with_a_long_wait_is_said_at_once(hub: Hub) -> None:
    hub.script("/api/", Answer(429, {"retry-after": "300"}))
    assert str(refused()) == (
        "model: expected an answer, got 'too many requests'. "
        "Try again in 5.0 min, give a token, which raises the limit, or paste the model's config.json."
    )
    assert len(hub.requests) == 1


def test_a_short_wait_that_the_hub_asks_for_is_kept(hub: Hub) -> None:
    hub.script("/api/", Answer(429, {"retry-after": "2"}), Answer(429, {"ratelimit": '"api";r=0;t=3'}))
    pauses = Pauses()
    assert fetch("org/model", pause=pauses).config == CONFIG
    assert pauses == [2, 3]


def test_a_passing_error_is_tried_again(hub: Hub) -> None:
    hub.script("/api/", Answer(503), Answer(502))
    pauses = Pauses()
    assert fetch("org/model", pause=pauses).config == CONFIG
    assert pauses == [0.5, 1.0]


def test_an_error_that_stays_is_told_after_three_attempts(hub: Hub) -> None:
    hub.script("/api/", *[Answer(500)] * 9)
    assert str(refused()) == (
        'model: expected an answer, got "an error of the Hub\'s own (500)". '
        "Try again later, or paste the model's config.json."
    )
    assert len(hub.requests) == 3


def test_a_server_that_stays_silent(hub: Hub) -> None:
    hub.script("/api/", *[Answer(delay_s=5)] * 3)
    assert str(refused(timeout_s=0.05)) == (
        "model: expected an answer from 127.0.0.1 in time, got nothing. "
        "Try again later, or paste the model's config.json."
    )


def test_a_server_that_is_not_there() -> None:
    with running_hub() as gone:
        address = gone.address
    assert str(refused(endpoint=address)) == (
        "model: expected a connection to 127.0.0.1, got nothing. Check the network, or paste the model's config.json."
    )


def test_offline_mode(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert str(refused()) == (
        "model: expected a connection to 127.0.0.1, got 'offline mode'. "
        "Unset HF_HUB_OFFLINE, or paste the model's config.json."
    )
    assert hub.requests == []


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Answer(headers={"x": "1"}, body=b"{" + b" " * (4 * 2**20)), id="announced"),
        pytest.param(Answer(pieces=[b"{" + b" " * 2**20] * 5), id="without a length"),
    ],
)
def test_a_config_that_is_too_large(hub: Hub, answer: Answer) -> None:
    hub.script("/resolve/", answer)
    assert str(refused()) == (
        "model: expected config.json of at most 4 MiB, got 'a larger one'. Paste the model's config.json."
    )


def test_a_config_of_the_largest_size_is_read(hub: Hub) -> None:
    text = json.dumps(CONFIG).encode()
    hub.repos["org/model"].files["config.json"] = text + b" " * (1_900_000 - len(text))
    assert fetch("org/model").config == CONFIG


def test_a_config_that_is_no_json(hub: Hub) -> None:
    hub.repos["org/model"].files["config.json"] = b"<html>not found</html>"
    assert str(refused()) == (
        "model: expected a readable config.json in org/model, got 'an HTML page'. Paste a corrected config.json."
    )


@pytest.mark.parametrize(
    "body", [b"<html>", b"[1]", b'{"id": "org/model"}', b'{"id": "../x", "sha": "abc"}', b"[" * 9999]
)
def test_a_description_that_makes_no_sense(hub: Hub, body: bytes) -> None:
    hub.script("/api/", Answer(body=body))
    assert refused().field == "model"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("https://huggingface.co/datasets/org/data", "expected a model, got 'a dataset (org/data)'"),
        ("https://huggingface.co/spaces/org/app", "expected a model, got 'a Space (org/app)'"),
        ("datasets/org", "expected a model id such as org/name, got 'datasets/org'"),
        ("https://example.com/org/model", "expected a model's address on the Hub"),
        ("https://huggingface.co.example.com/org/model", "expected a model's address on the Hub"),
        ("https://huggingface.co@example.com/org/model", "expected a model's address on the Hub"),
        ("ftp://huggingface.co/org/model", "expected a model's address on the Hub"),
        ("https://huggingface.co/", "Add the model's id"),
        ("", "got nothing"),
        ("../../etc/passwd", "expected a model"),
        ("org/../model", "expected a model"),
        ("org/..", "expected a model id"),
        ("https://huggingface.co/org/%2e%2e", "expected a model id"),
        ("https://huggingface.co/org%2Fa%2Fb/model", "expected a model id"),
        ("org/model?x=1", "expected a model id"),
        ("org/model\r\nHost: x", "expected a model id"),
        ("a" * 97, "expected a model id"),
        ("a" * 3000, "got '3,000 characters'"),
        ("https://[bad/org/model", "expected a model's address on the Hub"),
    ],
)
def test_what_is_no_model_of_the_hub_is_refused_without_a_request(hub: Hub, text: str, says: str) -> None:
    assert says in str(refused(text))
    assert hub.requests == []


@pytest.mark.parametrize("revision", ["../main", "a b", "-x", "x" * 129, "a//b", "a..b"])
def test_an_impossible_revision_is_refused_without_a_request(hub: Hub, revision: str) -> None:
    assert refused(revision=revision).field == "revision"
    assert hub.requests == []


# The token


def sent_tokens(hub: Hub) -> set[str | None]:
    return {request.headers.get("authorization") for request in hub.requests}


def test_without_a_token_the_call_is_anonymous(hub: Hub) -> None:
    fetch("org/model")
    assert sent_tokens(hub) == {None}


def test_the_environments_token_is_sent(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    fetch("org/model")
    assert sent_tokens(hub) == {f"Bearer {TOKEN}"}


def test_a_token_typed_for_this_visit_comes_first_and_is_not_kept(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_ofTheServer")
    fetch("org/model", token=TOKEN)
    assert sent_tokens(hub) == {f"Bearer {TOKEN}"}
    hub.requests.clear()
    fetch("org/model")
    assert sent_tokens(hub) == {"Bearer hf_ofTheServer"}


@pytest.mark.parametrize("token", ["two words", "a\r\nb: c", "é", "x" * 201])
def test_a_token_that_cannot_be_one_is_refused_unseen(hub: Hub, token: str) -> None:
    error = refused(token=token)
    assert error.field == "token"
    assert token not in str(error)
    assert hub.requests == []


def everything(error: BaseException | None) -> Iterator[str]:
    """What an exception and all behind it hold, as far as a report of it could show."""
    while error is not None:
        yield repr(error) + repr(vars(error))
        request = getattr(error, "_request", None)
        yield repr(getattr(request, "headers", None)) + str(getattr(request, "headers", {}))
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize(
    "answers",
    [
        [Answer(401, {"x-error-message": "Invalid credentials in Authorization header"})],
        [Answer(403, {"x-error-code": "GatedRepo"})],
        [Answer(404, {"x-error-code": "RepoNotFound"})],
        [Answer(500, body=f"token {TOKEN} refused".encode())] * 3,
        [Answer(302, {"location": "https://example.com/"})],
        [Answer(delay_s=5)] * 3,
        [Answer(body=b"{" * 10)],
    ],
)
def test_the_token_is_in_no_error_and_no_log(hub: Hub, caplog: pytest.LogCaptureFixture, answers: list[Answer]) -> None:
    caplog.set_level(logging.DEBUG)
    hub.script("/api/", *answers)
    error = refused(token=TOKEN, timeout_s=0.05)
    assert not any(TOKEN in text for text in everything(error))
    assert TOKEN not in caplog.text


def test_the_token_is_not_in_what_is_returned(hub: Hub) -> None:
    model = fetch("org/model", token=TOKEN)
    assert TOKEN not in repr(model) + model.model_dump_json()


def test_a_token_pasted_as_the_model_is_not_shown(hub: Hub) -> None:
    assert "SecretSecret" not in str(refused(f"https://example.com/{TOKEN}"))
    assert "SecretSecret" not in str(refused(f"{TOKEN}/a/b"))
    assert "typed-secret" not in str(refused("https://example.com/typed-secret", token="typed-secret"))


# The census against the checkpoint


def model_with(values: dict[str, int]) -> HubModel:
    weights = CheckpointWeights(
        values=sum(values.values()),
        weights_bytes=2 * sum(values.values()),
        values_by_dtype=values,
        bytes_by_dtype={},
        source="headers",
    )
    return HubModel(model_id="org/model", revision=COMMIT, config=CONFIG, config_file="config.json", weights=weights)


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        (0, "they agree"),
        (100 * 64, "the head, stored again although it is the embedding table"),
        (-5_000, "5,000 fewer (6%)"),
        (7, "7 more (under 0.1%)"),
    ],
)
def test_the_census_is_held_against_the_checkpoint(extra: int, says: str) -> None:
    note = census_note(read_config(CONFIG), model_with({"BF16": PARAMETERS + extra}))
    assert note is not None
    assert says in note.text


def test_multi_token_prediction_layers_explain_a_surplus() -> None:
    spec = read_config(CONFIG | {"num_nextn_predict_layers": 1})
    assert spec.parameters.mtp > 0
    note = census_note(spec, model_with({"BF16": spec.parameters.total + spec.parameters.mtp}))
    assert note is not None
    assert "multi-token-prediction layers" in note.text


def test_packed_weights_are_not_compared() -> None:
    quantized = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
    note = census_note(read_config(CONFIG | {"quantization_config": quantized}), model_with({"I32": 10, "F16": 20}))
    assert note is not None
    assert "packed in one: no comparison" in note.text


def test_without_weights_there_is_nothing_to_compare(hub: Hub) -> None:
    assert census_note(read_config(CONFIG), fetch("org/model")) is None


def test_the_hub_client_is_loaded_only_when_it_is_used() -> None:
    program = "import sys, kvcalc, kvcalc.reading.hub; print('huggingface_hub' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True)
    assert answer.stdout.strip() == "False"
