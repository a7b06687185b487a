"""The dialects in which configs say what mixes tokens in each layer, as one list of words.

A word or letter that is not known is refused by its place in the file: its cache size is unknown.
"""

from __future__ import annotations

from collections.abc import Callable

from kvcalc.errors import ConfigError
from kvcalc.reading.config import LAYER_COUNT_KEYS, Config, plain
from kvcalc.reading.window import WINDOW_KEYS, has_window, is_encoder_decoder, read_max_context

MOST_LAYERS = 10_000

UNKNOWN = "Its cache size is unknown, so no number is shown."
_LAYER_LISTS = ("layer_types", "layers_block_type", "mixer_types")
_WORDS: dict[str, str] = {
    "full_attention": "full",
    "attention": "full",
    "global": "full",
    "global_attention": "full",
    "indexed_attention": "indexed",
    "deepseek_sparse_attention": "indexed",
    "minimax_m3_sparse": "full",
    "sliding_attention": "sliding",
    "sliding_window_attention": "sliding",
    "local": "sliding",
    "local_attention": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "linear",
    "mamba": "linear",
    "mamba2": "linear",
    "conv": "conv",
    "hybrid": "hybrid",
    "moe": "mlp",
    "mlp": "mlp",
    "cross_attention": "cross",
    "compressed_sparse_attention": "compressed",
    "heavily_compressed_attention": "compressed",
}
_LETTERS = {"G": "full", "L": "sliding", "C": "chunked", "N": "linear", "S": "conv"}
_STATE_KEYS = ("mamba_d_state", "ssm_state_size", "state_size", "linear_num_value_heads", "conv_L_cache", "mamba_step")
_HYBRID_LETTERS = {"*": "full", "M": "linear", "-": "mlp", "E": "mlp"}


def layer_count(config: Config) -> int:
    """Decoder layers. A list of layers stands in for a missing count."""
    count = config.integer(*_count_keys(config), default=None, minimum=1, maximum=MOST_LAYERS)
    if count is not None:
        return count
    for key in (*_LAYER_LISTS, "hybrid_override_pattern"):
        value = config.get(key)
        if isinstance(value, list | tuple | str) and 0 < len(value) <= MOST_LAYERS:
            return len(value)
    return config.integer(*_count_keys(config), minimum=1, maximum=MOST_LAYERS)


def _count_keys(config: Config) -> tuple[str, ...]:
    """In an encoder-decoder the plain names count the encoder, so the decoder's own name comes first."""
    if is_encoder_decoder(config):
        return ("decoder_layers", "num_decoder_layers", *LAYER_COUNT_KEYS)
    return LAYER_COUNT_KEYS


def layer_words(config: Config, count: int) -> list[str]:
    for dialect in _DIALECTS:
        words = dialect(config, count)
        if words is not None:
            return words
    for key in _STATE_KEYS:
        if config.has(key):
            raise ConfigError(
                "layer_types",
                f"a list that tells recurrent layers from attention (the file has {key})",
                hint=UNKNOWN,
            )
    return ["full"] * count


def _from_ratios(config: Config, count: int) -> list[str] | None:
    return ["compressed"] * count if config.has("compress_ratios") else None


def _from_block_configs(config: Config, count: int) -> list[str] | None:
    """Nemotron-NAS: attention kept, removed, or replaced by one matrix."""
    blocks = config.sections("block_configs", count=count)
    if blocks is None:
        return None
    words = []
    for block in blocks:
        attention = block.section("attention")
        if attention is None or attention.flag("no_op"):
            words.append("none")
        elif attention.flag("replace_with_linear"):
            words.append("projection")
        else:
            words.append("full")
    return words


def _from_hybrid_pattern(config: Config, count: int) -> list[str] | None:
    """Nemotron-H: one letter per layer."""
    pattern = config.string("hybrid_override_pattern")
    if pattern is None:
        return None
    if len(pattern) != count:
        raise _wrong_length("hybrid_override_pattern", count, len(pattern))
    return [_word(_HYBRID_LETTERS, letter, f"hybrid_override_pattern[{i}]") for i, letter in enumerate(pattern)]


def _from_layer_list(config: Config, count: int) -> list[str] | None:
    for key in _LAYER_LISTS:
        names = config.strings(key)
        if names is None:
            continue
        if len(names) != count:
            raise _wrong_length(key, count, len(names))
        return [_word(_WORDS, name, f"{key}[{i}]") for i, name in enumerate(names)]
    return None


def _from_gpt_neo(config: Config, count: int) -> list[str] | None:
    names = config.strings("attention_layers", count=count)
    return None if names is None else [_word(_WORDS, name, f"attention_layers[{i}]") for i, name in enumerate(names)]


def _from_linear_attn_config(config: Config, count: int) -> list[str] | None:
    """Kimi Linear: two lists of layers counted from 1."""
    section = config.section("linear_attn_config")
    if section is None:
        return None
    full = section.integers("full_attn_layers", minimum=1, maximum=count) or ()
    linear = section.integers("kda_layers", minimum=1, maximum=count) or ()
    if len(full) + len(linear) != count or len(set(full) | set(linear)) != count:
        listed = f"{len(set(full) | set(linear))} listed"
        raise ConfigError("linear_attn_config", f"each of {count} layers once", listed, hint=UNKNOWN)
    return _marked(count, {layer - 1 for layer in full}, "full", "linear")


def _from_attn_type_list(config: Config, count: int) -> list[str] | None:
    """MiniMax: 1 softmax attention, 0 lightning."""
    types = config.integers("attn_type_list", count=count, maximum=1)
    return None if types is None else ["full" if kind else "linear" for kind in types]


