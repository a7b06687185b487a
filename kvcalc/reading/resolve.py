"""Config → Shape: every dialect settled, so that the cache and the weights read the same facts."""

from __future__ import annotations

from collections.abc import Sequence

from kvcalc.errors import ConfigError
from kvcalc.reading.config import Config
from kvcalc.reading.feed_forward import is_gated, read_dense_widths, read_experts
from kvcalc.reading.heads import HIDDEN_KEYS, Heads
from kvcalc.reading.layer_dialects import UNKNOWN
from kvcalc.reading.layer_kinds import layers_of, read_layer_kinds
from kvcalc.reading.recurrent import read_state
from kvcalc.reading.shape import Mixer, Shape
from kvcalc.reading.unknown_structure import refuse_unknown_structure
from kvcalc.reading.window import is_encoder_decoder, read_window

WIDEST = 10**7
LONGEST_VOCABULARY = 10**8

_RECURRENT: tuple[Mixer, ...] = (
    "mamba1",
    "mamba2",
    "gated_delta_net",
    "kda",
    "lightning",
    "rwkv",
    "short_conv",
    "hybrid:mamba2",
)


def read_shape(config: Config) -> Shape:
    """The shape of the language model. Raises ConfigError naming the key that is missing or impossible."""
    refuse_unknown_structure(config)
    kinds = read_layer_kinds(config)
    count = len(kinds)
    hidden_size = config.integer(*HIDDEN_KEYS, minimum=1, maximum=WIDEST)
    heads = Heads(config, kinds)
    experts = read_experts(config, kinds)
    state = read_state(config, _recurrent_family(config, kinds), hidden_size)
    latent = any(kind in ("latent_attention", "compressed_attention") for kind in kinds)
    windowed = any(kind in ("sliding_attention", "compressed_attention") for kind in kinds)
    return Shape(
        model_type=config.model_type,
        num_layers=count,
        hidden_size=hidden_size,
        vocab_size=_vocabulary(config),
        layer_kinds=kinds,
        query_heads=heads.query,
        kv_heads=heads.kv,
        key_dim=heads.key_dim,
        value_dim=heads.value_dim,
        # LongCat-Flash: each of num_layers layers has two attention blocks (and no other layer count).
        attention_per_layer=2 if config.model_type.startswith("longcat_flash") else 1,
        shares_kv=_shared_layers(config, count),
        tie_word_embeddings=_tied(config),
        intermediate_size=read_dense_widths(config, kinds, experts, hidden_size),
        gated_ffn=is_gated(config),
        moe_layers=experts.layers,
        num_experts=experts.count,
        experts_per_token=experts.per_token,
        expert_intermediate_size=experts.width,
        shared_intermediate_size=experts.shared_width,
        kv_lora_rank=_latent_width(config, "kv_lora_rank", needed="latent_attention" in kinds),
        q_lora_rank=_latent_width(config, "q_lora_rank", needed=False) if latent else 0,
        qk_nope_head_dim=_latent_width(config, "qk_nope_head_dim", needed=False) if latent else 0,
        qk_rope_head_dim=config.integer("qk_rope_head_dim", maximum=WIDEST) if latent else 0,
        v_head_dim=_latent_width(config, "v_head_dim", needed=False) if latent else 0,
        index_heads=_index_size(config, "index_n_heads", "sparse_num_index_heads"),
        index_head_dim=_index_size(config, *_INDEX_WIDTH),
        index_pool_tokens=config.integer("index_kpool", default=1, minimum=1, maximum=10**6),
        index_topk=config.integer("index_topk", default=0, maximum=10**9),
        indexer_layers=_indexer_layers(config, kinds),
        compress_ratios=_compress_ratios(config, kinds),
        window_tokens=_window(config, kinds, windowed=windowed),
        encoder_layers=_encoder_layers(config),
        source_tokens=_source_tokens(config, kinds),
        mtp_layers=config.integer(
            "num_nextn_predict_layers",
            "mtp_num_hidden_layers",
            "num_mtp_modules",
            "num_mtp_layers",
            default=0,
            maximum=1000,
        ),
        state_heads=state.heads,
        state_head_dim=state.head_dim,
        state_key_heads=state.key_heads,
        state_key_dim=state.key_dim,
        conv_kernel=state.kernel,
        state_inner=state.inner,
    )


def _vocabulary(config: Config) -> int:
    """Rows of the embedding: as stated, else the class default."""
    keys = ("vocab_size", "padded_vocab_size")
    if not config.has(*keys):
        default = config.class_default("vocab_size")
        if default is not None:
            return default
    return config.integer(*keys, minimum=1, maximum=LONGEST_VOCABULARY)


def _recurrent_family(config: Config, kinds: Sequence[Mixer]) -> Mixer | None:
    families = {kind for kind in kinds if kind in _RECURRENT}
    families = {"mamba2" if kind == "hybrid:mamba2" else kind for kind in families}
    if len(families) > 1:
        raise ConfigError(
            "layer_types",
            "one kind of recurrent layer",
            ", ".join(sorted(families)),
            hint=UNKNOWN,
        )
    return families.pop() if families else None


def _latent_width(config: Config, key: str, *, needed: bool) -> int:
    if needed:
        return config.integer(key, minimum=1, maximum=WIDEST)
    return config.integer(key, default=0, maximum=WIDEST)


def _tied(config: Config) -> bool:
    return config.flag("tie_word_embeddings", "share_input_output_layers")


