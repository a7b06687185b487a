"""GGUF metadata → the keys of a transformers config, so that one reader sizes both.

The tensor list, where it is there, settles what metadata leaves open: rows of the embedding, whether the head is a
table of its own, which layers route to experts and how wide the experts are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Literal

from pydantic import Field

from kvcalc.data import load_table
from kvcalc.errors import ConfigError, Record
from kvcalc.reading.gguf_header import GgufHeader, TensorInfo, whole
from kvcalc.reading.gguf_states import state_keys

_PASTE = "Paste the model's config.json instead."
_DAMAGED = "The metadata contradicts itself: use the model's config.json."
MOST_LAYERS = 10_000
_BLOCK = re.compile(r"blk\.(\d{1,5})\.(.+)")


class Architecture(Record):
    """What an architecture's name stands for."""

    model_type: str
    """Model type of the same architecture in transformers."""
    moe_type: str = ""
    """Model type when the file has experts, where that differs."""
    window_period: int = 0
    """Every so many layers one is full and the rest slide; 0: the file says, or all slide. [layers]"""
    full_first: bool = False
    """Whether a period starts with its full layer."""
    window_tokens: int = 0
    """Window when the file does not say; 0: none. [tokens]"""
    chunk_tokens: int = 0
    """Length of an aligned chunk, where layers attend inside chunks. [tokens]"""
    recurrence: Literal["", "mamba1", "mamba2", "gated_delta_net", "kda", "short_conv", "rwkv"] = ""
    """Kind of recurrent layer."""
    recurrent_layers: Literal["", "all", "no_kv_heads", "interval", "beside", "pattern"] = ""
    """Which layers are recurrent."""
    layers_with_kv: int = 0
    """First layers with a cache of their own when the file does not say; 0: all. [layers]"""
    keys: dict[str, bool] = Field(default_factory=dict)
    """Config keys that are always so."""


class _Table(Record):
    source: str
    checked: str
    architectures: dict[str, Architecture]
    others: dict[str, str]


@lru_cache(maxsize=1)
def _table() -> _Table:
    return load_table("gguf_architectures.toml", _Table)


def architecture(header: GgufHeader) -> tuple[str, Architecture]:
    """The header's architecture and its row. Raises ConfigError for anything but a known language model."""
    key = "general.architecture"
    name = header.values.get(key)
    if not isinstance(name, str):
        part = whole(header.values, "split.no")
        if part:
            hint = "Choose the first part, named …-00001-of-….gguf: only it holds the metadata."
            raise ConfigError("split.no", "the first part of a split file", f"part {part + 1}", hint=hint)
        raise ConfigError(key, "the name of an architecture", name, hint=_PASTE)
    kind = header.values.get("general.type", "model")
    what = _table().others.get(name)
    if what is None and kind != "model":
        what = f"a file of type {kind}"
    if what is not None:
        raise ConfigError(key, "a causal language model", f"{name}: {what}"[:70], hint="Choose the model's own file.")
    row = _table().architectures.get(name)
    if row is None:
        raise ConfigError(key, "an architecture whose cache is known", name, hint=_PASTE)
    return name, row


