"""The KV format an engine really stores, with a note wherever it is not the one asked for."""

from __future__ import annotations

from kvcalc.engines.base import Settings
from kvcalc.errors import Note
from kvcalc.layers import CompressedAttention, IndexerKeys, LatentAttention
from kvcalc.model_spec import ModelSpec
from kvcalc.precision import KvFormat, kv_format

_PACKED_LATENTS = "fp8_ds_mla"
"""What vLLM and SGLang store when fp8 is asked for beside a sparse indexer."""


def stored_format(spec: ModelSpec, settings: Settings, *, engine: str, label: str) -> tuple[KvFormat, list[Note]]:
    """The format, and what to say about it. Raises CatalogueError for an unknown id."""
    kv = kv_format(settings.kv_precision, declared=spec.quantization.kv_precision)
    notes = []
    packed = kv_format(_PACKED_LATENTS)
    if kv.id == "fp8" and engine in packed.engines and _is_sparse(spec):
        kv = packed
        notes.append(_note(f"{label} stores fp8 of sparse latent attention as {packed.id}."))
    if engine not in kv.engines:
        notes.append(_note(f"{label} does not store {kv.label}; the numbers are what it would cost."))
    missing = _layouts(spec) - set(kv.layouts)
    if missing:
        where = "latents (MLA)" if "latent" in missing else "key and value heads"
        notes.append(_note(f"{kv.label} is not made for {where}; the numbers are what it would cost."))
    return kv, notes


def _note(text: str) -> Note:
    return Note(field="kv_precision", text=text)


def _is_sparse(spec: ModelSpec) -> bool:
    kinds = {type(group) for group in spec.layer_groups}
    return CompressedAttention in kinds or {LatentAttention, IndexerKeys} <= kinds


def _layouts(spec: ModelSpec) -> set[str]:
    latents = any(isinstance(group, LatentAttention | CompressedAttention) for group in spec.layer_groups)
    heads = any(hasattr(group, "kv_heads") for group in spec.layer_groups)
    return {name for name, there in (("latent", latents), ("heads", heads)) if there}
