"""Storage precisions: every width is worked out here from the layout its source documents."""

from __future__ import annotations

import re
from datetime import date
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc.errors import CatalogueError
from kvcalc.precision import (
    KvFormat,
    kv_format,
    kv_formats,
    rational,
    state_format,
    state_formats,
    weight_format,
    weight_formats,
)

KV_IDS = [row.id for row in kv_formats()]

# The layouts are those that model_presets/precisions.toml names a source for: values, then scales, then the rest.
WEIGHTS_BITS = [  # sentence, id, bits of one weight
    ("BF16 is sixteen bits", "bf16", "16"),
    (
        "AWQ and GPTQ in groups of 128 store an FP16 scale and a 4-bit zero point per group",
        "int4",
        "4 + 16/128 + 4/128",
    ),
    ("NVFP4 stores one FP8 scale per 16 values", "nvfp4", "4 + 8/16"),
    ("MXFP4 stores one E8M0 byte per 32 values", "mxfp4", "4 + 8/32"),
    (
        "NF4 with double quantisation stores an 8-bit scale per 64 values and an FP32 scale per 256 of those",
        "nf4",
        "4 + 8/64 + 32/16384",
    ),
    ("Per-tensor FP8 is eight bits", "fp8", "8"),
    ("A Q8_0 block is 32 bytes of values and an FP16 scale", "q8_0", "8 + 16/32"),
    (
        "A Q4_K super-block is 256 nibbles, 12 bytes of 6-bit scales and two FP16 factors",
        "q4_k_m",
        "4 + 96/256 + 32/256",
    ),
    ("A Q6_K super-block is 256 six-bit values, 16 one-byte scales and an FP16 factor", "q6_k", "6 + 128/256 + 16/256"),
    ("A Q5_K super-block adds one bit per value to Q4_K", "q5_k_m", "5 + 96/256 + 32/256"),
    (
        "A Q3_K super-block is 256 three-bit values, 12 bytes of scales and an FP16 factor",
        "q3_k_m",
        "3 + 96/256 + 16/256",
    ),
    (
        "A Q2_K super-block is 256 two-bit values, 16 bytes of scales and two FP16 factors",
        "q2_k",
        "2 + 128/256 + 32/256",
    ),
]
ROW_BYTES = [  # sentence, id, values of the row, its bytes
    ("A 128-wide BF16 key is 256 bytes", "bf16", 128, "256"),
    ("FP8 keeps its scales with the weights, not with the row", "fp8", 128, "128"),
    ("FP8 per token and head adds one FP32 scale per row", "fp8_per_token_head", 128, "128 + 4"),
    ("INT8 per token and head adds one FP32 scale per row", "int8_per_token_head", 128, "128 + 4"),
    ("INT4 per token and head packs two values per byte and adds one FP32 scale", "int4_per_token_head", 128, "64 + 4"),
    ("A 128-wide NVFP4 row is 64 bytes of values and 8 of scales", "nvfp4", 128, "64 + 8"),
    ("MXFP8 adds a byte per 32 values", "mxfp8", 128, "128 + 4"),
    ("Q8_0 stores 34 bytes per 32 values", "q8_0", 128, "34 + 34 + 34 + 34"),
    ("Q5_1 stores 24 bytes per 32 values", "q5_1", 64, "24 + 24"),
    ("Q5_0 stores 22 bytes per 32 values", "q5_0", 64, "22 + 22"),
    ("Q4_1 stores 20 bytes per 32 values", "q4_1", 64, "20 + 20"),
    ("Q4_0 stores 18 bytes per 32 values", "q4_0", 64, "18 + 18"),
    ("IQ4_NL stores 18 bytes per 32 values", "iq4_nl", 64, "18 + 18"),
]
LATENT_BYTES = [  # sentence, id, latent, rotary values, bytes of the entry
    ("A BF16 latent of 512 and 64 is 1,152 bytes", "bf16", 512, 64, "1024 + 128"),
    (
        "fp8_ds_mla is 512 FP8 values, four FP32 scales and 64 BF16 rotary values",
        "fp8_ds_mla",
        512,
        64,
        "512 + 16 + 128",
    ),
    (
        "nvfp4_ds_mla is 512 FP4 values, 32 FP8 scales and 64 FP8 rotary values",
        "nvfp4_ds_mla",
        512,
        64,
        "256 + 32 + 64",
    ),
    ("llama.cpp quantises the latent and its rotary part as one row of 576", "q8_0", 512, 64, "576 + 36"),
]


def _sum(parts: str) -> Fraction:
    return sum((Fraction(part) for part in parts.split(" + ")), Fraction(0))


