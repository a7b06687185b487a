"""A link carries every choice, opens anywhere, and names whatever it could not use."""

import ast
import base64
import json
import zlib
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcalc import LinkError, Scenario, from_link, read_model, to_link
from kvcalc.catalogue import model_presets
from kvcalc.share import FIELDS, LINK_VERSION

LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}


def pasted() -> Scenario:
    spec = read_model(LLAMA)
    return Scenario(model="pasted", model_facts=spec.sizing_facts, model_label="My Llama & co, 100%")


def link_with(**changes: str | None) -> str:
    pairs = dict(parse_qsl(to_link(Scenario.default()), keep_blank_values=True))
    pairs.update({key: value for key, value in changes.items() if value is not None})
    return urlencode({key: value for key, value in pairs.items() if changes.get(key, "") is not None})


def notes_of(link: str) -> dict[str, str]:
    return {note.field: note.text for note in from_link(link).notes}


def test_the_default_scenario_survives_the_round_trip_without_a_note():
    opened = from_link(to_link(Scenario.default()))
    assert opened.scenario == Scenario.default()
    assert opened.notes == ()


def test_a_pasted_model_travels_by_its_facts_and_reads_back_to_the_same_scenario():
    opened = from_link(to_link(pasted()))
    assert opened.scenario == pasted()
    assert opened.notes == ()


def test_a_pasted_models_link_holds_its_facts_and_not_its_text():
    spec = read_model({**LLAMA, "_comment": "secret project name", "architectures": ["LlamaForCausalLM"]})
    assert "secret" not in spec.sizing_facts
    assert json.loads(spec.sizing_facts)["num_key_value_heads"] == 8


def test_every_scenario_field_is_written_in_the_link():
    written = dict(parse_qsl(to_link(Scenario.default()), keep_blank_values=True))
    names = {field.name for field in FIELDS}
    assert names | {"custom_gpu"} == set(Scenario.model_fields)
    assert written["v"] == str(LINK_VERSION)
    assert {field.key for field in FIELDS} - {"facts", "label"} <= written.keys()


@pytest.mark.parametrize("preset", [preset.id for preset in model_presets()][::7])
def test_every_presets_default_scenario_survives_the_round_trip(preset):
    scenario = Scenario(model=preset)
    assert from_link(to_link(scenario)).scenario == scenario


@settings(max_examples=60, deadline=None)
@given(
    prompt=st.integers(0, 10**6),
    output=st.integers(1, 10**6),
    limit=st.integers(1, 10**7),
    share=st.none() | st.integers(1, 100),
    want=st.none() | st.integers(1, 10**6),
    flags=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    kv=st.sampled_from(["auto", "bf16", "fp8", "nvfp4"]),
)
def test_any_scenario_survives_the_round_trip(prompt, output, limit, share, want, flags, kv):
    scenario = Scenario(
        model="meta-llama/Llama-3.3-70B-Instruct",
        tp=8,
        pp=1,
        prompt_tokens=prompt,
        output_tokens=output,
        max_model_len=limit,
        utilization_pct=share,
        target_requests=want,
        prefix_caching=flags[0],
        enforce_eager=flags[1],
        hybrid_manager=flags[2],
        kv_precision=kv,
    )
    opened = from_link(to_link(scenario))
    assert opened.scenario == scenario
    assert opened.notes == ()


@pytest.mark.parametrize("wrap", ["{}", "?{}", "https://kvcalc.example/app?{}", "  {}\n", "/?{}"])
def test_a_query_string_or_a_whole_address_opens(wrap):
    scenario = Scenario.default()
    assert from_link(wrap.format(to_link(scenario))).scenario == scenario


def test_an_unknown_field_is_named_and_the_rest_kept():
    opened = from_link(link_with(prompt="4321", colour="blue"))
    assert opened.scenario.prompt_tokens == 4321
    assert [note.field for note in opened.notes] == ["colour"]


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("prompt", "many", "whole number"),
        ("prompt", "-5", "whole number"),
        ("prompt", "1e5", "whole number"),
        ("prompt", "٣٤", "whole number"),
        ("prompt", "9" * 30, "whole number"),
        ("eager", "maybe", "on or off"),
        ("tp", "0", "from 1 to"),
        ("util_pct", "140", "from 1 to 100"),
        ("kv", "fp7", "one of"),
        ("weights", "fp7", "one of"),
        ("engine", "exllama", "vllm"),
        ("attention", "gqa-7", "divide"),
        ("gpu", "abacus", "abacus"),
        ("model", "nobody/nothing", "nobody/nothing"),
        ("output", "", "whole number"),
    ],
)
def test_a_bad_value_is_named_and_only_that_field_gets_its_default(key, value, says):
    opened = from_link(link_with(want="17", **{key: value}))
    notes = {note.field: note.text for note in opened.notes}
    name = next(field.name for field in FIELDS if field.key == key)
    assert says in (notes.get(key) or notes[name])
    assert opened.scenario.target_requests == 17
    assert getattr(opened.scenario, name) == getattr(Scenario.default(), name)


