"""Laws that hold for every config the reader accepts, and for everything it refuses."""

from __future__ import annotations

import json
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcalc.cache import kv_bytes_per_sequence
from kvcalc.errors import ConfigError, ScenarioError
from kvcalc.reading.hf_config import read_config
from kvcalc.reading.text import LARGEST_TEXT_CHARS, parse

CASES = tomllib.loads((Path(__file__).parent / "cases" / "reading_kv.toml").read_text(encoding="utf-8"))["case"]
CONFIGS = {case["name"]: case["model"].get("config") or parse(case["model"]["text"]) for case in CASES}
ANY_CONFIG = st.sampled_from(list(CONFIGS.values()))

JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, 1, -1, 10**9, 10**30, 10**4000]),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.one_of(st.none(), st.integers(-2, 5), st.text(max_size=4)), max_size=5),
    st.dictionaries(st.text(max_size=4), st.integers(), max_size=3),
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63), st.floats(), st.text(max_size=10)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=20,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every key and the first entries of every list, nested."""
    found = []
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value[:2]):
        found.append((*path, key))
        if isinstance(inner, dict | list):
            found += places(inner, (*path, key))
    return found


@st.composite
def damaged(draw: st.DrawFn) -> dict[str, Any]:
    """A good config with one to three values replaced or removed."""
    config = json.loads(json.dumps(draw(ANY_CONFIG)))
    for _ in range(draw(st.integers(1, 3))):
        *parents, last = draw(st.sampled_from(places(config) or [("model_type",)]))
        target = config
        try:
            for key in parents:
                target = target[key]
            target[last] = draw(JUNK)
            if draw(st.booleans()) and isinstance(target, dict):
                del target[last]
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change removed this place
    return config


def outcome(read: Callable[[Any], Any], given: Any) -> tuple[Any, ConfigError | None]:
    """What came of it: a result, or a refusal. Any other exception fails the test."""
    try:
        return read(given), None
    except ConfigError as error:
        return None, error


@settings(max_examples=400)
@given(damaged())
def test_a_damaged_config_is_read_or_refused_by_name_and_nothing_else(config: dict[str, Any]) -> None:
    spec, refused = outcome(read_config, config)
    if refused is not None:
        assert refused.field
        assert len(str(refused)) < 2000
    else:
        assert kv_bytes_per_sequence(spec, context_tokens=1000) >= 0


@given(st.dictionaries(st.text(max_size=20), JSON, max_size=6))
def test_any_object_is_read_or_refused(raw: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        read_config(raw)


@given(st.text(max_size=200) | st.text(alphabet="{}[]\"':,#/*\\ \n0aN", max_size=200))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    raw, refused = outcome(parse, text)
    assert isinstance(raw, dict) or (refused is not None and refused.field == "config")


@given(st.dictionaries(st.text(max_size=10), JSON, min_size=1, max_size=6))
def test_json_text_is_read_as_json(raw: dict[str, Any]) -> None:
    text = json.dumps(raw)
    assert json.dumps(parse(text)) == text


@pytest.mark.parametrize("name", CONFIGS)
def test_the_sizing_facts_give_the_same_model(name: str) -> None:
    spec = read_config(CONFIGS[name])
    again = read_config(json.loads(spec.sizing_facts))
    assert again.layer_groups == spec.layer_groups
    assert again.tensors == spec.tensors
    assert again.quantization == spec.quantization
    assert (again.num_layers, again.max_context_tokens) == (spec.num_layers, spec.max_context_tokens)
    assert again.sizing_facts == spec.sizing_facts


def test_the_sizing_facts_leave_out_what_decides_nothing() -> None:
    config = {
        **CONFIGS["GQA caches a key and a value per KV head and layer"],
        "rope_theta": 500000.0,
        "bos_token_id": 1,
    }
    facts = json.loads(read_config(config).sizing_facts)
    assert facts["num_key_value_heads"] == 8
    assert not {"rope_theta", "bos_token_id"} & facts.keys()


@given(ANY_CONFIG, st.integers(0, 2**20), st.integers(0, 2**20))
def test_kv_never_falls_as_the_context_grows(config: dict[str, Any], shorter: int, more: int) -> None:
    spec = read_config(config)
    before = kv_bytes_per_sequence(spec, context_tokens=shorter)
    assert kv_bytes_per_sequence(spec, context_tokens=shorter + more) >= before


@given(ANY_CONFIG, st.sampled_from([1, 2, 4, 8, 16]), st.integers(1, 2**17))
def test_more_gpus_never_cost_one_gpu_more_nor_all_of_them_less(
    config: dict[str, Any], tp: int, context_tokens: int
) -> None:
    spec = read_config(config)
    whole = kv_bytes_per_sequence(spec, context_tokens=context_tokens)
    try:
        share = kv_bytes_per_sequence(spec, context_tokens=context_tokens, tp=tp)
    except ScenarioError:
        return  # these heads do not divide so
    assert share <= whole <= tp * share


@given(st.permutations(["sliding_attention"] * 4 + ["full_attention"] * 3), st.integers(1, 5000))
def test_the_order_of_layers_changes_no_total(kinds: list[str], context_tokens: int) -> None:
    config = {**CONFIGS["gpt-oss lists its layers: 18 full, 18 of 128 tokens"], "num_hidden_layers": 7}
    spec = read_config({**config, "layer_types": kinds})
    kept = 4 * min(128, context_tokens) + 3 * context_tokens
    assert kv_bytes_per_sequence(spec, context_tokens=context_tokens) == 2 * 8 * 64 * 2 * kept


@pytest.mark.parametrize(
    "text",
    [
        "x" * (LARGEST_TEXT_CHARS + 1),
        '{"a":' * 100_000,
        '{"a":' * 100_000 + "1" + "}" * 100_000,
        "[" * 100_000,
        '{"a": 1' + "0" * 100_000 + "}",
        "{" + '"' * 200_000,
        "{'a': " + "-" * 50_000 + "1}",
        '{"a": 1 ' + "/*" * 200_000,
        "```\n" * 100_000,
    ],
    ids=["too long", "open brackets", "deep", "deep list", "long number", "quotes", "signs", "comments", "fences"],
)
def test_junk_is_refused_quickly_and_not_echoed(text: str) -> None:
    began = time.process_time()
    with pytest.raises(ConfigError) as refused:
        parse(text)
    assert time.process_time() - began < 1
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize("value", [10**9, 10**30, 10**4000], ids=["10^9", "10^30", "10^4000"])
def test_an_absurd_layer_count_is_refused_quickly(value: int) -> None:
    config = {**CONFIGS["GQA caches a key and a value per KV head and layer"], "num_hidden_layers": value}
    began = time.process_time()
    with pytest.raises(ConfigError):
        read_config(config)
    assert time.process_time() - began < 0.5


def test_a_dict_that_holds_itself_is_refused() -> None:
    config: dict[str, Any] = {"model_type": "llama"}
    config["text_config"] = config
    with pytest.raises(ConfigError):
        read_config(config)


@pytest.mark.parametrize(
    ("facts", "label"),
    [
        ({"_name_or_path": "meta-llama/Llama-3.1-8B"}, "Llama-3.1-8B"),
        ({"_name_or_path": "/home/me/checkpoint-500"}, "Pasted model (llama, 32 layers)"),
        ({"_name_or_path": "<script>"}, "Pasted model (llama, 32 layers)"),
        ({}, "Pasted model (llama, 32 layers)"),
    ],
)
def test_the_label_is_the_name_in_the_file_when_it_is_a_sane_one(facts: dict[str, str], label: str) -> None:
    config = {**CONFIGS["GQA caches a key and a value per KV head and layer"], **facts}
    assert read_config(config).label == label
    assert read_config(config, label="Mine").label == "Mine"


def test_a_nested_base_model_does_not_name_the_whole() -> None:
    config = CONFIGS["A nested config leaves out what its class says: Gemma-3-4B's heads"]
    config = {**config, "text_config": {**config["text_config"], "_name_or_path": "google/base"}}
    assert read_config(config).label == "Pasted model (gemma3, 34 layers)"


def test_reading_takes_a_few_milliseconds() -> None:
    config = CONFIGS["MLA caches one latent and one rotary key, whole on every rank, whatever num_key_value_heads says"]
    read_config(config)  # loads the class defaults
    began = time.process_time()
    for _ in range(20):
        read_config(config)
    assert (time.process_time() - began) / 20 < 0.05