@pytest.mark.parametrize(("sentence", "name", "bits"), WEIGHTS_BITS, ids=[case[0] for case in WEIGHTS_BITS])
def test_a_weight_takes_the_bits_its_layout_documents(sentence: str, name: str, bits: str) -> None:
    assert weight_format(name).bits_per_value == _sum(bits), sentence


@pytest.mark.parametrize(("sentence", "name", "values", "count"), ROW_BYTES, ids=[case[0] for case in ROW_BYTES])
def test_a_cached_row_takes_the_bytes_its_layout_documents(sentence: str, name: str, values: int, count: str) -> None:
    assert kv_format(name).row_bits(values) == 8 * _sum(count), sentence


@pytest.mark.parametrize(
    ("sentence", "name", "latent", "rope", "count"), LATENT_BYTES, ids=[case[0] for case in LATENT_BYTES]
)
def test_an_mla_entry_takes_the_bytes_its_layout_documents(
    sentence: str, name: str, latent: int, rope: int, count: str
) -> None:
    assert kv_format(name).latent_bits(latent, rope) == 8 * _sum(count), sentence


def test_a_row_just_past_a_group_pays_for_another_scale() -> None:
    nvfp4 = kv_format("nvfp4")
    assert nvfp4.row_bits(16) == 16 * 4 + 8
    assert nvfp4.row_bits(17) == 17 * 4 + 2 * 8


@given(st.sampled_from(KV_IDS), st.integers(1, 600), st.integers(1, 600))
def test_a_wider_row_never_takes_fewer_bits(name: str, some: int, more: int) -> None:
    row = kv_format(name)
    assert row.row_bits(some + more) > row.row_bits(some)


@given(st.sampled_from(KV_IDS), st.integers(1, 600))
def test_a_row_never_takes_less_than_its_values(name: str, values: int) -> None:
    row = kv_format(name)
    assert row.row_bits(values) >= values * rational(row.value_bits)


def test_auto_is_what_the_checkpoint_declares_and_else_sixteen_bit() -> None:
    assert kv_format("auto").id == "bf16"
    assert kv_format("auto", declared="fp8").id == "fp8"
    assert kv_format("fp16", declared="fp8").id == "fp16"


def test_a_state_is_as_wide_as_chosen_and_auto_follows_the_model() -> None:
    assert state_format("fp32").bytes_for("bf16") == 4
    assert state_format("bf16").bytes_for("fp32") == 2
    assert state_format("auto").bytes_for("fp32") == 4
    assert state_format("auto").bytes_for(None) == 2


@pytest.mark.parametrize(
    ("find", "field"),
    [(weight_format, "precision"), (kv_format, "kv_precision"), (state_format, "state_precision")],
)
def test_an_unknown_precision_is_refused_by_the_name_of_its_field(find: object, field: str) -> None:
    assert callable(find)
    with pytest.raises(CatalogueError, match=f"^{field}: expected one of .*, got 'fp7'"):
        find("fp7")


def test_every_row_has_its_own_id_and_label_a_source_and_a_date() -> None:
    for rows in (weight_formats(), kv_formats(), state_formats()):
        assert len({row.id for row in rows}) == len({row.label for row in rows}) == len(rows)
        for row in rows:
            assert len(row.source) > 10, row.id
            assert date.fromisoformat(row.checked) <= date.today(), row.id


WEIGHTS = "bf16 fp16 fp32 fp8 int8 int4 nvfp4 mxfp4 nf4 q8_0 q6_k q5_k_m q4_k_m q4_0"
KV = "bf16 fp16 fp8 int8 int4 nvfp4 fp8_per_token_head fp8_ds_mla q8_0"


def test_the_names_users_rely_on_are_all_there() -> None:
    weights = {row.id for row in weight_formats()}
    assert weights.issuperset(WEIGHTS.split())
    assert "checkpoint" not in weights
    assert set(KV_IDS).issuperset(KV.split())
    assert {row.id for row in state_formats()} == {"auto", "bf16", "fp16", "fp32"}


def test_ids_are_lower_case_words() -> None:
    ids = [row.id for row in weight_formats()] + KV_IDS + [row.id for row in state_formats()]
    assert all(re.fullmatch(r"[a-z0-9]+(_[a-z0-9]+)*", name) for name in ids)


def test_engines_are_the_four_we_know() -> None:
    for row in kv_formats():
        assert set(row.engines) <= {"vllm", "sglang", "tensorrt_llm", "llamacpp"}, row.id


def test_formats_of_one_layout_say_so() -> None:
    assert kv_format("fp8_ds_mla").layouts == ("latent",)
    assert kv_format("fp8_per_token_head").layouts == ("heads",)
    assert kv_format("bf16").layouts == ("heads", "latent")


def test_formats_are_hashable_by_id() -> None:
    assert isinstance(kv_format("bf16"), KvFormat)
    assert hash(kv_format("bf16")) == hash("bf16")