def _shared_layers(config: Config, count: int) -> tuple[int, ...]:
    """Layers without a cache of their own: the last of Gemma 3n/4, every other one under CLA, or as listed."""
    shared = config.integer("num_kv_shared_layers", default=0, maximum=count)
    if shared:
        return tuple(range(count - shared, count))
    if config.flag("use_cla"):
        factor = config.integer("cla_share_factor", default=2, minimum=1, maximum=count)
        return tuple(i for i in range(count) if i % factor)
    sources = config.integers("kv_source_layers", maximum=count - 1, count=count)
    return tuple(i for i, source in enumerate(sources or ()) if source != i)


def _indexer_layers(config: Config, kinds: Sequence[Mixer]) -> tuple[int, ...]:
    """Layers that run their own sparse indexer; the others reuse the last one's choice and store no index keys.

    Source: transformers 5.24 ``configuration_glm_moe_dsa.py`` for the frequency rule,
    ``configuration_minimax_m3_vl.py`` for MiniMax-M3.
    """
    if not _index_size(config, *_INDEX_WIDTH):
        return ()
    latent = layers_of(kinds, "latent_attention")
    if not latent:
        return _block_sparse_layers(config, kinds)
    names = config.strings("indexer_types", count=len(kinds))
    if names is None:
        pattern = config.string("index_topk_pattern")
        if pattern is not None and len(pattern) == len(kinds):
            names = tuple({"F": "full", "S": "shared"}.get(letter, letter) for letter in pattern)
    if names is not None:
        for i, name in enumerate(names):
            if name not in ("full", "shared"):
                raise ConfigError(f"indexer_types[{i}]", "full or shared", name, hint="Correct this key in the config.")
        return tuple(i for i in latent if names[i] == "full")
    every = config.integer("index_topk_freq", default=1, minimum=1)
    offset = config.integer("index_skip_topk_offset", default=2)
    return tuple(i for i in latent if max(i - offset + 1, 0) % every == 0)


def _block_sparse_layers(config: Config, kinds: Sequence[Mixer]) -> tuple[int, ...]:
    """MiniMax-M3: attention that keeps every key and value, and index keys beside them on the sparse layers."""
    names = config.strings("layer_types", count=len(kinds))
    if names is not None:
        return tuple(i for i, name in enumerate(names) if name == "minimax_m3_sparse")
    section = config.section("sparse_attention_config")
    flags = section.integers("sparse_attention_freq", count=len(kinds)) if section is not None else None
    return tuple(i for i, flag in enumerate(flags or ()) if flag)


_INDEX_WIDTH = ("index_head_dim", "sparse_index_dim")


def _index_size(config: Config, key: str, sparse_key: str) -> int:
    """A size of the indexer: under its plain name, or under MiniMax-M3's in its own section."""
    declared = config.integer(key, default=0, maximum=WIDEST)
    section = config.section("sparse_attention_config")
    return declared if section is None else section.integer(sparse_key, default=declared, maximum=WIDEST)


def _compress_ratios(config: Config, kinds: Sequence[Mixer]) -> tuple[int, ...]:
    """DeepSeek-V4: tokens per compressed latent by layer. A list longer than the layers covers the MTP layer."""
    if "compressed_attention" not in kinds:
        return ()
    count = len(kinds)
    listed = config.integers("compress_ratios", maximum=10**6)
    if listed is not None:
        extra = config.integer("num_nextn_predict_layers", default=1)
        if not count <= len(listed) <= count + max(extra, 1):
            raise ConfigError(
                "compress_ratios",
                f"{count:,} entries, one per layer",
                f"{len(listed):,} entries",
                hint="Make the list and num_hidden_layers agree.",
            )
        for i, ratio in enumerate(listed[:count]):
            if ratio not in (0, 4, 128):
                raise ConfigError(f"compress_ratios[{i}]", "0, 4 or 128", ratio, hint=UNKNOWN)
        return listed[:count]
    rates = config.section("compress_rates")
    names = config.strings("layer_types", count=count) or ()
    return tuple(
        rates.integer(name, default=_RATES.get(name, 0)) if rates is not None else _RATES.get(name, 0) for name in names
    )


_RATES = {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}


def _window(config: Config, kinds: Sequence[Mixer], *, windowed: bool) -> int:
    if "chunked_attention" in kinds:
        return config.integer("attention_chunk_size", minimum=1)
    return read_window(config) if windowed else 0


def _encoder_layers(config: Config) -> int:
    if not is_encoder_decoder(config):
        return 0
    return config.integer("encoder_layers", "num_encoder_layers", "num_layers", "num_hidden_layers", maximum=10_000)


def _source_tokens(config: Config, kinds: Sequence[Mixer]) -> int:
    """Tokens held in cross attention: a full encoder input, or no image at all for vision layers."""
    if is_encoder_decoder(config):
        keys = ("max_source_positions", "max_encoder_position_embeddings", "max_position_embeddings", "n_positions")
        tokens = config.integer(*keys, default=None, minimum=1)
        stated = tokens is not None
        tokens = tokens or 512
        config.assume(
            "source_tokens",
            f"{tokens:,} encoder tokens per request",
            "The longest encoder input the file states." if stated else "The file does not say; T5's usual 512.",
        )
        return tokens
    if "cross_attention" in kinds:
        config.assume(
            "source_tokens",
            "0 image tokens per request",
            "Text only: cross-attention layers hold keys and values of images, and none is counted.",
        )
    return 0
