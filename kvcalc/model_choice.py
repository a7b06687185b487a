"""Presets that keep less KV than a scenario's model and fit the same GPUs."""

from __future__ import annotations

from functools import lru_cache

from kvcalc import catalogue, measured
from kvcalc.cache import kv_bytes_per_sequence
from kvcalc.errors import KvcalcError, Record
from kvcalc.evaluation import answer
from kvcalc.model_spec import ModelSpec
from kvcalc.scenario import Scenario, gpu_of, spec_of
from kvcalc.verdict import FITS

_LEAST_SIZE, _MOST_SIZE = 0.4, 1.5
"""A model of a similar size: its parameters against the scenario's model."""
_MOST_TRIES = 24
_WORTHWHILE = 0.9
"""Less KV than this share of the scenario's model, or it is not listed."""


class SmallerModel(Record):
    """A preset that keeps less KV per request."""

    id: str
    """Preset id."""
    label: str
    """Name on the page."""
    scenario: Scenario
    """The scenario with this model on the same GPUs."""
    kv_bytes: int
    """KV of one request, over the whole model. [bytes]"""
    requests: int
    """Requests at once, over all replicas. [requests]"""


@lru_cache(maxsize=1)
def _specs() -> tuple[tuple[str, ModelSpec], ...]:
    """Every preset a chat could run on: decoders with a stated context, one of each shape."""
    found: dict[str, tuple[str, ModelSpec]] = {}
    for preset_id in catalogue.preset_ids():
        try:
            spec = catalogue.model(preset_id)
        except KvcalcError:
            continue
        reads_text_alone = not any(group.kind == "cross_attention" for group in spec.layer_groups)
        if reads_text_alone and spec.max_context_tokens:
            shape = f"{spec.layer_groups}{spec.parameters.total}{spec.quantization.method}{spec.max_context_tokens}"
            kept = found.get(shape)
            if kept is None or len(preset_id) < len(kept[0]):
                found[shape] = (preset_id, spec)
    return tuple(found.values())


@lru_cache(maxsize=64)
def smaller_models(scenario: Scenario, *, count: int) -> tuple[SmallerModel, ...]:
    """At most this many presets of a similar size that keep less KV per request and serve more on the same GPUs,
    least KV first.

    Each is tried as published on the scenario's layout; at most 24 are tried. Raises KvcalcError.
    """
    spec, context = spec_of(scenario), scenario.context_tokens
    now = kv_bytes_per_sequence(spec, context_tokens=context, kv_precision=scenario.kv_precision)
    size, serves = spec.parameters.total, answer(scenario).concurrency
    ranked = sorted(
        (kv_bytes_per_sequence(other, context_tokens=context), preset_id)
        for preset_id, other in _specs()
        if _LEAST_SIZE * size <= other.parameters.total <= _MOST_SIZE * size
        and (other.max_context_tokens or 0) >= context
        and preset_id != scenario.model
        and _can_run(other, scenario)
    )
    found: list[SmallerModel] = []
    for size_bytes, preset_id in ranked[:_MOST_TRIES]:
        if size_bytes >= _WORTHWHILE * now or len(found) == count:
            break
        tried = _tried(scenario, preset_id, size_bytes)
        if tried is not None and tried.requests > serves * scenario.replicas:
            found.append(tried)
    return tuple(found)


_GGUF_ENGINES = frozenset({"llamacpp"})
"""Engines that load GGUF files: a checkpoint in another quantised format is none, and weights keep their mix."""


def _can_run(spec: ModelSpec, scenario: Scenario) -> bool:
    """Whether engine and GPU load the weights as published."""
    formats = {rule.weight_format for rule in spec.quantization.rules}
    if scenario.engine in _GGUF_ENGINES:
        return not formats
    return "nvfp4" not in formats or gpu_of(scenario).fp4_flops_per_s is not None


def with_model(scenario: Scenario, preset_id: str) -> Scenario:
    """The scenario with a preset as published; what belonged to the old model goes. Raises KvcalcError."""
    spec = catalogue.model(preset_id)
    update = {
        "model": preset_id,
        "model_facts": None,
        "model_label": None,
        "attention": "as_trained",
        "weight_precision": scenario.weight_precision if scenario.engine in _GGUF_ENGINES else "checkpoint",
        "kv_precision": "auto",
        "ep": 1,
        "dcp": 1,
        "block_size": None,
        "speculative_tokens": 0,
        "hybrid_manager": None,
        "max_model_len": min(scenario.max_model_len, spec.max_context_tokens or scenario.max_model_len),
    }
    return measured.changed(scenario, update)


def _tried(scenario: Scenario, preset_id: str, size_bytes: int) -> SmallerModel | None:
    try:
        changed = with_model(scenario, preset_id)
        result = answer(changed)
    except KvcalcError:
        return None
    if result.verdict not in FITS or not result.concurrency:
        return None
    return SmallerModel(
        id=preset_id,
        label=result.inputs.spec.label,
        scenario=changed,
        kv_bytes=size_bytes,
        requests=result.concurrency * changed.replicas,
    )