def _from_hybrid_layer_pattern(config: Config, count: int) -> list[str] | None:
    """MiMo-V2: 0 is full, 1 is sliding."""
    types = config.integers("hybrid_layer_pattern", count=count, maximum=1)
    return None if types is None else ["sliding" if kind else "full" for kind in types]


def _from_layer_indices(config: Config, count: int) -> list[str] | None:
    for key, other in (("full_attn_idxs", "conv"), ("attn_layer_indices", "linear"), ("hybrid_layer_ids", "linear")):
        # Falcon-H1 has the key too, null: there every layer attends and keeps a state.
        indices = config.integers(key, maximum=count - 1)
        if indices is not None:
            return _marked(count, set(indices), "hybrid" if key == "hybrid_layer_ids" else "full", other)
    return None


def _from_cross_layers(config: Config, count: int) -> list[str] | None:
    """Mllama: some layers attend to the image instead of the text."""
    indices = config.integers("cross_attention_layers", maximum=count - 1)
    return None if indices is None else _marked(count, set(indices), "cross", "full")


def _from_period(config: Config, count: int) -> list[str] | None:
    period = config.integer("attn_layer_period", default=None, minimum=1)
    if period is not None:  # Jamba
        offset = config.integer("attn_layer_offset", default=0)
        return ["full" if i % period == offset else "linear" for i in range(count)]
    period = config.integer("full_attention_interval", "layer_group_size", default=None, minimum=1)
    if period is not None:  # Qwen3-Next, Ring
        return ["linear" if (i + 1) % period else "full" for i in range(count)]
    return None


def _from_chunks(config: Config, count: int) -> list[str] | None:
    """Llama 4: layers without rotary positions are global, the rest attend inside chunks."""
    if not config.declares("attention_chunk_size") and not config.has("no_rope_layer_interval"):
        return None
    if config.integer("attention_chunk_size", default=None, minimum=1) is None:
        return None
    listed = config.integers("no_rope_layers", maximum=1)
    if listed:
        if len(listed) != count:
            raise _wrong_length("no_rope_layers", count, len(listed))
        return ["chunked" if rotary else "full" for rotary in listed]
    interval = config.integer("no_rope_layer_interval", default=4, minimum=1)
    return ["chunked" if (i + 1) % interval else "full" for i in range(count)]


def _from_family(config: Config, count: int) -> list[str] | None:
    """Families whose every layer is alike and not plain attention."""
    word = {"falcon_h1": "hybrid", "mamba": "linear", "mamba2": "linear", "falcon_mamba": "linear"}.get(
        config.model_type
    )
    if word is None and config.model_type.startswith("rwkv"):
        word = "linear"
    return None if word is None else [word] * count


def _from_window_pattern(config: Config, count: int) -> list[str] | None:
    """Every Nth layer full and the rest sliding; or letters, L local and G global, repeated."""
    if not has_window(config):
        return None
    for key in ("sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers"):
        value = config.get(key)
        if isinstance(value, str) and value:
            return [_word(_LETTERS, value[i % len(value)], key) for i in range(count)]
        if value is not None:
            every = config.integer(key, minimum=1, maximum=MOST_LAYERS)
            return ["sliding" if (i + 1) % every else "full" for i in range(count)]
    return None


def _from_class_pattern(config: Config, count: int) -> list[str] | None:
    letters = config.string("layer_pattern")
    if letters is None or (set(letters) <= {"G", "L"} and not has_window(config)):
        return None
    config.assume(
        "layer_types",
        f"{letters} repeated (L sliding, G full, N linear)",
        f"Not in the file: the pattern of the {config.model_type} class.",
    )
    return [_word(_LETTERS, letters[i % len(letters)], "layer_pattern") for i in range(count)]


def _from_uniform_window(config: Config, count: int) -> list[str] | None:
    """One window for every layer, or for those from max_window_layers on. As long as the context it is none."""
    if not config.has(*WINDOW_KEYS) or not has_window(config):
        return None
    window, context = config.integer(*WINDOW_KEYS, minimum=1), read_max_context(config)
    if context is not None and window >= context:
        return None
    full_layers = config.integer("max_window_layers", default=0)
    if full_layers == 0:
        config.assume(
            WINDOW_KEYS[0],
            f"{window:,} tokens on all {count} layers",
            "The file names no pattern of layers, so the window holds on each.",
        )
    return ["full" if i < full_layers else "sliding" for i in range(count)]


_DIALECTS: tuple[Callable[[Config, int], list[str] | None], ...] = (
    _from_ratios,
    _from_block_configs,
    _from_hybrid_pattern,
    _from_layer_list,
    _from_gpt_neo,
    _from_linear_attn_config,
    _from_attn_type_list,
    _from_hybrid_layer_pattern,
    _from_layer_indices,
    _from_cross_layers,
    _from_period,
    _from_family,
    _from_window_pattern,
    _from_chunks,
    _from_class_pattern,
    _from_uniform_window,
)


def _marked(count: int, marked: set[int], word: str, other: str) -> list[str]:
    return [word if i in marked else other for i in range(count)]


def _word(known: dict[str, str], name: str, place: str) -> str:
    word = known.get(name)
    if word is None:
        raise ConfigError(place, f"one of {', '.join(known)}", plain(name), hint=UNKNOWN)
    return word


def _wrong_length(key: str, count: int, got: int) -> ConfigError:
    return ConfigError(
        key,
        f"{count:,} entries, one per layer",
        f"{got:,} entries",
        hint="Make the list and num_hidden_layers agree.",
    )
