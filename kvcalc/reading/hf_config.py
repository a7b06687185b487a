"""A config → ModelSpec: the one entry of the reader."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kvcalc.errors import ConfigError
from kvcalc.model_spec import ModelSpec
from kvcalc.reading.cache_groups import layer_groups
from kvcalc.reading.class_defaults import class_defaults
from kvcalc.reading.config import Config
from kvcalc.reading.native_params import is_native, translate
from kvcalc.reading.not_a_model import refuse_what_is_not_a_model
from kvcalc.reading.quantization import read_quantization
from kvcalc.reading.resolve import read_shape
from kvcalc.reading.shape import Shape
from kvcalc.reading.tensors import tensor_classes
from kvcalc.reading.text import check_size
from kvcalc.reading.vision import image_tokens
from kvcalc.reading.window import read_max_context

_DRAFT_LAYERS = 8
_DRAFT_HIDDEN = 4096
_SANE_NAME = re.compile(r"[A-Za-z0-9][\w.\-]{1,60}")


def read_config(raw: Mapping[str, object], *, label: str | None = None) -> ModelSpec:
    """The model that a config.json or params.json describes.

    Parameters
    ----------
    raw : the file as a dict.
    label : name for headings; from the file when None.

    Raises
    ------
    ConfigError    naming the key that is missing, impossible or unknown, or what the file is instead.

    Source
    ------
    Per family: facts in config_defaults.toml and the docstrings of reading/.
    """
    if not isinstance(raw, Mapping):
        raise ConfigError("config", "one JSON object", type(raw).__name__, hint="Paste the model's config.json.")
    check_size(raw)
    refuse_what_is_not_a_model(raw)
    config = Config(translate(raw) if is_native(raw) else raw)
    shape = read_shape(config)
    max_context = read_max_context(config)
    groups = layer_groups(shape, config)
    tensors = tensor_classes(config, shape)
    quantization = read_quantization(config)
    images = image_tokens(config)
    _assume(config, shape)
    return ModelSpec(
        label=label or _label(config, shape),
        num_layers=shape.num_layers,
        hidden_size=shape.hidden_size,
        vocab_size=shape.vocab_size,
        intermediate_size=max(shape.intermediate_size, default=0),
        gated_ffn=shape.gated_ffn,
        max_context_tokens=max_context,
        layer_groups=groups,
        tensors=tensors,
        quantization=quantization,
        num_experts=shape.num_experts,
        experts_per_token=shape.experts_per_token,
        expert_intermediate_size=shape.expert_intermediate_size,
        mtp_layers=shape.mtp_layers,
        image_tokens=images,
        assumptions=tuple(config.assumptions),
        sizing_facts=config.sizing_facts(),
    )


def _assume(config: Config, shape: Shape) -> None:
    sized = {key: value for key, value in config.defaults_used.items() if _counts(value)}
    if sized:
        listed = ", ".join(f"{key} {value}" for key, value in sorted(sized.items()))
        config.assume(
            "text_config" if config.is_nested else "config",
            listed,
            f"Not in the file: defaults of the {config.model_type} class ({class_defaults().source}).",
        )
    if shape.num_layers < _DRAFT_LAYERS and shape.hidden_size >= _DRAFT_HIDDEN:
        config.assume(
            "num_hidden_layers",
            f"{shape.num_layers} layers as stated",
            "So few layers at this width look like a speculative-decoding draft head, not a whole model.",
        )
    if config.has("cross_attn_every_n_layers"):
        config.assume("source_tokens", "0 image tokens per request", "Its cross-attention layers hold images only.")
    talker = config.section("talker_config")
    if talker is not None:
        config.assume("talker_config", "not counted", "The talker is a second language model with a cache of its own.")


def _counts(value: object) -> bool:
    """Whether a class default decided a size worth telling: switches and activations are not."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _label(config: Config, shape: Shape) -> str:
    declared = config.top_section.string("_name_or_path", default="")
    name = declared.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]
    if _SANE_NAME.fullmatch(name) and not name.startswith(("checkpoint", "local", "models--", "snapshots")):
        return name
    kind = config.wrapper_type or config.model_type or "unnamed type"
    return f"Pasted model ({kind}, {shape.num_layers} layers)"
