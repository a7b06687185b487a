"""params.json of Mistral, Meta and DeepSeek's own code → the keys of a transformers config.

Native files name the same things differently (``dim``, ``n_layers``) and leave the type out; the structure is
told by the keys that are there.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import floor

from kvcalc.reading.config import Section
from kvcalc.units import ceil_div

_RENAMED = {
    "dim": "hidden_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "hidden_dim": "intermediate_size",
    "inter_dim": "intermediate_size",
    "max_seq_len": "max_position_embeddings",
    "max_position_embeddings": "max_position_embeddings",
    "tied_embeddings": "tie_word_embeddings",
    "moe_inter_dim": "moe_intermediate_size",
    "n_activated_experts": "num_experts_per_tok",
    "n_dense_layers": "first_k_dense_replace",
    "rope_head_dim": "qk_rope_head_dim",
    "window_size": "sliding_window",
    "n_hash_layers": "num_hash_layers",
    "n_mtp_layers": "num_nextn_predict_layers",
    "norm_eps": "rms_norm_eps",
    "score_func": "scoring_func",
    "attention_qkv_bias": "attention_bias",
    "use_biases": "attention_bias",
}
_MOE_RENAMED = {
    "num_experts": "num_local_experts",
    "num_experts_per_tok": "num_experts_per_tok",
    "expert_hidden_dim": "moe_intermediate_size",
    "first_k_dense_replace": "first_k_dense_replace",
    "num_shared_experts": "n_shared_experts",
}


def is_native(raw: Mapping[str, object]) -> bool:
    """Whether the file is a params.json rather than a config.json."""
    return "dim" in raw and "n_layers" in raw and "hidden_size" not in raw


def translate(raw: Mapping[str, object]) -> dict[str, object]:
    """The same facts under the names that a transformers config uses."""
    config: dict[str, object] = {}
    for key, value in raw.items():
        if value is not None:
            config.setdefault(_RENAMED.get(key, key), value)
    if raw.get("dtype") == "fp8":  # DeepSeek's own code: FP8 weights in blocks of 128 x 128
        config["dtype"] = "bfloat16"
        config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    elif raw.get("dtype") == "bf16":
        config["dtype"] = "bfloat16"
    _add_moe(raw, config)
    if config.get("q_lora_rank") == 0:
        del config["q_lora_rank"]
    if "intermediate_size" not in config and "multiple_of" in raw:
        config["intermediate_size"] = _meta_ffn_width(Section(raw))
    config["model_type"] = _model_type(config)
    if isinstance(raw.get("vision_encoder"), Mapping):
        config["vision_encoder"] = raw["vision_encoder"]
    return config


def _add_moe(raw: Mapping[str, object], config: dict[str, object]) -> None:
    moe = raw.get("moe")
    if not isinstance(moe, Mapping):
        return
    del config["moe"]
    for key, value in moe.items():
        if value is not None:
            config[_MOE_RENAMED.get(str(key), str(key))] = value


def _model_type(config: Mapping[str, object]) -> str:
    if config.get("compress_ratios") is not None:
        return "deepseek_v4"
    if config.get("kv_lora_rank") is not None:
        return "deepseek_v32" if config.get("index_head_dim") is not None else "deepseek_v3"
    if config.get("num_local_experts") is not None:
        return "mixtral"
    return "lfm2" if config.get("layer_types") is not None and "conv" in str(config["layer_types"]) else "mistral"


def _meta_ffn_width(raw: Section) -> int:
    """Source: Meta's llama reference code, ``FeedForward``: int(2/3 of 4 dim), times the multiplier, rounded up."""
    width = 2 * 4 * raw.integer("dim", minimum=1) // 3
    multiplier = raw.rational("ffn_dim_multiplier", default=Fraction(1)) or Fraction(1)
    multiple = raw.integer("multiple_of", minimum=1)
    return multiple * ceil_div(floor(multiplier * width), multiple)
