"""A whole config: the language model's keys wherever they are nested, then the top, then class defaults."""

from __future__ import annotations

import json
from collections.abc import Mapping

from kvcalc.errors import Assumption
from kvcalc.reading.class_defaults import class_defaults
from kvcalc.reading.section import HERE, Path, Section, facts_seen, plain, whole_number

__all__ = ["LAYER_COUNT_KEYS", "Config", "Section", "plain", "whole_number"]

LAYER_COUNT_KEYS = (
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
    "num_transformer_layers",
    "decoder_layers",
    "num_decoder_layers",
)
_TEXT_PLACES: tuple[tuple[str, ...], ...] = (
    ("text_config",),
    ("llm_config",),
    ("language_config",),
    ("thinker_config", "text_config"),
    ("thinker_config",),
    ("decoder_config",),
    ("language",),
    ("language_model",),
    ("text_model",),
)
_VISION_PLACES = (("vision_config",), ("visual",), ("vision_encoder",), ("thinker_config", "vision_config"))
_AUDIO_PLACES = (("audio_config",), ("thinker_config", "audio_config"), ("audio_encoder",))


def _nested(values: Mapping[str, object], place: tuple[str, ...]) -> Mapping[str, object] | None:
    found: object = values
    for key in place:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else None


def _counts_layers(values: Mapping[str, object]) -> bool:
    return any(values.get(key) is not None for key in LAYER_COUNT_KEYS)


class Config(Section):
    """A whole file: keys are looked up in the language model's dict, then at the top, then in the defaults
    of the model type's config class (nested configs are saved without the keys that equal them).

    raw           the whole file
    text          the language model's dict (the file itself when nothing is nested)
    model_type    of the language model: declared, from the wrapper, or from ``architectures``
    wrapper_type  declared at the top, '' when absent
    vision, audio towers' dicts, or None
    assumptions   what was inferred so far
    """

    def __init__(self, raw: Mapping[str, object]) -> None:
        super().__init__(raw)
        self.raw = raw
        self.assumptions: list[Assumption] = []
        self.defaults_used: dict[str, object] = {}
        self.top_section = Section(raw, (), self.seen)
        self.text_section = self._find_text()
        self.text = self.text_section.values
        self.is_nested = bool(self.text_section.path)
        self.wrapper_type = self.top_section.string("model_type", default="")
        self.model_type = self._model_type()
        self._defaults = class_defaults().values_for(self.model_type, nested=self.is_nested)
        self.vision = self._place(_VISION_PLACES)
        self.audio = self._place(_AUDIO_PLACES)

    def _find_text(self) -> Section:
        has_layers_at_top = _counts_layers(self.values)
        for place in _TEXT_PLACES:
            found = _nested(self.values, place)
            if found is None or (has_layers_at_top and not _counts_layers(found)):
                continue
            if place == ("thinker_config",) and not _counts_layers(found):
                continue
            self.seen.add((*place, HERE))
            return Section(found, place, self.seen)
        return self.top_section

    def _place(self, places: tuple[tuple[str, ...], ...]) -> Section | None:
        for place in places:
            found = _nested(self.values, place)
            if found is not None:
                self.seen.add((*place, HERE))
                return Section(found, place, self.seen)
        return None

    def _model_type(self) -> str:
        own = self.text_section.string("model_type")
        if own:
            return own
        if self.wrapper_type:
            return class_defaults().text_type(self.wrapper_type)
        for section in (self.text_section, self.top_section):
            architectures = section.strings("architectures")
            if architectures:
                named = class_defaults().type_of_architecture(architectures[0])
                return class_defaults().text_type(named) if self.is_nested else named
        return ""

    def name(self, key: str) -> str:
        if self.is_nested and key in self.text:
            return self.text_section.name(key)
        return key

    def _find(self, keys: tuple[str, ...]) -> tuple[str, Path, object]:
        nulled = False
        if self.is_nested:
            found = self.text_section._find(keys)
            if found[2] is not None:
                return found
            nulled = any(key in self.text for key in keys)
        found = super()._find(keys)
        if found[2] is not None or nulled or any(key in self.values for key in keys):
            return found
        for key in keys:
            if key in self._defaults:
                self.defaults_used[key] = self._defaults[key]
                return key, (key,), self._defaults[key]
        return (self.text_section.name(keys[0]) if self.is_nested else keys[0]), (keys[0],), None

    def section(self, *keys: str) -> Section | None:
        """A nested dict of the language model, else of the file; None when missing."""
        if self.is_nested:
            found = self.text_section.section(*keys)
            if found is not None:
                return found
        return super().section(*keys)

    def sections(self, *keys: str, count: int | None = None) -> tuple[Section, ...] | None:
        """A list of nested dicts of the language model, else of the file; None when missing."""
        if self.is_nested:
            found = self.text_section.sections(*keys, count=count)
            if found is not None:
                return found
        return super().sections(*keys, count=count)

    def declares(self, *keys: str) -> bool:
        """Whether the file itself, not a class default, holds one of the keys."""
        inside = self.is_nested and self.text_section.has(*keys)
        return inside or self.top_section.has(*keys)

    def is_null(self, key: str) -> bool:
        """Whether the file says null for this key: a class default must not stand in for it."""
        for section in (self.text_section, self.top_section):
            if key in section.values:
                self.seen.add((*section.path, key))
                return section.values[key] is None
        return False

    def class_default(self, key: str) -> int | None:
        """A whole number of the model type's config class even where files usually state it, remembered as
        used; None when the class has none, or when the file says null."""
        value = class_defaults().values_for(self.model_type, nested=True).get(key)
        if key in self.text or not isinstance(value, int):
            return None
        self.defaults_used[key] = value
        return value

    def assume(self, field: str, value: str, reason: str) -> None:
        """Remember something inferred, once."""
        assumption = Assumption(field=field, value=value, reason=reason)
        if assumption not in self.assumptions:
            self.assumptions.append(assumption)

    def sizing_facts(self) -> str:
        """Every key looked at so far, nested as in the file, as compact JSON: reading it gives the same model."""
        return json.dumps(facts_seen(self.raw, self.seen), separators=(",", ":"))
