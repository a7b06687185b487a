"""GGUF headers: what they say of a model, and that no header, however broken or hostile, does harm."""

from __future__ import annotations

import struct
import time
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcalc.cache import kv_bytes_per_sequence
from kvcalc.errors import ConfigError
from kvcalc.reading.gguf import GgufModel, read_gguf
from kvcalc.reading.gguf_header import LARGEST_HEADER_BYTES, read_header
from kvcalc.reading.hf_config import read_config

K32 = 32_768
Tensors = dict[str, tuple[list[int], Type]]


def written(folder: Path, arch: str, metadata: dict[str, Any], tensors: Tensors | None = None, **options: Any) -> Path:
    """A GGUF file by the gguf package's own writer, without tensor data."""
    path = folder / "model.gguf"
    writer = gguf.GGUFWriter(path, arch, **options)
    for name, value in metadata.items():
        key = name if name.startswith(("general.", "tokenizer.", "split.")) else f"{arch}.{name}"
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_array(key, value)
    for name, (shape, kind) in (tensors or {}).items():
        block, size = gguf.GGML_QUANT_SIZES[kind]
        # The writer takes rows last-first, and a quantised row as its bytes.
        sizes = [*shape[:-1], shape[-1] // block * size] if block > 1 else shape
        dtype = {Type.F32: "float32", Type.F16: "float16"}.get(kind, "uint8")
        writer.add_tensor_info(name, sizes, np.dtype(dtype), 0, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    return path


LLAMA = {
    "block_count": 32,
    "embedding_length": 4096,
    "context_length": 131_072,
    "feed_forward_length": 14_336,
    "vocab_size": 128_256,
    "attention.head_count": 32,
    "attention.head_count_kv": 8,
    "rope.dimension_count": 128,
}
MAMBA2 = {"ssm.conv_kernel": 4, "ssm.state_size": 128}
LATENT = {"attention.kv_lora_rank": 512, "rope.dimension_count": 64}
HEADS_192 = {"attention.key_length": 192, "attention.value_length": 128}
ABSORBED = {
    "attention.key_length": 576,
    "attention.value_length": 512,
    "attention.key_length_mla": 192,
    "attention.value_length_mla": 128,
}
DEEPSEEK_V3 = LATENT | {
    "block_count": 61,
    "embedding_length": 7168,
    "feed_forward_length": 18_432,
    "vocab_size": 129_280,
    "attention.head_count": 128,
    "attention.q_lora_rank": 1536,
    "expert_count": 256,
    "expert_used_count": 8,
    "expert_shared_count": 1,
    "expert_feed_forward_length": 2048,
    "leading_dense_block_count": 3,
}
NEMOTRON = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
KIMI_FULL = (4, 8, 12, 16, 20, 24, 27)


def heads(key: int, value: int | None = None) -> dict[str, int]:
    return {"attention.key_length": key, "attention.value_length": value or key}


def kv_on(layers: set[int], count: int, kv_heads: int) -> list[int]:
    return [kv_heads if i in layers else 0 for i in range(count)]


# (architecture, metadata as llama.cpp's converter writes it, parameters of the published model or None,
#  bytes a sequence of 32,768 tokens keeps, 16-bit)
MODELS = {
    "Llama 3.1 8B": ("llama", LLAMA, 8_030_261_248, 2 * 32 * 8 * 128 * 2 * K32),
    "LFM2 1.2B keeps KV on its six attention layers": (
        "lfm2",
        LLAMA
        | {"block_count": 16, "embedding_length": 2048, "feed_forward_length": 8192, "vocab_size": 65_536}
        | {"attention.head_count_kv": kv_on({2, 5, 8, 10, 12, 14}, 16, 8), "shortconv.l_cache": 3},
        1_170_340_608,
        2 * 6 * 8 * 64 * 2 * K32 + 10 * 2 * 2048 * 2,
    ),
    "Gemma 2 2B slides on every other layer": (
        "gemma2",
        heads(256)
        | {"block_count": 26, "embedding_length": 2304, "feed_forward_length": 9216, "vocab_size": 256_000}
        | {"attention.head_count": 8, "attention.head_count_kv": 4},
        None,
        2 * 4 * 256 * 2 * (13 * K32 + 13 * 4096),
    ),
    "Gemma 3 4B slides on five of six layers": (
        "gemma3",
        heads(256)
        | {"block_count": 34, "embedding_length": 2560, "feed_forward_length": 10_240, "vocab_size": 262_144}
        | {"attention.head_count": 8, "attention.head_count_kv": 4, "attention.sliding_window": 1024},
        None,
        2 * 4 * 256 * 2 * (5 * K32 + 29 * 1024),
    ),
    "Gemma 3n E2B shares the cache of its last ten layers": (
        "gemma3n",
        heads(256)
        | {"block_count": 30, "embedding_length": 2048, "feed_forward_length": [8192] * 30, "vocab_size": 262_400}
        | {"attention.head_count": 8, "attention.head_count_kv": 2, "attention.sliding_window": 512}
        | {"embedding_length_per_layer_input": 256},
        None,
        2 * 2 * 256 * 2 * (4 * K32 + 16 * 512),
    ),
    "Gemma 4 E2B has wider heads on its full layers": (
        "gemma4",
        heads(512)
        | {"block_count": 35, "embedding_length": 1536, "feed_forward_length": [6144] * 15 + [12_288] * 20}
        | {"vocab_size": 262_144, "attention.head_count": 8, "attention.head_count_kv": 1}
        | {"attention.key_length_swa": 256, "attention.value_length_swa": 256, "attention.sliding_window": 512}
        | {"attention.shared_kv_layers": 20, "attention.sliding_window_pattern": [i % 5 != 4 for i in range(35)]},
        None,
        3 * 2 * 512 * 2 * K32 + 12 * 2 * 256 * 2 * 512,
    ),
    "gpt-oss 20B slides on every other layer": (
        "gpt-oss",
        heads(64)
        | {"block_count": 24, "embedding_length": 2880, "feed_forward_length": 2880, "vocab_size": 201_088}
        | {"attention.head_count": 64, "attention.head_count_kv": 8, "attention.sliding_window": 128}
        | {"expert_count": 32, "expert_used_count": 4, "expert_feed_forward_length": 2880},
        20_914_757_184,
        2 * 8 * 64 * 2 * (12 * K32 + 12 * 128),
    ),
    "EXAONE 4 1.2B has no window": (
        "exaone4",
        heads(64)
        | {"block_count": 30, "embedding_length": 2048, "feed_forward_length": 4096, "vocab_size": 102_400}
        | {"attention.head_count": 32, "attention.head_count_kv": 8},
        None,
        2 * 30 * 8 * 64 * 2 * K32,
    ),
    "EXAONE 4 32B slides on three of four layers": (
        "exaone4",
        heads(128)
        | {"block_count": 64, "embedding_length": 5120, "feed_forward_length": 27_392, "vocab_size": 102_400}
        | {"attention.head_count": 40, "attention.head_count_kv": 8, "attention.sliding_window": 4096},
        None,
        2 * 8 * 128 * 2 * (16 * K32 + 48 * 4096),
    ),
    "Llama 4 Scout attends in chunks on three of four layers": (
        "llama4",
        heads(128)
        | {"block_count": 48, "embedding_length": 5120, "feed_forward_length": 16_384, "vocab_size": 202_048}
        | {"attention.head_count": 40, "attention.head_count_kv": 8, "interleave_moe_layer_step": 1}
        | {"expert_count": 16, "expert_used_count": 1, "expert_feed_forward_length": 8192},
        107_769_861_120,
        2 * 8 * 128 * 2 * (12 * K32 + 36 * 8192),
    ),
    "DeepSeek-V3 in an old file": (
        "deepseek2",
        DEEPSEEK_V3 | HEADS_192 | {"attention.head_count_kv": 128},
        671_026_404_352,
        61 * (512 + 64) * 2 * K32,
    ),
    "DeepSeek-V3 in a new file": (
        "deepseek2",
        DEEPSEEK_V3 | ABSORBED | {"attention.head_count_kv": 1},
        671_026_404_352,
        61 * (512 + 64) * 2 * K32,
    ),
    "GLM-4.5-Air: the last block is no decoder layer": (
        "glm4moe",
        heads(128)
        | {"block_count": 47, "nextn_predict_layers": 1, "embedding_length": 4096, "feed_forward_length": 10_944}
        | {"vocab_size": 151_552, "attention.head_count": 96, "attention.head_count_kv": 8}
        | {"expert_count": 128, "expert_used_count": 8, "expert_shared_count": 1, "expert_feed_forward_length": 1408}
        | {"leading_dense_block_count": 1},
        None,
        2 * 46 * 8 * 128 * 2 * K32,
    ),
    "Mamba 2.8B keeps a state alone": (
        "mamba",
        {"block_count": 64, "embedding_length": 2560, "feed_forward_length": 0, "vocab_size": 50_280}
        | {"attention.head_count": 0, "ssm.conv_kernel": 4, "ssm.inner_size": 5120, "ssm.state_size": 16}
        | {"ssm.time_step_rank": 160},
        2_768_345_600,
        64 * (5120 * 16 * 2 + 3 * 5120 * 2),
    ),
    "Mamba-2 2.7B": (
        "mamba2",
        MAMBA2
        | {"block_count": 64, "embedding_length": 2560, "feed_forward_length": 0, "vocab_size": 50_288}
        | {"attention.head_count": 0, "ssm.inner_size": 5120, "ssm.time_step_rank": 80, "ssm.group_count": 1},
        None,
        64 * (5120 * 128 * 2 + 3 * (5120 + 2 * 128) * 2),
    ),
    "Jamba 1.5 Mini attends on 4 of 32 layers": (
        "jamba",
        LLAMA
        | {"vocab_size": 65_536, "attention.head_count_kv": kv_on({4, 12, 20, 28}, 32, 8)}
        | {"expert_count": 16, "expert_used_count": 2, "ssm.conv_kernel": 4, "ssm.inner_size": 8192}
        | {"ssm.state_size": 16, "ssm.time_step_rank": 256},
        51_570_323_328,
        2 * 4 * 8 * 128 * 2 * K32 + 28 * (8192 * 16 * 2 + 3 * 8192 * 2),
    ),
    "Granite 4.0 H Small attends on 4 of 40 layers": (
        "granitehybrid",
        LLAMA
        | MAMBA2
        | {"block_count": 40, "feed_forward_length": 1536, "vocab_size": 100_352}
        | {"attention.head_count_kv": kv_on({5, 15, 25, 35}, 40, 8), "ssm.inner_size": 8192}
        | {"ssm.time_step_rank": 128, "ssm.group_count": 1, "expert_count": 72, "expert_used_count": 10}
        | {"expert_feed_forward_length": 768, "expert_shared_feed_forward_length": 1536},
        None,
        2 * 4 * 8 * 128 * 2 * K32 + 36 * (8192 * 128 * 2 + 3 * (8192 + 2 * 128) * 2),
    ),
    "Falcon-H1 0.5B attends and keeps a state in each layer": (
        "falcon-h1",
        heads(64)
        | MAMBA2
        | {"block_count": 36, "embedding_length": 1024, "feed_forward_length": 2048, "vocab_size": 32_784}
        | {"attention.head_count": 8, "attention.head_count_kv": 2, "ssm.inner_size": 1536}
        | {"ssm.time_step_rank": 24, "ssm.group_count": 1},
        521_411_104,
        2 * 36 * 2 * 64 * 2 * K32 + 36 * (1536 * 128 * 2 + 3 * (1536 + 2 * 128) * 2),
    ),
    "Nemotron 3 Nano: a layer mixes or feeds forward": (
        "nemotron_h_moe",
        heads(128)
        | MAMBA2
        | {"block_count": 52, "embedding_length": 2688, "vocab_size": 131_072, "attention.head_count": 32}
        | {"attention.head_count_kv": [2 if letter == "*" else 0 for letter in NEMOTRON]}
        | {"feed_forward_length": [1856 if letter == "E" else 0 for letter in NEMOTRON]}
        | {"ssm.inner_size": 4096, "ssm.time_step_rank": 64, "ssm.group_count": 8, "expert_count": 128}
        | {"expert_used_count": 6, "expert_shared_count": 1, "expert_feed_forward_length": 1856}
        | {"expert_shared_feed_forward_length": 3712},
        31_577_937_344,
        2 * 6 * 2 * 128 * 2 * K32 + 23 * (4096 * 128 * 2 + 3 * (4096 + 2 * 8 * 128) * 2),
    ),
    "Qwen3-Next attends on every fourth layer": (
        "qwen3next",
        heads(256)
        | MAMBA2
        | {"block_count": 48, "embedding_length": 2048, "feed_forward_length": 5120, "vocab_size": 151_936}
        | {"attention.head_count": 16, "attention.head_count_kv": 2, "ssm.inner_size": 4096}
        | {"ssm.time_step_rank": 32, "ssm.group_count": 16, "expert_count": 512, "expert_used_count": 10}
        | {"expert_feed_forward_length": 512, "expert_shared_feed_forward_length": 512},
        79_674_391_296,
        2 * 12 * 2 * 256 * 2 * K32 + 36 * (4096 * 128 * 2 + 3 * (2 * 16 * 128 + 4096) * 2),
    ),
    "Kimi Linear 48B: latents on 7 of 27 layers": (
        "kimi-linear",
        LATENT
        | ABSORBED
        | {"block_count": 27, "embedding_length": 2304, "feed_forward_length": 9216, "vocab_size": 163_840}
        | {"attention.head_count": 32, "attention.head_count_kv": kv_on({i - 1 for i in KIMI_FULL}, 27, 1)}
        | {"ssm.conv_kernel": 4, "kda.head_dim": 128, "expert_count": 256, "expert_used_count": 8}
        | {"expert_shared_count": 1, "expert_feed_forward_length": 1024, "leading_dense_block_count": 1},
        49_122_675_072,
        7 * (512 + 64) * 2 * K32 + 20 * (32 * 128 * 128 * 4 + 3 * 3 * 32 * 128 * 2),
    ),
    "RWKV-6 3B keeps a state alone": (
        "rwkv6",
        {"block_count": 32, "embedding_length": 2560, "feed_forward_length": 8960, "vocab_size": 65_536}
        | {"attention.head_count": 0, "wkv.head_size": 64},
        None,
        32 * (2560 * 64 * 4 + 2 * 2560 * 2),
    ),
    "Phi-3 mini 4k slides on all layers": (
        "phi3",
        {"block_count": 32, "embedding_length": 3072, "feed_forward_length": 8192, "vocab_size": 32_064}
        | {"attention.head_count": 32, "attention.sliding_window": 2047},
        3_821_079_552,
        2 * 32 * 32 * 96 * 2 * 2047,
    ),
    "Falcon 7B has one KV head": (
        "falcon",
        {"block_count": 32, "embedding_length": 4544, "feed_forward_length": 18_176, "vocab_size": 65_024}
        | {"attention.head_count": 71, "attention.head_count_kv": 1},
        None,
        2 * 32 * 64 * 2 * K32,
    ),
    "a Nemotron-NAS model with attention on 9 of 10 layers": (
        "deci",
        LLAMA
        | {"block_count": 10, "feed_forward_length": [14_336] * 9 + [0]}
        | {"attention.head_count": [32] * 9 + [0], "attention.head_count_kv": [8] * 9 + [0]},
        None,
        2 * 9 * 8 * 128 * 2 * K32,
    ),
    "Step 3.5's heads differ by layer": (
        "step35",
        heads(128)
        | {"block_count": 8, "embedding_length": 4096, "feed_forward_length": 11_264, "vocab_size": 128_896}
        | {"attention.head_count": [64, 96, 96, 96] * 2, "attention.head_count_kv": [8, 8, 8, 8] * 2}
        | {"attention.sliding_window": 512, "attention.sliding_window_pattern": [False, True, True, True] * 2},
        None,
        2 * 8 * 128 * 2 * (2 * K32 + 6 * 512),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_header_reads_as_the_model(name: str, tmp_path: Path) -> None:
    arch, metadata, parameters, kept_bytes = MODELS[name]
    spec = read_config(read_gguf(written(tmp_path, arch, metadata)).config)
    assert kv_bytes_per_sequence(spec, context_tokens=K32) == kept_bytes
    if parameters is not None:
        assert spec.parameters.total == parameters


def test_every_architecture_of_the_table_is_one_of_llama_cpps() -> None:
    from kvcalc.reading.gguf_config import _table

    known = set(gguf.MODEL_ARCH_NAMES.values()) | {"deepseek32"}  # newer than the package
    assert set(_table().architectures) | set(_table().others) <= known


# Weights


def q4_k_m() -> Tensors:
    """Llama 3.1 8B as llama.cpp mixes Q4_K_M. Source: src/llama-quant.cpp, llama_tensor_get_type."""
    tensors: Tensors = {
        "token_embd.weight": ([128_256, 4096], Type.Q4_K),
        "output.weight": ([128_256, 4096], Type.Q6_K),
        "output_norm.weight": ([4096], Type.F32),
    }
    for i in range(32):
        more = Type.Q6_K if i < 4 or i >= 28 or (i - 4) % 3 == 2 else Type.Q4_K
        block: Tensors = {
            "attn_norm": ([4096], Type.F32),
            "ffn_norm": ([4096], Type.F32),
            "attn_q": ([4096, 4096], Type.Q4_K),
            "attn_k": ([1024, 4096], Type.Q4_K),
            "attn_v": ([1024, 4096], more),
            "attn_output": ([4096, 4096], Type.Q4_K),
            "ffn_gate": ([14_336, 4096], Type.Q4_K),
            "ffn_up": ([14_336, 4096], Type.Q4_K),
            "ffn_down": ([4096, 14_336], more),
        }
        tensors |= {f"blk.{i}.{name}.weight": tensor for name, tensor in block.items()}
    return tensors


def test_weights_are_the_bytes_of_the_tensor_list(tmp_path: Path) -> None:
    """4,912,898,048 bytes and 4.8944 bits per weight: llama.cpp's published table for this model and mix."""
    name = {"general.file_type": 15, "general.name": "Llama 3.1 8B"}
    model = read_gguf(written(tmp_path, "llama", LLAMA | name, q4_k_m()))
    assert (model.weights_bytes, model.stored_values) == (4_912_898_048, 8_030_261_248)
    assert sum(model.bytes_by_type.values()) == model.weights_bytes
    assert (model.label, model.file_type, model.weight_precision) == ("Llama 3.1 8B", "Q4_K_M", "q4_k_m")
    assert (model.tensor_count, model.parts, model.notes) == (3 + 32 * 9, 1, ())
    assert read_config(model.config).parameters.total == 8_030_261_248


def test_without_an_output_tensor_the_head_is_the_embedding(tmp_path: Path) -> None:
    tensors = q4_k_m()
    del tensors["output.weight"]
    config = read_gguf(written(tmp_path, "llama", LLAMA, tensors)).config
    assert config["tie_word_embeddings"] is True


def test_the_embedding_has_the_rows_of_its_tensor(tmp_path: Path) -> None:
    metadata = {key: value for key, value in LLAMA.items() if key != "vocab_size"} | {
        "tokenizer.ggml.tokens": ["a"] * 7
    }
    assert read_gguf(written(tmp_path, "llama", metadata)).config["vocab_size"] == 7
    assert read_gguf(written(tmp_path, "llama", metadata, q4_k_m())).config["vocab_size"] == 128_256


def test_the_tensor_list_tells_which_layers_route_and_how_wide_the_shared_expert_is(tmp_path: Path) -> None:
    metadata = LLAMA | {"block_count": 2, "expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": 64}
    tensors: Tensors = {
        "token_embd.weight": ([1000, 4096], Type.F16),
        "blk.1.ffn_gate_inp.weight": ([8, 4096], Type.F32),
        "blk.1.ffn_up_shexp.weight": ([96, 4096], Type.F16),
    }
    config = read_gguf(written(tmp_path, "qwen2moe", metadata, tensors)).config
    assert config["mlp_layer_types"] == ["dense", "sparse"]
    assert config["shared_expert_intermediate_size"] == 96


@pytest.mark.parametrize(
    ("number", "file_type", "precision"),
    [(1, "F16", "fp16"), (32, "BF16", "bf16"), (7, "Q8_0", "q8_0"), (38, "MXFP4_MOE", "mxfp4"), (30, "IQ4_XS", None)],
)
def test_a_file_type_is_a_precision_of_the_catalogue_or_said_to_be_none(
    tmp_path: Path, number: int, file_type: str, precision: str | None
) -> None:
    model = read_gguf(written(tmp_path, "llama", LLAMA | {"general.file_type": number}, q4_k_m()))
    assert (model.file_type, model.weight_precision) == (file_type, precision)
    assert [note.field for note in model.notes] == ([] if precision else ["general.file_type"])


def test_a_guessed_file_type_counts_like_a_stated_one(tmp_path: Path) -> None:
    assert read_gguf(written(tmp_path, "llama", LLAMA | {"general.file_type": 1024 + 15})).file_type == "Q4_K_M"


def test_the_first_of_several_files_describes_the_model_but_not_its_weight(tmp_path: Path) -> None:
    model = read_gguf(written(tmp_path, "llama", LLAMA | {"split.count": 3, "split.no": 0}, q4_k_m()))
    assert (model.parts, model.weights_bytes) == (3, None)
    assert "tie_word_embeddings" not in model.config
    assert "one of 3 files" in model.notes[0].text


def test_a_later_file_names_the_one_to_choose(tmp_path: Path) -> None:
    data = header([pair("split.no", 4, struct.pack("<I", 1)), pair("split.count", 4, struct.pack("<I", 3))])
    with pytest.raises(ConfigError, match=r"part 2.*-00001-of-"):
        read_gguf(data)


# Pieces of files


def test_the_start_of_a_file_is_enough(tmp_path: Path) -> None:
    path = written(tmp_path, "llama", LLAMA, q4_k_m())
    with path.open("ab") as file:
        file.write(bytes(100_000))  # tensor data that nobody looks at
    whole = read_gguf(path)
    assert read_gguf(path.read_bytes()) == whole
    assert read_gguf(path.read_bytes()[:-90_000]) == whole


def test_a_piece_that_ends_inside_the_tensor_list_still_has_the_config(tmp_path: Path) -> None:
    path = written(tmp_path, "llama", LLAMA, q4_k_m())
    model = read_gguf(path.read_bytes()[:-1_000])
    assert model.weights_bytes is None
    assert model.config["num_hidden_layers"] == 32
    assert "ends before its list of tensors does" in model.notes[0].text


def test_a_piece_that_ends_inside_the_metadata_asks_for_more(tmp_path: Path) -> None:
    data = written(tmp_path, "llama", LLAMA).read_bytes()
    for end in range(5, len(data)):
        with pytest.raises(ConfigError, match="the whole metadata"):
            read_gguf(data[:end])
    assert read_gguf(data).config["num_hidden_layers"] == 32


def test_a_big_endian_file_reads_the_same(tmp_path: Path) -> None:
    little = read_gguf(written(tmp_path, "llama", LLAMA, q4_k_m()))
    assert read_gguf(written(tmp_path, "llama", LLAMA, q4_k_m(), endianess=gguf.GGUFEndian.BIG)) == little


def test_a_large_vocabulary_is_walked_quickly_and_not_kept(tmp_path: Path) -> None:
    tokens = b"".join(struct.pack("<Q", 6) + b"token " for _ in range(262_144))
    array = pair("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 262_144) + tokens)
    started = time.process_time()
    found = read_header(header([array]))
    assert time.process_time() - started < 2
    assert found.lengths == {"tokenizer.ggml.tokens": 262_144}
    assert found.values == {}


# Damaged and hostile headers, byte by byte


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def pair(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def header(
    pairs: list[bytes], *, tensors: int = 0, keys: int | None = None, version: int = 3, rest: bytes = b""
) -> bytes:
    count = len(pairs) if keys is None else keys
    return b"GGUF" + struct.pack("<IQQ", version, tensors, count) + b"".join(pairs) + rest


def tensor(name: str, dimensions: list[int], kind: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(dimensions)}QIQ", len(dimensions), *dimensions, kind, 0)


ARCH = pair("general.architecture", 8, text("llama"))
HOSTILE = {
    "nothing": (b"", "an empty file"),
    "another file": (b"PK\x03\x04" + bytes(100), "another kind of file"),
    "a pointer": (b"version https://git-lfs.github.com/spec/v1", "another kind of file"),
    "version 1": (header([], version=1), "GGUF version: expected 2 or 3, got 1"),
    "version 4": (header([], version=4), "GGUF version: expected 2 or 3, got 4"),
    "more tensors than anything has": (header([], tensors=2**63), "at most 1,000,000 tensors"),
    "more keys than anything has": (header([], keys=2**63), "at most 10,000 metadata keys"),
    "a key longer than the file": (header([struct.pack("<Q", 60_000)]), "the whole metadata"),
    "a key of 2^63 bytes": (header([struct.pack("<Q", 2**63)]), "at most 65,535 bytes of text"),
    "a key that is no text": (header([struct.pack("<Q", 2) + b"\xff\xfe" + bytes(12)]), "UTF-8 text"),
    "a text longer than the file": (header([pair("a", 8, struct.pack("<Q", 2**63))]), "the whole metadata"),
    "an array of 2^63": (header([pair("a", 9, struct.pack("<IQ", 0, 2**63))]), "at most 4,000,000 items"),
    "an array longer than the file": (header([pair("a", 9, struct.pack("<IQ", 10, 3_000_000))]), "the whole metadata"),
    "texts longer than the file": (header([pair("a", 9, struct.pack("<IQ", 8, 3_000_000))]), "the whole metadata"),
    "a text of 2^64 - 1 in an array": (
        header([pair("a", 9, struct.pack("<IQQ", 8, 1, 2**64 - 1))]),
        "the whole metadata",
    ),
    "arrays in arrays": (header([pair("a", 9, struct.pack("<IQ", 9, 1) * 1000)]), "an array of arrays"),
    "an unknown type": (header([pair("a", 13, b"1234")]), "type 13"),
    "a key twice": (header([ARCH, ARCH]), "general.architecture: expected one value"),
    "no architecture": (header([]), "general.architecture: expected the name of an architecture"),
    "an architecture that is a number": (header([pair("general.architecture", 4, bytes(4))]), "general.architecture"),
    "an unknown architecture": (header([pair("general.architecture", 8, text("hal9000"))]), "'hal9000'"),
    "no layers": (header([ARCH]), "llama.block_count: expected a whole number, got nothing"),
    "layers that are no number": (header([ARCH, pair("llama.block_count", 6, struct.pack("<f", 32))]), "got 32.0"),
    "no layer at all": (header([ARCH, pair("llama.block_count", 4, bytes(4))]), "from 1 to 10,000 layers"),
    "four thousand million layers": (header([ARCH, pair("llama.block_count", 4, b"\xff" * 4)]), "10,000 layers"),
    "a tensor of five dimensions": (header([ARCH], tensors=1, rest=tensor("t", [1] * 5)), "at most 4 dimensions"),
    "a tensor of 2^63 values": (header([ARCH], tensors=1, rest=tensor("t", [2**63])), "values a side"),
    "a tensor twice": (header([ARCH], tensors=2, rest=tensor("t", [1]) * 2), "one tensor of this name"),
    "a tensor with an endless name": (header([ARCH], tensors=1, rest=text("t" * 300)), "GGUF tensor name"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_broken_header_is_refused_by_name_quickly_and_in_little_memory(name: str) -> None:
    data, says = HOSTILE[name]
    tracemalloc.start()
    started = time.process_time()
    with pytest.raises(ConfigError) as caught:
        read_gguf(data)
    elapsed, (_, peak) = time.process_time() - started, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert says in str(caught.value)
    assert elapsed < 2
    assert peak < 20 * 2**20


def test_a_hostile_key_is_not_echoed() -> None:
    key = "<script>\n" + "x" * 1000
    with pytest.raises(ConfigError) as caught:
        read_gguf(header([pair(key, 99, b"")]))
    assert "script" not in str(caught.value)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    tensors: Tensors = {"token_embd.weight": ([1000, 4096], Type.Q4_K), "blk.0.attn_q.bias": ([4096], Type.F32)}
    metadata = MODELS["Gemma 4 E2B has wider heads on its full layers"][1] | {"general.file_type": 15}
    return written(tmp_path_factory.mktemp("gguf"), "gemma4", metadata, tensors).read_bytes()


@settings(max_examples=300, deadline=None)
@given(
    changes=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=6),
    cut=st.integers(0, 10_000),
)
def test_no_damage_ends_in_anything_but_a_refusal_in_the_users_words(
    small: bytes, changes: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray(small)
    for at, value in changes:
        data[at % len(data)] = value
    if cut < len(data):
        del data[cut:]
    with suppress(ConfigError):
        read_config(read_gguf(bytes(data)).config)


def test_empty_texts_without_end_stop_at_the_limit() -> None:
    many = pair("a", 9, struct.pack("<IQ", 8, 3_000_000) + bytes(8 * 3_000_000))
    more = pair("b", 9, struct.pack("<IQ", 8, 3_000_000) + bytes(8 * 3_000_000))
    with pytest.raises(ConfigError, match="b: expected at most 1,000,000 items"):
        read_header(header([many, more]))


def test_only_the_start_of_the_bytes_is_looked_at() -> None:
    data = header([ARCH], keys=2, rest=bytes(LARGEST_HEADER_BYTES))
    with pytest.raises(ConfigError):
        read_gguf(data)


@pytest.mark.parametrize(
    ("arch", "says"),
    [("clip", "a vision projector"), ("bert", "an encoder-only model"), ("llada", "a diffusion model")],
)
def test_what_is_no_language_model_is_called_by_its_name(arch: str, says: str) -> None:
    with pytest.raises(ConfigError, match=f"expected a causal language model, got '{arch}: {says}"):
        read_gguf(header([pair("general.architecture", 8, text(arch))]))


def test_an_adapter_is_no_model() -> None:
    with pytest.raises(ConfigError, match="a file of type adapter"):
        read_gguf(header([ARCH, pair("general.type", 8, text("adapter"))]))


def test_a_list_shorter_than_the_layers_is_refused(tmp_path: Path) -> None:
    metadata = LLAMA | {"attention.head_count_kv": [8] * 31}
    with pytest.raises(ConfigError, match=r"llama\.attention\.head_count_kv: expected 32 entries"):
        read_gguf(written(tmp_path, "llama", metadata))


def test_rows_that_are_no_whole_blocks_are_refused() -> None:
    block_count = pair("llama.block_count", 4, struct.pack("<I", 2))
    with pytest.raises(ConfigError, match="rows of whole Q4_K blocks"):
        read_gguf(header([ARCH, block_count], tensors=1, rest=tensor("t", [100], int(Type.Q4_K))))


def test_a_storage_type_of_the_future_costs_the_weights_not_the_model(tmp_path: Path) -> None:
    data = written(tmp_path, "llama", LLAMA, {"token_embd.weight": ([1000, 4096], Type.F16)}).read_bytes()
    at = data.index(b"token_embd.weight") + len(b"token_embd.weight") + 4 + 2 * 8
    model: GgufModel = read_gguf(data[:at] + struct.pack("<I", 999) + data[at + 4 :])
    assert model.weights_bytes is None
    assert "newer than this calculator" in model.notes[0].text


@pytest.mark.parametrize("name", ["missing.gguf", "."])
def test_a_file_that_cannot_be_opened(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="model: expected a readable file"):
        read_gguf(tmp_path / name)


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "empty.gguf").touch()
    with pytest.raises(ConfigError, match="an empty file"):
        read_gguf(tmp_path / "empty.gguf")
