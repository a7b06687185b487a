"""Query heads, key/value heads and their widths, per layer, out of every name they go by."""

from __future__ import annotations

from collections.abc import Sequence

from kvcalc.errors import ConfigError
from kvcalc.reading.config import Config, Section
from kvcalc.reading.layer_dialects import UNKNOWN
from kvcalc.reading.layer_kinds import layers_of
from kvcalc.reading.shape import Mixer
from kvcalc.reading.window import is_encoder_decoder

MOST_HEADS = 65_536
WIDEST_HEAD = 65_536

_QUERY_KEYS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "num_query_heads")
_KV_KEYS = (
    "num_key_value_heads",
    "num_kv_heads",
    "n_head_kv",
    "n_kv_heads",
    "num_multi_query_heads",
    "num_attention_groups",
)
_HEAD_DIM_KEYS = ("head_dim", "attention_head_dim", "d_kv", "head_size")
HIDDEN_KEYS = ("hidden_size", "n_embd", "n_embed", "d_model", "model_dim")
_ATTENTION: tuple[Mixer, ...] = (
    "full_attention",
    "sliding_attention",
    "chunked_attention",
    "cross_attention",
    "latent_attention",
    "compressed_attention",
    "hybrid:mamba2",
)


class Heads:
    """Per layer: query heads, KV heads, key and value width. Zero where a layer does not attend."""

    def __init__(self, config: Config, kinds: Sequence[Mixer]) -> None:
        self.config = config
        self.count = len(kinds)
        self.kinds = kinds
        attending = set(layers_of(kinds, *_ATTENTION))
        if not attending:
            self.query = self.kv = self.key_dim = self.value_dim = (0,) * self.count
            return
        query = list(_query_heads(config, self.count))
        kv = list(_kv_heads(config, query))
        if "latent_attention" in kinds:
            key_dim, value_dim = (
                [_latent_key_dim(config)] * self.count,
                [config.integer("v_head_dim", default=0)] * self.count,
            )
        else:
            key_dim = [_head_dim(config, max(query))] * self.count
            value_dim = [_value_dim(config, key_dim[0])] * self.count
        self._apply_layer_types(query, kv, key_dim, value_dim)
        self._apply_layer_overrides(query, kv, key_dim, value_dim)
        self._apply_blocks(query, kv)
        for i in attending:
            # The KV head count of a latent model means nothing for its cache.
            if kinds[i] not in ("latent_attention", "compressed_attention"):
                _check_groups(config, query[i], kv[i])
        keep = [i in attending for i in range(self.count)]
        self.query, self.kv, self.key_dim, self.value_dim = (
            tuple(value if keep[i] else 0 for i, value in enumerate(values))
            for values in (query, kv, key_dim, value_dim)
        )

    def _apply_layer_types(self, query: list[int], kv: list[int], key_dim: list[int], value_dim: list[int]) -> None:
        """Shapes that belong to one kind of layer: Gemma 4's global layers, MiMo's and Step's sliding ones."""
        config = self.config
        sliding = layers_of(self.kinds, "sliding_attention")
        if not sliding:
            return
        full = layers_of(self.kinds, "full_attention")
        step = config.section("attention_other_setting")
        for i in sliding:
            query[i] = config.integer("swa_num_attention_heads", default=query[i], minimum=1, maximum=MOST_HEADS)
            kv[i] = config.integer("swa_num_key_value_heads", default=kv[i], minimum=1, maximum=MOST_HEADS)
            key_dim[i] = config.integer("swa_head_dim", default=key_dim[i], minimum=1, maximum=WIDEST_HEAD)
            swa_value = key_dim[i] if not config.integer("v_head_dim", default=0) else value_dim[i]
            value_dim[i] = config.integer("swa_v_head_dim", default=swa_value, minimum=1, maximum=WIDEST_HEAD)
            if step is not None:
                query[i], kv[i], key_dim[i] = _step_heads(step, query[i], kv[i], key_dim[i])
                value_dim[i] = key_dim[i]
        global_dim = self._global_head_dim()
        for i in full:
            if global_dim is not None:
                key_dim[i] = value_dim[i] = global_dim
            if config.flag("attention_k_eq_v") or not config.has("attention_k_eq_v"):
                kv[i] = config.integer("num_global_key_value_heads", default=kv[i], minimum=1, maximum=MOST_HEADS)

    def _global_head_dim(self) -> int | None:
        if self.config.has("per_layer_config"):
            return None
        return self.config.integer("global_head_dim", default=None, minimum=1, maximum=WIDEST_HEAD)

    def _apply_layer_overrides(self, query: list[int], kv: list[int], key_dim: list[int], value_dim: list[int]) -> None:
        """transformers 5: ``per_layer_config`` {"5": {"head_dim": 512}} overrides single layers."""
        overrides = self.config.section("per_layer_config")
        if overrides is None:
            return
        for key in overrides.values:
            layer = int(key) if key.isdecimal() and len(key) < 8 else -1
            if not 0 <= layer < self.count:
                raise ConfigError(
                    f"per_layer_config.{key}", f"a layer from 0 to {self.count - 1}", key, hint="Correct the layer."
                )
            override = overrides.section(key)
            assert override is not None
            _refuse_unknown_overrides(override)
            query[layer] = override.integer("num_attention_heads", default=query[layer], minimum=1, maximum=MOST_HEADS)
            kv[layer] = override.integer("num_key_value_heads", default=kv[layer], minimum=1, maximum=MOST_HEADS)
            width = override.integer("head_dim", default=None, minimum=1, maximum=WIDEST_HEAD)
            if width is not None:
                key_dim[layer] = value_dim[layer] = width

    def _apply_blocks(self, query: list[int], kv: list[int]) -> None:
        """Nemotron-NAS: each block says how many query heads share a KV head."""
        for i, block in enumerate(self.config.sections("block_configs", count=self.count) or ()):
            attention = block.section("attention")
            if attention is not None and self.kinds[i] == "full_attention":
                group = attention.integer("n_heads_in_group", minimum=1)
                if query[i] % group:
                    name = attention.name("n_heads_in_group")
                    raise ConfigError(name, f"a divisor of num_attention_heads ({query[i]})", group, hint=_GROUPS)
                kv[i] = query[i] // group


