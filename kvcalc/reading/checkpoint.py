"""What safetensors headers say a checkpoint holds, and whether the census agrees.

Source: the safetensors format, https://huggingface.co/docs/safetensors: eight bytes of header length, little-endian,
then that much JSON with a dtype, a shape and data offsets for each tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import Literal, TypeGuard

from kvcalc.errors import HubError, Note, Record
from kvcalc.model_spec import ModelSpec
from kvcalc.units import fmt_count, fmt_percent

_PACKED = frozenset(["I8", "U8", "I16", "U16", "I32", "U32", "I64", "U64", "F4"])
"""Types in which checkpoints pack several weights, or half of one, into a stored number."""
_DAMAGED = "Paste the model's config.json; the size of the weights is then computed from it."
_LARGEST = 10**16 - 1
MOST_DIMENSIONS = 16
LONGEST_DTYPE = 16
SMALLEST_SHOWN_RATIO = 0.001


class CheckpointWeights(Record):
    """What the safetensors files of a checkpoint hold."""

    values: int
    """Stored numbers; several weights may be packed in one. [values]"""
    weights_bytes: int
    """Bytes of the tensors; with ``source`` 'summary', of the files, headers included. [bytes]"""
    values_by_dtype: dict[str, int]
    """Stored numbers by safetensors dtype. [values]"""
    bytes_by_dtype: dict[str, int]
    """Bytes by dtype; empty with ``source`` 'summary'. [bytes]"""
    source: Literal["headers", "summary"]
    """Read from the files' headers, or the Hub's own summary of them."""

    @property
    def is_packed(self) -> bool:
        """Whether stored numbers are not weights one for one."""
        return any(self.values_by_dtype.get(dtype) for dtype in _PACKED)


def from_headers(headers: Iterable[Mapping[str, object]]) -> CheckpointWeights:
    """The sum over the headers of all files. Raises HubError for a damaged header."""
    values: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for header in headers:
        for name, tensor in header.items():
            if name == "__metadata__":
                continue
            dtype, count, size = _tensor(tensor)
            values[dtype] = values.get(dtype, 0) + count
            sizes[dtype] = sizes.get(dtype, 0) + size
    return CheckpointWeights(
        values=sum(values.values()),
        weights_bytes=sum(sizes.values()),
        values_by_dtype=values,
        bytes_by_dtype=sizes,
        source="headers",
    )


def _tensor(tensor: object) -> tuple[str, int, int]:
    """(dtype, stored numbers, bytes) of one entry."""
    if isinstance(tensor, Mapping):
        dtype, shape, offsets = tensor.get("dtype"), tensor.get("shape"), tensor.get("data_offsets")
        if isinstance(dtype, str) and len(dtype) <= LONGEST_DTYPE and _counts(shape) and _counts(offsets):
            count, ends = prod(shape), tuple(offsets)
            if count <= _LARGEST and len(ends) == 2 and ends[0] <= ends[1]:
                return dtype, count, ends[1] - ends[0]
    raise HubError("model", "safetensors headers", "a damaged one", hint=_DAMAGED)


def _counts(value: object) -> TypeGuard[list[int]]:
    if not isinstance(value, list) or len(value) > MOST_DIMENSIONS:
        return False
    return all(type(item) is int and 0 <= item <= _LARGEST for item in value)


def from_summary(summary: object, file_bytes: int) -> CheckpointWeights | None:
    """The Hub's own count, with the size of the files; None when it has none.

    file_bytes   size of the safetensors files together, headers included. [bytes]
    """
    by_dtype = summary.get("parameters") if isinstance(summary, Mapping) else None
    if not isinstance(by_dtype, Mapping) or not by_dtype or file_bytes <= 0:
        return None
    if not all(isinstance(dtype, str) and type(count) is int and count >= 0 for dtype, count in by_dtype.items()):
        return None
    values = {str(dtype): int(count) for dtype, count in by_dtype.items()}
    return CheckpointWeights(
        values=sum(values.values()),
        weights_bytes=file_bytes,
        values_by_dtype=values,
        bytes_by_dtype={},
        source="summary",
    )


def compare(spec: ModelSpec, weights: CheckpointWeights) -> Note:
    """Whether the census counts what the checkpoint stores, and if not, why."""
    count = spec.parameters
    whose = "the checkpoint's headers hold" if weights.source == "headers" else "the Hub counts in the checkpoint"
    stored, counted = f"{fmt_count(weights.values)} numbers", f"{fmt_count(count.total)} parameters"
    if spec.quantization.is_quantized and weights.is_packed:
        text = f"{whose} {stored}, some with several weights packed in one: no comparison with the {counted} counted."
        return Note(field="parameters", text=text[0].upper() + text[1:])
    reason = _reason(spec, weights.values)
    if reason is not None:
        return Note(field="parameters", text=f"The census counts {counted}; {whose} {stored}: {reason}.")
    difference = weights.values - count.total
    ratio = abs(difference) / max(count.total, 1)
    share = fmt_percent(ratio) if ratio >= SMALLEST_SHOWN_RATIO else "under 0.1%"
    more = "more" if difference > 0 else "fewer"
    why = "scales of the quantised weights" if spec.quantization.is_quantized and difference > 0 else "not explained"
    text = f"The census counts {counted}; {whose} {stored}, {fmt_count(abs(difference))} {more} ({share}): {why}."
    return Note(field="parameters", text=text)


def _reason(spec: ModelSpec, stored: int) -> str | None:
    """Why the two differ, when a simple sum explains it."""
    count = spec.parameters
    table = count.embedding if count.lm_head == 0 else 0
    towers = count.vision + count.audio
    sums = (
        (0, "they agree"),
        (count.mtp, "the rest is the multi-token-prediction layers"),
        (table, "the rest is the head, stored again although it is the embedding table"),
        (count.mtp + table, "the rest is the multi-token-prediction layers and the head, stored a second time"),
        (-towers, "the checkpoint leaves out the vision and audio towers"),
    )
    return next((reason for extra, reason in sums if stored == count.total + extra), None)