class Metadata:
    """The metadata of one architecture: keys without their prefix, lists trimmed to the decoder's layers."""

    def __init__(self, header: GgufHeader, name: str, tensors: Sequence[TensorInfo] | None) -> None:
        self.header = header
        self.prefix = f"{name}."
        self.mtp_layers = self.number("nextn_predict_layers") or 0
        self.layers = self.required("block_count") - self.mtp_layers
        if not 1 <= self.layers <= MOST_LAYERS:
            raise ConfigError(
                self.prefix + "block_count", f"from 1 to {MOST_LAYERS:,} layers", self.layers, hint=_DAMAGED
            )
        self.tensors = None if tensors is None else {tensor.name: tensor for tensor in tensors}

    def number(self, key: str) -> int | None:
        """A whole number, None when missing; of a list that repeats one number, that."""
        value = self.header.values.get(self.prefix + key)
        if isinstance(value, tuple):
            numbers = set(self.per_layer(key) or ())
            if len(numbers) != 1:
                raise ConfigError(self.prefix + key, "one number", "numbers that differ by layer", hint=_PASTE)
            return numbers.pop()
        return whole(self.header.values, self.prefix + key)

    def required(self, key: str) -> int:
        """A whole number that must be there."""
        found = self.number(key)
        if found is None:
            raise ConfigError(self.prefix + key, "a whole number", hint=_PASTE)
        return found

    def per_layer(self, key: str) -> tuple[int, ...] | None:
        """One whole number per decoder layer, from a number or a list; None when missing."""
        name = self.prefix + key
        value = self.header.values.get(name)
        if not isinstance(value, tuple):
            number = whole(self.header.values, name)
            return None if number is None else (number,) * self.layers
        if len(value) < self.layers:
            raise ConfigError(name, f"{self.layers} entries, one per layer", f"{len(value)} entries", hint=_DAMAGED)
        checked = (whole({name: int(item) if isinstance(item, bool) else item}, name) for item in value[: self.layers])
        return tuple(item or 0 for item in checked)

    def width(self, name: str, side: int = 1) -> int | None:
        """One side of a tensor: 0 its input, 1 its output; None when it or the list is missing. [values]"""
        tensor = (self.tensors or {}).get(name)
        return tensor.dimensions[side] if tensor is not None and len(tensor.dimensions) > side else None

    def block_width(self, suffix: str) -> int | None:
        """Output width of the first layer's tensor with this suffix. [values]"""
        found = next((name for name in self.tensors or () if _suffix(name) == suffix), None)
        return None if found is None else self.width(found)

    def layers_with(self, *suffixes: str) -> tuple[int, ...]:
        """Decoder layers that have a tensor with one of these suffixes."""
        found = set()
        for name in self.tensors or ():
            match = _BLOCK.fullmatch(name)
            if match and match[2] in suffixes and int(match[1]) < self.layers:
                found.add(int(match[1]))
        return tuple(sorted(found))


def _suffix(name: str) -> str:
    match = _BLOCK.fullmatch(name)
    return match[2] if match else ""


def hf_config(header: GgufHeader, tensors: Sequence[TensorInfo] | None) -> dict[str, object]:
    """A config.json with what the header says.

    tensors   every tensor of the model; None when the list is incomplete

    Raises ConfigError naming the key that is missing, impossible or unknown.
    """
    name, row = architecture(header)
    data = Metadata(header, name, tensors)
    experts = data.number("expert_count") or 0
    query = data.per_layer("attention.head_count") or (0,) * data.layers
    kv = data.per_layer("attention.head_count_kv") or query
    config: dict[str, object] = {
        "model_type": row.moe_type if row.moe_type and experts else row.model_type,
        "num_hidden_layers": data.layers,
        "hidden_size": data.required("embedding_length"),
        "vocab_size": _vocabulary(data),
        "max_position_embeddings": data.number("context_length"),
        "num_nextn_predict_layers": data.mtp_layers,
        **row.keys,
    }
    config |= _attention(data, query, kv)
    config |= _windows(data, row, query, kv)
    config |= _feed_forward(data, row, experts)
    config |= state_keys(data, row.recurrence, row.recurrent_layers, kv) if row.recurrence else {}
    config |= _of_family(data, row, query, kv)
    config |= _switches(data)
    return {key: value for key, value in config.items() if value is not None or key == "sliding_window"}


def _vocabulary(data: Metadata) -> int | None:
    tokens = data.header.lengths.get("tokenizer.ggml.tokens")
    return data.width("token_embd.weight") or data.number("vocab_size") or tokens


def _one_or_list(values: Sequence[int]) -> int | list[int]:
    return values[0] if len(set(values)) == 1 else list(values)


