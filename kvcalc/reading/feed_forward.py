"""Feed-forward widths per layer, and which layers route to experts, out of every dialect."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import floor

from kvcalc.errors import ConfigError, Record
from kvcalc.reading.config import Config, Section, plain
from kvcalc.reading.shape import Mixer
from kvcalc.reading.window import is_encoder_decoder
from kvcalc.units import ceil_div

MOST_EXPERTS = 100_000
WIDEST = 10**9

_UNGATED_TYPES = frozenset(
    """arcee apertus bloom codegen falcon gpt2 gpt_bigcode gpt_neo gpt_neox gptj mpt nemotron nemotron_h opt
    persimmon phi phi-msft RefinedWeb RefinedWebModel starcoder2 whisper bart mbart""".split()
)
_UNGATED_ACTIVATIONS = ("relu2", "xielu")
_WIDTH_KEYS = (
    "intermediate_size",
    "n_inner",
    "ffn_hidden_size",
    "ffn_dim",
    "d_ff",
    "block_ff_dim",
    "ff_intermediate_size",
)
_EXPERT_COUNT_KEYS = ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts")
_PER_TOKEN_KEYS = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "moe_topk",
    "moe_top_k",
    "top_k_experts",
    "moe_k",
    "experts_per_token",
    "n_activated_experts",
)
_SHARED_COUNT_KEYS = ("n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts")
_SHARED_WIDTH_KEYS = (
    "shared_expert_intermediate_size",
    "moe_shared_expert_intermediate_size",
    "shared_experts_intermediate_size",
    "share_expert_dim",
    "shared_intermediate_size",
)


class Experts(Record):
    """Routed experts of a model; all zero when it is dense."""

    count: int = 0
    """Routed experts of one layer. [experts]"""
    per_token: int = 0
    """Routed experts one token uses. [experts]"""
    width: int = 0
    """Width of one routed expert. [values]"""
    shared_width: int = 0
    """Width of the shared experts of a layer together. [values]"""
    layers: tuple[int, ...] = ()
    """Layers that route."""


def is_gated(config: Config) -> bool:
    """Whether the feed-forward block has a gate matrix."""
    projection = config.string("feed_forward_proj")
    if projection is not None:
        return projection.startswith("gated")
    activation = config.string("mlp_hidden_act", "hidden_act", "hidden_activation", "activation_function")
    if activation in _UNGATED_ACTIVATIONS or config.model_type.startswith("rwkv"):
        return False
    return config.model_type not in _UNGATED_TYPES


def read_experts(config: Config, kinds: Sequence[Mixer]) -> Experts:
    """Routed experts and the layers that have them. Raises ConfigError naming the key."""
    section: Section = config.section("ffn_config") or config
    count = section.integer(*_EXPERT_COUNT_KEYS, default=0, maximum=MOST_EXPERTS)
    switched_off = config.has("is_moe") and not config.flag("is_moe")
    if count < 2 or switched_off:
        return Experts()
    layers = _routed_layers(config, kinds)
    if not layers:
        return Experts()
    per_token = _same(section, _PER_TOKEN_KEYS, len(kinds))
    if per_token is None or not 1 <= per_token <= count:
        raise ConfigError(_PER_TOKEN_KEYS[0], f"a whole number from 1 to {count}", per_token, hint="Add or correct it.")
    width = _same(section, ("moe_intermediate_size", "expert_ffn_hidden_size"), len(kinds))
    if width is None:
        width = section.integer("ffn_hidden_size", "intermediate_size", minimum=1, maximum=WIDEST)
    return Experts(
        count=count,
        per_token=per_token,
        width=width,
        shared_width=_shared_width(config, width, len(kinds)),
        layers=layers,
    )


def _same(section: Section, keys: tuple[str, ...], layers: int) -> int | None:
    """A number, or a list that repeats one number for every layer (Hunyuan)."""
    for key in keys:
        value = section.get(key)
        if value is None:
            continue
        if isinstance(value, list | tuple):
            numbers = set(section.integers(key, minimum=1, maximum=WIDEST) or ())
            if len(numbers) != 1:
                raise ConfigError(key, "one number", plain(value), hint="Experts of several widths are not supported.")
            return numbers.pop()
        return section.integer(key, minimum=0, maximum=WIDEST)
    return None


def _shared_width(config: Config, expert_width: int, layers: int) -> int:
    if config.has("interleave_moe_layer_step"):  # Llama 4: always one shared expert, no key
        return config.integer("intermediate_size", minimum=1, maximum=WIDEST)
    declared = config.integer(*_SHARED_WIDTH_KEYS, default=None, maximum=WIDEST)
    count = _same(config, _SHARED_COUNT_KEYS, layers)
    if declared is not None:
        # Only Step and the Nemotrons give both: there the width is that of all shared experts together.
        return declared if count != 0 else 0
    return (count or 0) * expert_width


def _routed_layers(config: Config, kinds: Sequence[Mixer]) -> tuple[int, ...]:
    count = len(kinds)
    pattern = config.string("hybrid_override_pattern")
    if pattern is not None:
        return tuple(i for i, letter in enumerate(pattern) if letter == "E")
    for key in ("layers_block_type", "layer_types"):
        names = config.strings(key, count=count)
        if names is not None and "moe" in names:
            return tuple(i for i, name in enumerate(names) if name == "moe")
    mlp = config.strings("mlp_layer_types", count=count)
    if mlp is not None:
        return tuple(i for i, name in enumerate(mlp) if name != "dense")
    listed = config.integers("moe_layers", maximum=count - 1)
    if listed:
        return tuple(sorted(set(listed)))
    text = config.string("moe_layers_enum")
    if text:
        return tuple(sorted({int(part) for part in text.split(",") if part.strip().isdecimal() and len(part) < 9}))
    frequencies = config.get("moe_layer_freq")
    if isinstance(frequencies, list | tuple):
        flags = config.integers("moe_layer_freq", maximum=1, count=count) or ()
        return tuple(i for i, flag in enumerate(flags) if flag)
    return tuple(i for i in range(count) if _routes(config, i))


def _routes(config: Config, layer: int) -> bool:
    """The rules by count and period, each only where its key is present."""
    first = config.integer(
        "first_k_dense_replace", "num_dense_layers", "moe_layer_start_index", "moe_layer_num_skipped", default=0
    )
    last = config.integer("moe_layer_end_index", default=None)
    if layer < first or (last is not None and layer > last):
        return False
    if layer in (config.integers("mlp_only_layers") or ()):
        return False
    if config.has("expert_layer_period"):
        period = config.integer("expert_layer_period", minimum=1)
        return layer % period == config.integer("expert_layer_offset", default=0)
    if config.has("moe_layer_freq"):
        return layer % config.integer("moe_layer_freq", minimum=1) == 0
    step = config.integer(
        "decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval", default=1, minimum=1
    )
    return (layer + 1) % step == 0


def read_dense_widths(config: Config, kinds: Sequence[Mixer], experts: Experts, hidden_size: int) -> tuple[int, ...]:
    """Width of the dense feed-forward block per layer; 0 where a layer has none."""
    count = len(kinds)
    widths = list(_plain_widths(config, count, hidden_size))
    routed = set(experts.layers)
    both = (
        config.flag("enable_moe_block") or config.flag("parallel_attn_mlp_res") or config.has("expert_ffn_hidden_size")
    )
    alone = "mlp_only" in kinds  # Nemotron-H: a layer is a mixer or a feed-forward block, never both
    for i in range(count):
        if (i in routed and not both) or (alone and kinds[i] != "mlp_only"):
            widths[i] = 0
    return tuple(widths)


def _plain_widths(config: Config, count: int, hidden_size: int) -> Sequence[int]:
    blocks = config.sections("block_configs", count=count)
    if blocks is not None:
        return [_block_width(block, hidden_size) for block in blocks]
    multipliers = config.rationals("ffn_multipliers")
    if multipliers is not None:
        return _openelm_widths(config, multipliers, count, hidden_size)
    # Where intermediate_size is an expert's: Llama 4, MiniMax-M3.
    if config.has("intermediate_size_mlp", "dense_intermediate_size"):
        return (config.integer("intermediate_size_mlp", "dense_intermediate_size", maximum=WIDEST),) * count
    if config.has("shared_intermediate_size") and config.model_type.startswith("granitemoe"):
        return (config.integer("shared_intermediate_size", maximum=WIDEST),) * count
    keys = ("decoder_ffn_dim", *_WIDTH_KEYS) if is_encoder_decoder(config) else _WIDTH_KEYS
    widths = config.per_layer(*keys, count=count, maximum=WIDEST)
    if widths is None:
        return (_default_width(config, hidden_size),) * count
    return [_adjusted(config, width, i, count) for i, width in enumerate(widths)]


def _adjusted(config: Config, width: int, layer: int, count: int) -> int:
    """A stated width as the model builds it."""
    if config.model_type == "qwen":  # counts gate and up together
        return width // 2
    if config.flag("block_auto_adjust_ff_dim"):
        return _lfm2_width(config, width)
    if config.flag("use_double_wide_mlp") and layer >= count - config.integer("num_kv_shared_layers", default=0):
        return width * 2
    return width


def _default_width(config: Config, hidden_size: int) -> int:
    ratio = config.rational("expansion_ratio", default=Fraction(4)) or Fraction(4)
    if config.has("moe_intermediate_size") or config.section("ffn_config") is not None:
        return 0
    if config.model_type.startswith("rwkv"):
        # Source: RWKV-LM, dim_ffn: 3.5 x the hidden size from version 5, 4 x before.
        return hidden_size * 7 // 2 if config.model_type != "rwkv" else hidden_size * 4
    if config.model_type in ("mamba", "mamba2", "falcon_mamba"):
        return 0
    return floor(ratio * hidden_size)


def _lfm2_width(config: Config, width: int) -> int:
    """Source: transformers ``Lfm2MLP``: two thirds, times the multiplier, rounded up to the multiple."""
    multiplier = config.rational("block_ffn_dim_multiplier", default=Fraction(1)) or Fraction(1)
    multiple = config.integer("block_multiple_of", default=256, minimum=1)
    return multiple * ceil_div(floor(multiplier * (2 * width // 3)), multiple)


def _block_width(block: Section, hidden_size: int) -> int:
    """Source: Nemotron-NAS ``_ffn_mult_to_intermediate_size``: two thirds of it, rounded up to 256."""
    ffn = block.section("ffn")
    if ffn is None or ffn.flag("no_op"):
        return 0
    if ffn.flag("replace_with_linear"):
        return 0
    multiplier = ffn.rational("ffn_mult")
    if multiplier is None:
        return ffn.integer("intermediate_size", minimum=0, maximum=WIDEST)
    return 256 * ceil_div(floor(2 * multiplier * hidden_size / 3), 256)


def _openelm_widths(config: Config, multipliers: Sequence[Fraction], count: int, hidden_size: int) -> Sequence[int]:
    """Source: OpenELM ``make_divisible``: to the nearest multiple, up when rounding lost a tenth."""
    if len(multipliers) != count:
        raise ConfigError(
            "ffn_multipliers",
            f"{count} entries, one per layer",
            f"{len(multipliers)} entries",
            hint="Correct the list.",
        )
    divisor = config.integer("ffn_dim_divisor", default=256, minimum=1)
    widths = []
    for multiplier in multipliers:
        exact = multiplier * hidden_size
        width = max(divisor, floor(exact + Fraction(divisor, 2)) // divisor * divisor)
        widths.append(width + divisor if width < exact * Fraction(9, 10) else width)
    return widths
