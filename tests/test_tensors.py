"""The tensor layouts in model_presets/tensors: complete, and refused by name where they are not."""

from __future__ import annotations

import ast
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.catalogue import read_model
from kvcalc.errors import CatalogueError
from kvcalc.model_spec import ModelSpec
from kvcalc.reading import families, towers
from kvcalc.reading.families import FactBook, FactSource
from kvcalc.reading.rows import Block, Expression
from kvcalc.reading.section import Section
from kvcalc.reading.shape import Mixer
from kvcalc.tensors import Part

BASE = {"num_hidden_layers": 4, "hidden_size": 128, "num_attention_heads": 4, "vocab_size": 640}


def model(**keys: object) -> ModelSpec:
    return read_model({"model_type": "llama", "intermediate_size": 256, **BASE, **keys})


def names(text: str) -> set[str]:
    return {node.id for node in ast.walk(ast.parse(text, mode="eval")) if isinstance(node, ast.Name)}


def expressions(block: Block) -> set[str]:
    return {text for row in block.rows for text in (row.rows, row.columns, row.copies, row.when, row.bias, row.units)}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 * a + b // 3", 2 * 7 + 9 // 3),
        ("a if b == 9 else 1", 7),
        ("a if b != 9 else 1", 1),
        ("a and not c", 1),
        ("c or 0", 0),
        ("(a + 15) // 16 - c", 1),
        ("a // c", 0),
    ],
)
def test_a_size_is_arithmetic_over_facts(text: str, value: int) -> None:
    assert Expression(text).value({"a": 7, "b": 9, "c": 0}.__getitem__) == value


@pytest.mark.parametrize("text", ["a.b", "f(a)", "1.5", "a / b", "[a]", "a ** 2"])
def test_a_size_that_is_anything_else_is_refused(text: str) -> None:
    with pytest.raises(CatalogueError, match="sum or product"):
        Expression(text).value(lambda name: 1)


def test_a_fact_nobody_defines_is_refused_by_name() -> None:
    with pytest.raises(CatalogueError, match="'width'"):
        FactBook({}, {}, Section({}))("width")


@pytest.mark.parametrize(
    ("config", "value"),
    [({"rank": 5}, 5), ({"rank": None}, 6), ({"rank": "auto"}, 6), ({}, 6), ({"rank": True}, 1), ({"rank": [3, 4]}, 3)],
)
def test_a_fact_is_the_first_key_that_says_a_number_else_its_default(config: dict[str, object], value: int) -> None:
    fact = FactBook({"hidden": 96}, {"rank": FactSource(keys=("rank",), default="hidden // 16")}, Section(config))
    assert fact("rank") == value


def test_every_block_a_family_names_exists_and_every_fact_is_defined() -> None:
    base, by_type = families._families()
    given = set(families_facts())
    for model_type in ["", *by_type]:
        layout, _ = families.family(model_type)
        used = [*(layout.first or ()), *(layout.last or ()), *(layout.each or ()), *(layout.dense or ())]
        used += [*(layout.moe or ()), *(name for names in layout.mixers.values() for name in names)]
        assert set(used) <= set(families.blocks()), model_type
        known = given | set(layout.facts)
        for fact in layout.facts.values():
            default = fact.default if isinstance(fact, FactSource) else fact
            assert names(str(default)) <= known, f"{model_type}: {default}"
        for name in used:
            for text in expressions(families.blocks()[name]):
                assert names(text) <= known, f"{model_type}: {name}: {text}"
    assert set(base.mixers) >= {kind for layout, _ in map(families.family, by_type) for kind in layout.mixers}


def families_facts() -> set[str]:
    """Facts that the reader gives to every layer, as the head of blocks.toml lists them."""
    listed = """hidden vocab heads kv_heads key_dim value_dim inter owns_kv windowed blocks has_mixer has_ffn ratio
        experts expert_width shared_width q_rank kv_rank nope rope v_dim index_heads index_dim s_heads s_head_dim
        s_key_heads s_key_dim taps inner num_layers tied gated routed has_indexer has_attention encoder_layers
        mtp_layers"""
    return set(listed.split())


def test_every_tower_a_wrapper_names_exists_and_every_fact_is_defined() -> None:
    data = towers._data()
    for wrapper in data.wrappers:
        for kind in filter(None, (wrapper.vision, wrapper.audio)):
            tower = towers._towers()[kind]
            known = {"hidden", *data.base, *tower.facts, *wrapper.facts}
            for name in tower.blocks:
                for text in expressions(data.blocks[name]):
                    assert names(text) <= known, f"{wrapper.model_types}: {name}: {text}"
        assert set(wrapper.join) <= set(data.blocks)


def test_a_wrapper_can_be_joined_to_any_vision_tower() -> None:
    data = towers._data()
    for wrapper in data.wrappers:
        for tower in (tower for tower in data.towers if data.blocks[tower.blocks[0]].part == "vision"):
            known = {"hidden", *data.base, *tower.facts, *wrapper.facts}
            joins = [data.blocks[name] for name in wrapper.join if data.blocks[name].part == "vision"]
            images = [record for record in (tower.images, wrapper.images) if record is not None]
            texts = [text for block in joins for text in expressions(block)]
            texts += [text for record in images for text in (record.side, record.tokens, record.largest) if text]
            for text in texts:
                assert names(text) <= known, f"{wrapper.model_types}, {tower.model_types}: {text}"


def test_every_kind_of_layer_has_blocks() -> None:
    assert set(get_args(Mixer)) == set(families.family("")[0].mixers)


def test_no_model_type_stands_in_two_families() -> None:
    _, by_type = families._families()
    listed = [name for row in {id(row): row for row in by_type.values()}.values() for name in row.model_types]
    assert sorted(listed) == sorted(set(listed))


@given(
    tied=st.booleans(),
    experts=st.sampled_from([0, 4]),
    bias=st.booleans(),
    layers=st.integers(1, 6),
    mtp=st.integers(0, 2),
)
def test_the_parts_sum_to_the_total(tied: bool, experts: int, bias: bool, layers: int, mtp: int) -> None:
    spec = model(
        model_type="mixtral" if experts else "llama",
        num_hidden_layers=layers,
        tie_word_embeddings=tied,
        attention_bias=bias,
        num_local_experts=experts,
        num_experts_per_tok=2,
        num_nextn_predict_layers=mtp,
    )
    counts = spec.parameters.model_dump()
    parts = {part: counts[part] for part in Part.__args__}  # type: ignore[attr-defined]
    assert counts["total"] == sum(parts.values()) - parts["mtp"]
    assert counts["active"] <= counts["total"]
    assert (counts["lm_head"] == 0) == tied


def test_layers_of_one_shape_are_one_class_and_keep_their_numbers() -> None:
    spec = model()
    (queries,) = [tensor for tensor in spec.tensors if tensor.name == "self_attn.q_proj"]
    assert queries.layers == (0, 1, 2, 3)
    assert (queries.rows, queries.columns, queries.copies) == (128, 128, 1)