def _attention(data: Metadata, query: Sequence[int], kv: Sequence[int]) -> dict[str, object]:
    if not any(query):
        return {}
    key, value = data.number("attention.key_length"), data.number("attention.value_length")
    latent = data.number("attention.kv_lora_rank")
    if not latent:
        return {
            "num_attention_heads": _one_or_list(query),
            "num_key_value_heads": _one_or_list(kv),
            "head_dim": key,
            "v_head_dim": None if value == key else value,
        }
    # Files from before llama.cpp cached latents hold the heads' own widths under the plain names.
    key = data.number("attention.key_length_mla") or key or 0
    rotary = data.required("rope.dimension_count")
    if key <= rotary:
        raise ConfigError(data.prefix + "attention.key_length", f"more than {rotary}", key, hint=_DAMAGED)
    return {
        "num_attention_heads": max(query),
        "num_key_value_heads": max(query),
        "kv_lora_rank": latent,
        "q_lora_rank": data.number("attention.q_lora_rank"),
        "qk_rope_head_dim": rotary,
        "qk_nope_head_dim": key - rotary,
        "v_head_dim": data.number("attention.value_length_mla") or value,
        "index_n_heads": data.number("attention.indexer.head_count"),
        "index_head_dim": data.number("attention.indexer.key_length"),
        "index_topk": data.number("attention.indexer.top_k"),
    }


def _windows(data: Metadata, row: Architecture, query: Sequence[int], kv: Sequence[int]) -> dict[str, object]:
    """Which layers attend over everything, a window or a chunk. Recurrent layers are put in afterwards."""
    if not any(query):
        return {}
    declared = data.number("attention.sliding_window")
    window = row.window_tokens if declared is None else declared
    if row.chunk_tokens:
        window = 0 if declared == 0 else row.chunk_tokens
    slides = _sliding_layers(data, row) if window else (False,) * data.layers
    if slides is None:
        return {"sliding_window": window}
    word = "chunked_attention" if row.chunk_tokens else "sliding_attention"
    key = "attention_chunk_size" if row.chunk_tokens else "sliding_window"
    return {key: window or None, "layer_types": [word if slide else "full_attention" for slide in slides]}


def _sliding_layers(data: Metadata, row: Architecture) -> tuple[bool, ...] | None:
    """Whether each layer slides: as listed, by the file's period, by the architecture's; None when nobody says."""
    key = "attention.sliding_window_pattern"
    if isinstance(data.header.values.get(data.prefix + key), tuple):
        return tuple(bool(item) for item in data.per_layer(key) or ())
    period = data.number(key) or row.window_period
    if not period:
        return None
    full = 0 if row.full_first else period - 1
    return tuple(i % period != full for i in range(data.layers))


def _feed_forward(data: Metadata, row: Architecture, experts: int) -> dict[str, object]:
    widths = data.per_layer("feed_forward_length") or (0,) * data.layers
    config: dict[str, object] = {"n_routed_experts": experts, "intermediate_size": _one_or_list(widths) or None}
    if not experts:
        return config
    expert = data.number("expert_feed_forward_length") or data.block_width("ffn_up_exps.weight") or max(widths)
    shared = data.block_width("ffn_up_shexp.weight") if data.tensors is not None else _shared_width(data, expert)
    step = data.number("interleave_moe_layer_step") or 1
    config |= {
        "num_experts_per_tok": data.required("expert_used_count"),
        "moe_intermediate_size": expert,
        "n_shared_experts": 1 if shared else 0,
        "shared_expert_intermediate_size": shared or 0,
        "first_k_dense_replace": data.number("leading_dense_block_count") or 0,
        "moe_layer_interval": step,
    }
    if data.tensors is not None:
        routed = set(data.layers_with("ffn_gate_inp.weight"))
        config["mlp_layer_types"] = ["sparse" if i in routed else "dense" for i in range(data.layers)]
    if row.chunk_tokens:  # Llama 4 keeps its dense width under another key, and always has one shared expert
        del config["moe_layer_interval"]
        config |= {"interleave_moe_layer_step": step, "intermediate_size": expert, "intermediate_size_mlp": max(widths)}
    return config


