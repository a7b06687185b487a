"""What mixes tokens in each layer: the dialects' words resolved to kinds by the keys that size them."""

from __future__ import annotations

from collections.abc import Sequence

from kvcalc.errors import ConfigError
from kvcalc.reading.config import Config
from kvcalc.reading.layer_dialects import UNKNOWN, layer_count, layer_words
from kvcalc.reading.shape import Mixer
from kvcalc.reading.window import has_window


def read_layer_kinds(config: Config) -> tuple[Mixer, ...]:
    """What mixes tokens, per layer. Raises ConfigError naming the key that is unclear."""
    count = layer_count(config)
    words = layer_words(config, count)
    kinds = _Kinds(config)
    return tuple(kinds.of(word) for word in words)


class _Kinds:
    """Words to kinds: what 'full' and 'linear' mean in this model."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.latent = config.has("kv_lora_rank") and not _switched_off(config, "use_mla")
        self.window = has_window(config)

    def of(self, word: str) -> Mixer:
        if word in ("full", "indexed"):
            if word == "indexed" and not self.latent:
                raise ConfigError("kv_lora_rank", "a latent width for indexed_attention layers", hint=UNKNOWN)
            return "latent_attention" if self.latent else "full_attention"
        if word == "sliding":
            if self.latent:
                raise ConfigError(
                    "layer_types", "full attention in a model with latents", "sliding_attention", hint=UNKNOWN
                )
            return "sliding_attention" if self.window else "full_attention"
        if word == "linear":
            return linear_family(self.config)
        if word == "hybrid":
            family = linear_family(self.config)
            if family != "mamba2":
                raise ConfigError("layer_types", "Mamba-2 states in its hybrid layers", family, hint=UNKNOWN)
            return "hybrid:mamba2"
        simple: dict[str, Mixer] = {
            "chunked": "chunked_attention",
            "conv": "short_conv",
            "mlp": "mlp_only",
            "none": "none",
            "projection": "linear_projection",
            "cross": "cross_attention",
            "compressed": "compressed_attention",
        }
        return simple[word]


def linear_family(config: Config) -> Mixer:
    """Which recurrence a 'linear' layer is, by the keys that size it."""
    if config.model_type.startswith("rwkv"):
        return "rwkv"
    if config.has("linear_num_value_heads"):
        return "gated_delta_net"
    if config.section("linear_attn_config") is not None or config.has("linear_num_heads", "linear_head_dim"):
        return "kda"
    # A rank of the step size is Mamba-1's alone, but Mamba-2 configs may carry one unused; Zamba has heads as well.
    if config.has("mamba_n_heads", "mamba_num_heads", "mamba_headdim") or config.model_type == "mamba2":
        return "mamba2"
    if config.has("mamba_dt_rank", "time_step_rank"):
        return "mamba1"
    if config.has("n_mamba_heads"):
        return "mamba2"
    if config.has("mamba_d_state", "state_size", "ssm_state_size"):
        return "mamba1"
    if config.has("attn_type_list") or config.model_type.startswith(("minimax", "bailing_moe_linear")):
        return "lightning"
    raise ConfigError(
        "layer_types",
        "keys that size its linear_attention layers (linear_num_value_heads, mamba_d_state, …)",
        hint=UNKNOWN,
    )


def _switched_off(config: Config, key: str) -> bool:
    return config.has(key) and not config.flag(key)


def layers_of(kinds: Sequence[Mixer], *wanted: Mixer) -> tuple[int, ...]:
    """Indices of the layers of these kinds."""
    return tuple(i for i, kind in enumerate(kinds) if kind in wanted)