def test_a_later_version_is_named_and_what_is_known_is_used():
    opened = from_link(link_with(v="7", prompt="4321"))
    assert "7" in {note.field: note.text for note in opened.notes}["v"]
    assert opened.scenario.prompt_tokens == 4321


def test_a_link_made_on_other_data_says_so():
    assert "changed" in notes_of(link_with(data="000000.111111.22222222"))["data"]


def test_a_field_left_out_is_filled_in_and_said():
    assert "block" in notes_of(link_with(block=None))["link"]


def test_a_field_given_twice_is_named():
    assert "twice" in notes_of(to_link(Scenario.default()) + "&tp=2")["tp"]


@pytest.mark.parametrize(
    "facts",
    ["%%%", "AAAA", "eJyrrgUAAXUA-Q", "x" * 3000, "eNoDAAAAAAE"],
    ids=["junk", "not zlib", "empty", "long", "void"],
)
def test_broken_facts_are_named_and_the_default_model_is_shown(facts):
    opened = from_link(link_with(model="pasted", facts=facts))
    assert opened.scenario.model == Scenario.default().model
    assert opened.notes


def test_packed_facts_that_unpack_to_very_much_are_refused():
    bomb = base64.urlsafe_b64encode(zlib.compress(b'{"a":"' + b" " * 50_000_000 + b'"}', 9)).decode()
    opened = from_link(link_with(model="pasted", facts=bomb))
    assert opened.scenario.model == Scenario.default().model
    assert any(note.field == "facts" for note in opened.notes)


def test_a_custom_gpu_survives_the_round_trip():
    gpu = {"memory_mib": 49_152, "bandwidth_gb_per_s": 900, "bf16_tflops": 120}
    scenario = Scenario(model="Qwen/Qwen3-8B", gpu="custom", custom_gpu=gpu)
    opened = from_link(to_link(scenario))
    assert opened.scenario == scenario
    assert opened.notes == ()


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=300))
def test_no_text_makes_from_link_raise(text):
    assert from_link(text).scenario


@settings(max_examples=100, deadline=None)
@given(
    changes=st.dictionaries(
        st.sampled_from([field.key for field in FIELDS]),
        st.sampled_from(
            ["", "0", "-1", "none", "on", "x", "999999999", "custom", "pasted", "null", "1.5", "\x00", "é"]
        ),
        min_size=1,
        max_size=6,
    )
)
def test_no_combination_of_bad_fields_makes_from_link_raise(changes):
    opened = from_link(link_with(**changes))
    assert opened.scenario == from_link(to_link(opened.scenario)).scenario


@pytest.mark.parametrize("value", [None, 3, b"v=1", ["v=1"]])
def test_what_is_no_text_is_refused(value):
    with pytest.raises(LinkError, match="link: expected a query string"):
        from_link(value)


def test_nothing_in_the_link_module_unpickles_or_evaluates():
    tree = ast.parse((Path(__file__).parent.parent / "kvcalc" / "share.py").read_text())
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    modules = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert "zlib" in modules
    assert not names & {"eval", "exec", "compile", "__import__"}
    assert not modules & {"pickle", "marshal", "shelve", "dill"}


@pytest.mark.parametrize(("given", "refused"), [("0", True), ("1", False), ("1000000000", False), ("1000000001", True)])
def test_a_typed_gpu_has_figures_that_a_card_could_have(given, refused):
    found = from_link(f"model=meta-llama/Llama-3.3-70B-Instruct&tp=4&pp=1&gpu=custom&gpu_mib={given}&gpu_gbps=1")
    said = [note.text for note in found.notes if note.field == "gpu"]
    assert (found.scenario.gpu != "custom") == refused
    assert [text.startswith("memory_mib: expected a whole number from 1 to 1,000,000,000") for text in said] == (
        [True] if refused else []
    )


@pytest.mark.parametrize(("key", "value"), [("gpu", "abacus"), ("model", "no/such"), ("facts", "rubbish"), ("tp", "0")])
def test_a_refused_field_is_named_once(key, value):
    changes = {"model": "pasted", "facts": value} if key == "facts" else {key: value}
    (note,) = from_link(link_with(**changes, data=None)).notes
    assert note.field == key
    assert not note.text.startswith(f"{key}:")
    assert note.text.endswith("The default was used.")
