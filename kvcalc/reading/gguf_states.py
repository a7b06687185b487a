"""GGUF metadata of recurrent layers → config keys: which layers keep a state, and of what size.

Source: llama.cpp src/llama-model.cpp at 00342301, load_hparams: how each architecture marks its recurrent layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kvcalc.errors import ConfigError

_DEFAULT_INTERVAL = 4
"""Full-attention period of Qwen3-Next files that do not say one."""
_PASTE = "Paste the model's config.json instead."


class Numbers(Protocol):
    """Metadata as this file needs it."""

    prefix: str
    layers: int

    def number(self, key: str) -> int | None:
        """A whole number, None when missing."""

    def required(self, key: str) -> int:
        """A whole number that must be there."""

    def per_layer(self, key: str) -> tuple[int, ...] | None:
        """One whole number per layer, None when missing."""


def state_keys(data: Numbers, recurrence: str, where: str, kv: Sequence[int]) -> dict[str, object]:
    """Config keys of the recurrent layers. Raises ConfigError naming the key that is missing or impossible."""
    sizes = {
        "mamba1": _mamba1,
        "mamba2": _mamba2,
        "gated_delta_net": _gated_delta_net,
        "kda": _kda,
        "short_conv": _short_conv,
        "rwkv": _rwkv,
    }[recurrence](data)
    if where == "pattern":
        return sizes | {"hybrid_override_pattern": _pattern(data, kv), "layer_types": None}
    recurrent = _recurrent_layers(data, where, kv)
    word = {"mamba1": "mamba", "mamba2": "mamba", "short_conv": "conv"}.get(recurrence, "linear_attention")
    if where == "beside":
        word = "hybrid"
    if recurrence == "kda":  # Kimi Linear counts its layers from 1
        sizes["full_attn_layers"] = [i + 1 for i, state in enumerate(recurrent) if not state]
        sizes["kda_layers"] = [i + 1 for i, state in enumerate(recurrent) if state]
        sizes = {"linear_attn_config": sizes}
    return sizes | {"layer_types": [word if state else "full_attention" for state in recurrent]}


def _recurrent_layers(data: Numbers, where: str, kv: Sequence[int]) -> tuple[bool, ...]:
    if where == "no_kv_heads":
        return tuple(heads == 0 for heads in kv)
    if where == "interval":
        interval = data.number("full_attention_interval") or _DEFAULT_INTERVAL
        return tuple((i + 1) % interval != 0 for i in range(data.layers))
    return (True,) * data.layers


def _pattern(data: Numbers, kv: Sequence[int]) -> str:
    """Nemotron-H: a layer attends, feeds forward, or, with neither KV heads nor a width, keeps a state."""
    widths = data.per_layer("feed_forward_length") or (0,) * data.layers
    feeds = "E" if data.number("expert_count") else "-"
    return "".join("*" if heads else feeds if width else "M" for heads, width in zip(kv, widths, strict=True))


def _divided(data: Numbers, key: str, total: int, parts: int) -> int:
    if parts < 1 or total < parts or total % parts:
        raise ConfigError(data.prefix + key, f"a multiple of {parts:,}", total, hint=_PASTE)
    return total // parts


def _mamba1(data: Numbers) -> dict[str, object]:
    inner = data.required("ssm.inner_size")
    return {
        "mamba_expand": _divided(data, "ssm.inner_size", inner, data.required("embedding_length")),
        "mamba_d_state": data.required("ssm.state_size"),
        "mamba_d_conv": data.required("ssm.conv_kernel"),
        "mamba_dt_rank": data.required("ssm.time_step_rank"),
    }


def _mamba2(data: Numbers) -> dict[str, object]:
    inner, heads = data.required("ssm.inner_size"), data.required("ssm.time_step_rank")
    return {
        "mamba_n_heads": heads,
        "mamba_d_head": _divided(data, "ssm.inner_size", inner, heads),
        "mamba_d_ssm": inner,
        "mamba_n_groups": data.required("ssm.group_count"),
        "mamba_d_state": data.required("ssm.state_size"),
        "mamba_d_conv": data.required("ssm.conv_kernel"),
    }


def _gated_delta_net(data: Numbers) -> dict[str, object]:
    inner, heads = data.required("ssm.inner_size"), data.required("ssm.time_step_rank")
    return {
        "linear_num_value_heads": heads,
        "linear_value_head_dim": _divided(data, "ssm.inner_size", inner, heads),
        "linear_num_key_heads": data.required("ssm.group_count"),
        "linear_key_head_dim": data.required("ssm.state_size"),
        "linear_conv_kernel_dim": data.required("ssm.conv_kernel"),
    }


def _kda(data: Numbers) -> dict[str, object]:
    return {
        "num_heads": max(data.per_layer("attention.head_count") or (0,)),
        "head_dim": data.required("kda.head_dim"),
        "short_conv_kernel_size": data.required("ssm.conv_kernel"),
    }


def _short_conv(data: Numbers) -> dict[str, object]:
    return {"conv_L_cache": data.required("shortconv.l_cache"), "conv_dim": data.required("embedding_length")}


def _rwkv(data: Numbers) -> dict[str, object]:
    return {"head_size": data.required("wkv.head_size"), "attention_hidden_size": data.required("embedding_length")}