_GROUPS = "Every KV head serves the same number of query heads."
_HARMLESS_OVERRIDES = {"head_dim", "num_attention_heads", "num_key_value_heads", "intermediate_size", "rope_parameters"}


def _refuse_unknown_overrides(override: Section) -> None:
    for key, value in override.values.items():
        if key not in _HARMLESS_OVERRIDES and value is not None:
            raise ConfigError(
                override.name(key),
                f"one of {', '.join(sorted(_HARMLESS_OVERRIDES))}",
                key,
                hint=UNKNOWN,
            )


def _step_heads(step: Section, query: int, kv: int, key_dim: int) -> tuple[int, int, int]:
    return (
        step.integer("num_attention_heads", default=query, minimum=1, maximum=MOST_HEADS),
        step.integer("num_attention_groups", "num_key_value_heads", default=kv, minimum=1, maximum=MOST_HEADS),
        step.integer("head_dim", default=key_dim, minimum=1, maximum=WIDEST_HEAD),
    )


def _query_heads(config: Config, count: int) -> tuple[int, ...]:
    keys = ("decoder_attention_heads", *_QUERY_KEYS) if is_encoder_decoder(config) else _QUERY_KEYS
    listed = config.per_layer("num_attention_heads_per_layer", count=count, minimum=0, maximum=MOST_HEADS)
    if listed is None:
        listed = config.per_layer(*keys, count=count, minimum=0, maximum=MOST_HEADS)
    if listed is None or not any(listed):
        return (config.integer(*keys, minimum=1, maximum=MOST_HEADS),) * count
    return listed


def _kv_heads(config: Config, query: Sequence[int]) -> tuple[int, ...]:
    """KV heads; absent means one per query head. A multi-query flag overrules what the file counts."""
    count = len(query)
    if config.has("multi_query") and not config.flag("new_decoder_architecture"):
        # Falcon-7B files carry num_kv_heads 71 beside multi_query true: the flag is what the code obeys.
        return (1,) * count if config.flag("multi_query") else tuple(query)
    if config.has("multi_query_attention"):
        if not config.flag("multi_query_attention"):
            return tuple(query)
        return (config.integer("multi_query_group_num", default=1, minimum=1, maximum=MOST_HEADS),) * count
    attention = config.section("attn_config")
    if attention is not None and attention.has("kv_n_heads"):
        return (attention.integer("kv_n_heads", minimum=1, maximum=MOST_HEADS),) * count
    listed = config.per_layer(*_KV_KEYS, count=count, minimum=0, maximum=MOST_HEADS)
    return tuple(query) if listed is None else listed


def _head_dim(config: Config, query: int) -> int:
    """Width of one head: declared, else the hidden size shared out evenly."""
    # Zero means undeclared: DeepSeek-VL2 writes it for widths its language model does not have.
    declared = config.integer(*_HEAD_DIM_KEYS, default=0, maximum=WIDEST_HEAD)
    if not declared and not config.has("mamba_expand"):
        declared = config.integer("kv_channels", default=0, maximum=WIDEST_HEAD)
    if declared:
        return declared
    # Zamba's attention works on twice the hidden size and says so.
    hidden = config.integer("attention_hidden_size", *HIDDEN_KEYS, minimum=1)
    if hidden % query:
        raise ConfigError(
            "hidden_size",
            f"a multiple of num_attention_heads ({query}) when there is no head_dim",
            hidden,
            hint="Add head_dim or correct the two.",
        )
    config.assume(
        "head_dim", f"{hidden // query}", f"hidden_size {hidden:,} / {query} heads; the file has no head_dim."
    )
    return hidden // query


def _latent_key_dim(config: Config) -> int:
    """Width of an MLA head's key once unpacked; the cache holds the latent instead."""
    return config.integer("qk_nope_head_dim", default=0, maximum=WIDEST_HEAD) + config.integer(
        "qk_rope_head_dim", default=0, maximum=WIDEST_HEAD
    )


def _value_dim(config: Config, key_dim: int) -> int:
    """Width of a value; the key's unless the file says otherwise (MiMo-V2: 192 and 128)."""
    return config.integer("v_head_dim", default=0, maximum=WIDEST_HEAD) or key_dim


def _check_groups(config: Config, query: int, kv: int) -> None:
    if kv < 1 or query % kv:
        name = "num_key_value_heads" if not config.has(*_KV_KEYS) else _shown_kv_key(config)
        raise ConfigError(name, f"a divisor of num_attention_heads ({query})", kv, hint=_GROUPS)


def _shown_kv_key(config: Config) -> str:
    return config.name(next(key for key in _KV_KEYS if config.has(key)))
