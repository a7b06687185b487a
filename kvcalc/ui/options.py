"""What the choices offer, and what each is called."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import TypeVar

from kvcalc import attention_variant, catalogue, precision
from kvcalc.model_spec import ModelSpec
from kvcalc.scenario import CUSTOM, PASTED
from kvcalc.scenario_notes import ENGINE_NAMES
from kvcalc.units import fmt_count

_T = TypeVar("_T")
_TP = (1, 2, 4, 8, 16, 32)


@lru_cache(maxsize=1)
def model_labels() -> dict[str, str]:
    """Preset id → name; ids are added where two presets share a name."""
    presets = catalogue.model_presets()
    count = Counter(preset.label for preset in presets)
    return {
        preset.id: preset.label if count[preset.label] == 1 else f"{preset.label} ({preset.id})"
        for preset in sorted(presets, key=lambda preset: preset.label.lower())
    }


def models(pasted_label: str | None, current: str) -> tuple[dict[str, str], list[str]]:
    """(names, options) of the model choice; the pasted model comes first once there is one."""
    names = model_labels()
    options = list(names)
    if pasted_label is not None or current == PASTED:
        names = {PASTED: f"Pasted: {pasted_label or 'model'}", **names}
        options = [PASTED, *options]
    return names, _with(options, current)


@lru_cache(maxsize=1)
def gpu_labels() -> dict[str, str]:
    """GPU id → name, and the one typed by hand."""
    return {**{row.id: row.name for row in catalogue.gpus()}, CUSTOM: "Another GPU: type its figures"}


def gpus(current: str) -> list[str]:
    """GPU ids."""
    return _with(list(gpu_labels()), current)


@lru_cache(maxsize=1)
def weight_labels() -> dict[str, str]:
    """Weight format id → name."""
    return {"checkpoint": "Published", **_short({row.id: row.label for row in precision.weight_formats()})}


@lru_cache(maxsize=1)
def kv_labels() -> dict[str, str]:
    """KV format id → name."""
    return {"auto": "Declared", **_short({row.id: row.label for row in precision.kv_formats()})}


def kv_formats(engine: str, current: str) -> list[str]:
    """KV formats this engine stores, and the one chosen even where it does not."""
    stored = [row.id for row in precision.kv_formats() if engine in row.engines]
    return _with(["auto", *stored], current)


@lru_cache(maxsize=1)
def state_labels() -> dict[str, str]:
    """State format id → name."""
    return {row.id: "Declared" if row.id == "auto" else row.label for row in precision.state_formats()}


def _short(labels: dict[str, str]) -> dict[str, str]:
    """Names that a narrow choice can show: without what stands in brackets, and its last word where two would
    then be alike ('FP8', 'FP8 (head)')."""
    names: dict[str, str] = {}
    for row_id, label in labels.items():
        base, _, bracket = label.removeprefix("GGUF ").partition(" (")
        taken = base in names.values()
        names[row_id] = f"{base} ({bracket.rstrip(')').split()[-1]})" if taken and bracket else base
    return names


_VARIANTS = {"as_trained": "As trained", "mha": "MHA", "mqa": "MQA", "mla": "MLA (latent)"}


def attention_label(variant: str) -> str:
    """A what-if's name."""
    return _VARIANTS.get(variant, variant.upper())


def attention(spec: ModelSpec | None, current: str) -> list[str]:
    """Attention what-ifs that make sense for this model."""
    return _with(list(attention_variant.choices(spec)) if spec is not None else ["as_trained"], current)


HYBRID_LABELS = {"auto": "As the engine decides", "on": "Free what they do not see", "off": "Keep every token"}
"""Choices of the hybrid KV cache manager."""
ENGINES = ENGINE_NAMES
"""Engine id → name."""


def tensor_parallel(current: int) -> list[int]:
    """Usual tensor parallel sizes."""
    return sorted(_with(list(_TP), current))


def tensor_parallel_label(size: int) -> str:
    """'2 (TP 2)'. It must not depend on other inputs: the browser sends a choice back by its label."""
    return f"{fmt_count(size)} (TP {size})"


def _with(options: list[_T], current: _T) -> list[_T]:
    """The options, and the current value even where a link brought one that is not offered."""
    return options if current in options else [current, *options]
