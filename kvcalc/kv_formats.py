"""KV formats that an engine stores for a model and that take fewer bits than the scenario's."""

from __future__ import annotations

from fractions import Fraction

from kvcalc.inputs import Inputs
from kvcalc.precision import KvFormat, kv_format, kv_formats
from kvcalc.scenario_notes import ENGINE_NAMES

_ROW = 128
"""Values of the row formats are compared on: the usual head width. [values]"""
_WORTHWHILE = Fraction(9, 10)
"""Formats that take more than this of the present one only differ in their scales. [ratio]"""


def smaller_formats(inputs: Inputs) -> tuple[tuple[KvFormat, ...], str]:
    """(formats with fewer bits, the widest first; why there is none).

    Only what this engine stores, in the layout this model caches, and that this GPU can compute with.
    """
    scenario, spec = inputs.scenario, inputs.spec
    now = kv_format(scenario.kv_precision, declared=spec.quantization.kv_precision)
    groups = [group for group in spec.layer_groups if group.grows]
    if not groups:
        return (), "This model keeps no KV that grows with the document."
    layout = "latent" if any(group.kind in _LATENT for group in groups) else "heads"
    found = {
        row.id: row
        for row in kv_formats()
        if scenario.engine in row.engines
        and layout in row.layouts
        and row.row_bits(_ROW) < _WORTHWHILE * now.row_bits(_ROW)
        and row.id != "auto"
        and not _why_not_on(row, inputs)
    }
    if not found:
        engine = ENGINE_NAMES[scenario.engine]
        return (), f"{now.label} is the smallest KV format that {engine} stores for this model on this GPU."
    ordered = sorted(found.values(), key=lambda row: (-row.row_bits(_ROW), row.id))
    # Plain FP8 before formats of about the same size: it is the one every engine documents.
    ordered.sort(key=lambda row: row.id not in ("fp8", "q8_0"))
    return tuple(ordered), ""


_LATENT = ("latent_attention", "compressed_attention")


def _why_not_on(row: KvFormat, inputs: Inputs) -> str | None:
    """Why this GPU cannot use a format; None when it can."""
    if row.id.startswith("nvfp4") and inputs.gpu.fp4_flops_per_s is None:
        return f"{row.label} needs FP4 arithmetic, which {inputs.gpu.name} does not have."
    return None


def formats_ruled_out(inputs: Inputs) -> tuple[tuple[KvFormat, str], ...]:
    """(format, why it cannot be used here) of the smaller formats people ask for."""
    scenario, spec = inputs.scenario, inputs.spec
    now = kv_format(scenario.kv_precision, declared=spec.quantization.kv_precision)
    found = []
    for row in (kv_format("fp8"), kv_format("nvfp4")):
        if row.row_bits(_ROW) >= _WORTHWHILE * now.row_bits(_ROW):
            continue
        if scenario.engine not in row.engines:
            found.append((row, f"{ENGINE_NAMES[scenario.engine]} does not store {row.label}."))
        elif (why := _why_not_on(row, inputs)) is not None:
            found.append((row, why))
    return tuple(found)


def caution(row: KvFormat, inputs: Inputs) -> str:
    """What to check before this GPU stores this format; empty when nothing is known against it."""
    if row.id.startswith("fp8") and inputs.gpu.vendor == "NVIDIA" and inputs.gpu.fp8_flops_per_s is None:
        return f" {inputs.gpu.name} has no FP8 arithmetic: check that your engine's release converts it."
    return ""