def _shared_width(data: Metadata, expert: int) -> int:
    """Width of the shared experts together. [values]"""
    count = data.number("expert_shared_count")
    own = data.number("expert_shared_feed_forward_length")
    return own * (count or 1) if own else (count or 0) * expert


def _of_family(data: Metadata, row: Architecture, query: Sequence[int], kv: Sequence[int]) -> dict[str, object]:
    """Keys that only one family has."""
    config: dict[str, object] = {}
    swa_key = data.number("attention.key_length_swa")
    if swa_key and row.model_type.startswith("gemma4"):
        config |= _gemma4(data, swa_key)
    elif swa_key:
        config |= {"swa_head_dim": swa_key, "swa_v_head_dim": data.number("attention.value_length_swa")}
    own = data.layers - row.layers_with_kv if row.layers_with_kv else 0
    shared = data.number("attention.shared_kv_layers")
    if shared is not None or row.layers_with_kv:
        config["num_kv_shared_layers"] = own if shared is None else shared
    per_layer = data.number("embedding_length_per_layer_input")
    if per_layer is not None:
        config["hidden_size_per_layer_input"] = per_layer
    config |= _multi_query(row.model_type, query, kv)
    if row.model_type == "nemotron-nas":
        config |= _removed_blocks(data, query, kv)
    if row.keys.get("is_encoder_decoder"):
        config["num_decoder_layers"] = data.number("decoder_block_count") or data.layers
    return config


def _gemma4(data: Metadata, swa_key: int) -> dict[str, object]:
    """Gemma 4: wider heads on the full layers, which may use their keys as values."""
    values = set(data.layers_with("attn_v.weight"))
    keys_alone = bool(set(data.layers_with("attn_k.weight")) - values)
    return {
        "head_dim": swa_key,
        "global_head_dim": data.number("attention.key_length"),
        "attention_k_eq_v": keys_alone,
        "use_double_wide_mlp": False,  # the widths are listed as they are
        "enable_moe_block": bool(data.number("expert_count")),
    }


def _multi_query(model_type: str, query: Sequence[int], kv: Sequence[int]) -> Mapping[str, object]:
    """Families whose config says by a switch that all query heads share one KV head."""
    single = bool(kv) and max(kv) == 1
    if model_type == "falcon":
        return {"multi_query": single, "new_decoder_architecture": not single}
    if model_type == "gpt_bigcode":
        return {"multi_query": single}
    if model_type == "chatglm":
        return {"multi_query_attention": True, "multi_query_group_num": max(kv)}
    return {}


def _removed_blocks(data: Metadata, query: Sequence[int], kv: Sequence[int]) -> dict[str, object]:
    """Nemotron-NAS: no heads at all means no attention, query heads alone one matrix in its place."""
    widths = data.per_layer("feed_forward_length") or (0,) * data.layers
    blocks: list[dict[str, object]] = []
    for heads, kv_heads, width in zip(query, kv, widths, strict=True):
        attention: dict[str, object] = {"no_op": heads == 0, "replace_with_linear": heads > 0 and kv_heads == 0}
        if kv_heads:
            attention["n_heads_in_group"] = heads // kv_heads
        blocks.append({"attention": attention, "ffn": {"intermediate_size": width, "no_op": width == 0}})
    return {
        "block_configs": blocks,
        "layer_types": None,
        "num_attention_heads": max(query),
        "num_key_value_heads": None,
        "intermediate_size": max(widths),
    }


def _switches(data: Metadata) -> dict[str, object]:
    """What the tensor list shows: a head of its own, biases, norms of queries and keys."""
    if data.tensors is None:
        return {}
    return {
        "tie_word_embeddings": "output.weight" not in data.tensors,
        "attention_bias": bool(data.layers_with("attn_q.bias", "attn_qkv.bias")),
        "mlp_bias": bool(data.layers_with("ffn_up.bias")),
        "use_qk_norm": bool(data.layers_with("attn_q_norm.weight")),
    }
