"""What a model type's config class holds when a file does not say: data in model_presets/config_defaults.toml."""

from __future__ import annotations

import re
from functools import lru_cache

from kvcalc.data import load_table
from kvcalc.errors import Record

_MODEL_SUFFIX = re.compile(r"(For[A-Z]\w*|LMHeadModel|Model)$")


class ClassDefaults(Record):
    """Defaults of the config classes, trimmed to keys that decide a size."""

    source: str
    """Where they were read."""
    checked: str
    """Date they were read, ISO."""
    never_at_top: tuple[str, ...]
    """Keys that a top-level file never leaves out: there a missing one is a true absence, not a default."""
    text_types: dict[str, str]
    """Model type of the language model inside a wrapper whose nested dict does not say."""
    types: dict[str, dict[str, int | bool | str | tuple[int, ...]]]
    """Defaults by model type."""

    def values_for(self, model_type: str, *, nested: bool) -> dict[str, object]:
        """Defaults that may stand in for a missing key of this model type."""
        found = self.types.get(model_type, {})
        return {key: value for key, value in found.items() if nested or key not in self.never_at_top}

    def text_type(self, wrapper_type: str) -> str:
        """Model type of the language model inside this wrapper."""
        named = self.text_types.get(wrapper_type)
        if named:
            return named
        return f"{wrapper_type}_text" if f"{wrapper_type}_text" in self.types else wrapper_type

    def type_of_architecture(self, architecture: str) -> str:
        """``Qwen2MoeForCausalLM`` as a model type: ``qwen2_moe``."""
        stem = _MODEL_SUFFIX.sub("", architecture)
        squashed = stem.lower()
        for model_type in self.types:
            if model_type.replace("_", "") == squashed:
                return model_type
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", stem).lower()


@lru_cache(maxsize=1)
def class_defaults() -> ClassDefaults:
    """The bundled defaults."""
    return load_table("config_defaults.toml", ClassDefaults)
