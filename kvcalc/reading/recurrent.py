"""Recurrent mixers: heads, widths and state of one layer, by family.

Sources: vLLM 0.32 ``mamba_utils.py`` (MambaStateShapeCalculator); transformers 5.24 modelling files.
"""

from __future__ import annotations

from kvcalc.errors import Record
from kvcalc.reading.config import Config, Section
from kvcalc.reading.shape import Mixer

MOST_HEADS = 1_000_000
WIDEST = 10**8


class StateFacts(Record):
    """One recurrent layer's sizes."""

    heads: int = 0
    """Heads, or channels where there are no heads. [heads]"""
    head_dim: int = 0
    """Width of a head's value. [values]"""
    key_heads: int = 0
    """Key heads (Gated DeltaNet), groups (Mamba-2). [heads]"""
    key_dim: int = 0
    """Width of a head's key: Mamba's state size. [values]"""
    kernel: int = 0
    """Taps of the short convolution; 0 without one. [tokens]"""
    inner: int = 0
    """Inner width. [values]"""


def read_state(config: Config, family: Mixer | None, hidden_size: int) -> StateFacts:
    """Sizes of a layer of this family; all zero for None. Raises ConfigError naming a missing key."""
    readers = {
        "mamba1": _mamba1,
        "mamba2": _mamba2,
        "gated_delta_net": _gated_delta_net,
        "kda": _kda,
        "lightning": _lightning,
        "rwkv": _rwkv,
        "short_conv": _short_conv,
    }
    return StateFacts() if family is None else readers[family](config, hidden_size)


def _mamba1(config: Config, hidden_size: int) -> StateFacts:
    expand = config.integer("mamba_expand", "expand", default=2, minimum=1, maximum=1000)
    inner = expand * hidden_size
    return StateFacts(
        heads=inner,
        head_dim=1,
        key_dim=config.integer("mamba_d_state", "state_size", "ssm_state_size", default=16, minimum=1, maximum=WIDEST),
        kernel=_kernel(config),
        inner=inner,
    )


def _mamba2(config: Config, hidden_size: int) -> StateFacts:
    heads = config.integer(
        "mamba_n_heads", "mamba_num_heads", "n_mamba_heads", "num_heads", minimum=1, maximum=MOST_HEADS
    )
    keys: tuple[str, ...] = ("mamba_d_head", "mamba_head_dim", "mamba_headdim")
    if config.model_type == "mamba2":
        keys = (*keys, "head_dim")
    if config.get(*keys) in (None, "auto"):
        expand = config.integer("mamba_expand", "expand", default=2, minimum=1, maximum=1000)
        inner = config.integer("mamba_d_ssm", default=expand * hidden_size, minimum=1, maximum=WIDEST)
        head_dim = inner // heads
    else:
        head_dim = config.integer(*keys, minimum=1, maximum=WIDEST)
    return StateFacts(
        heads=heads,
        head_dim=head_dim,
        key_heads=config.integer(
            "mamba_n_groups", "n_groups", "mamba_ngroups", default=1, minimum=1, maximum=MOST_HEADS
        ),
        key_dim=config.integer("mamba_d_state", "ssm_state_size", "state_size", minimum=1, maximum=WIDEST),
        kernel=_kernel(config),
        inner=heads * head_dim,
    )


def _gated_delta_net(config: Config, hidden_size: int) -> StateFacts:
    value_heads = config.integer("linear_num_value_heads", minimum=1, maximum=MOST_HEADS)
    value_dim = config.integer("linear_value_head_dim", minimum=1, maximum=WIDEST)
    return StateFacts(
        heads=value_heads,
        head_dim=value_dim,
        key_heads=config.integer("linear_num_key_heads", minimum=1, maximum=MOST_HEADS),
        key_dim=config.integer("linear_key_head_dim", minimum=1, maximum=WIDEST),
        kernel=config.integer("linear_conv_kernel_dim", default=4, minimum=1, maximum=1000),
        inner=value_heads * value_dim,
    )


def _kda(config: Config, hidden_size: int) -> StateFacts:
    section: Section = config.section("linear_attn_config") or config
    heads = section.integer("num_heads", "linear_num_heads", default=None, minimum=1, maximum=MOST_HEADS)
    if heads is None or section is config:
        heads = config.integer("linear_num_heads", "num_attention_heads", minimum=1, maximum=MOST_HEADS)
    width = section.integer("linear_head_dim", "head_dim", minimum=1, maximum=WIDEST)
    kernel = section.integer("short_conv_kernel_size", "linear_conv_kernel_dim", default=4, minimum=1, maximum=1000)
    return StateFacts(heads=heads, head_dim=width, key_heads=heads, key_dim=width, kernel=kernel, inner=heads * width)


def _lightning(config: Config, hidden_size: int) -> StateFacts:
    heads = config.integer("num_attention_heads", minimum=1, maximum=MOST_HEADS)
    width = config.integer("head_dim", default=max(1, hidden_size // heads), minimum=1, maximum=WIDEST)
    return StateFacts(heads=heads, head_dim=width, key_heads=heads, key_dim=width, inner=heads * width)


def _rwkv(config: Config, hidden_size: int) -> StateFacts:
    """From version 5 a matrix per head; before, three vectors. The token shift is a convolution of two taps
    in both the time mix and the channel mix."""
    inner = config.integer("attention_hidden_size", default=hidden_size, minimum=1, maximum=WIDEST)
    if config.model_type == "rwkv":
        return StateFacts(heads=inner, head_dim=1, key_dim=3, kernel=3, inner=inner)
    width = config.integer("head_size", "head_dim", default=64, minimum=1, maximum=WIDEST)
    heads = max(1, inner // width)
    return StateFacts(heads=heads, head_dim=width, key_heads=heads, key_dim=width, kernel=3, inner=inner)


def _short_conv(config: Config, hidden_size: int) -> StateFacts:
    width = config.integer("conv_dim", default=hidden_size, minimum=1, maximum=WIDEST)
    kernel = config.integer("conv_L_cache", default=3, minimum=1, maximum=1000)
    return StateFacts(heads=width, head_dim=1, kernel=kernel, inner=width)


def _kernel(config: Config) -> int:
    return config.integer("mamba_d_conv", "conv_kernel", default=4, minimum=1, maximum=1000)
