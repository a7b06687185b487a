"""Storage precisions of weights, KV cache and recurrent state, as exact rationals.

The figures live in ``model_presets/precisions.toml``; this file knows how a format is laid out.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Literal, TypeVar

from kvcalc.data import load_table
from kvcalc.errors import CatalogueError, Record

_Row = TypeVar("_Row")


def rational(text: str) -> Fraction:
    """A rational as the data files write it: '16', '9/2'."""
    return Fraction(text)


class WeightFormat(Record):
    """How one weight is stored."""

    id: str
    """Stable id used in links."""
    label: str
    """Name on the page."""
    value_bits: str
    """Bits of one stored value. [bits]"""
    group_size: int = 0
    """Values that share one scale; 0 per tensor, -1 per output channel. [values]"""
    block_shape: tuple[int, int] | None = None
    """Rows and columns that share one scale, when scales are two-dimensional. [values]"""
    scale_bits: int = 0
    """Bits of one scale. [bits]"""
    zero_bits: int = 0
    """Bits of one zero point. [bits]"""
    scales_per_group: int = 0
    """Scales that share a scale of their own (double quantisation); 0 for none. [scales]"""
    group_scale_bits: int = 0
    """Bits of such a second-level scale. [bits]"""
    scope: Literal["linears", "experts", "everything", "mix"] = "linears"
    """What it applies to: all linears, routed experts only, every tensor, or a GGUF per-tensor mix."""
    source: str
    """Where the layout is documented."""
    checked: str
    """Date the source was read, ISO."""

    @cached_property
    def bits_per_value(self) -> Fraction:
        """Bits per weight with its share of group scales and zero points; other scales apart. [bits]"""
        if self.group_size <= 0:
            return rational(self.value_bits)
        group_bits = Fraction(self.scale_bits + self.zero_bits)
        if self.scales_per_group:
            group_bits += Fraction(self.group_scale_bits, self.scales_per_group)
        return rational(self.value_bits) + group_bits / self.group_size


class KvFormat(Record):
    """How one cached value is stored. A row is one head's key or value of one token."""

    id: str
    """Stable id used in links."""
    label: str
    """Name on the page."""
    value_bits: str
    """Bits of one stored value. [bits]"""
    group_size: int = 0
    """Values that share one scale; 0 when no scale is stored with the cache. [values]"""
    scale_bits: int = 0
    """Bits of one group's scale. [bits]"""
    row_scale_bits: int = 0
    """Bits of a scale kept once per row. [bits]"""
    rope_bits: str | None = None
    """Bits of one rotary value of an MLA latent, where it differs. [bits]"""
    layouts: tuple[Literal["heads", "latent"], ...] = ("heads", "latent")
    """Cache layouts the format exists for."""
    engines: tuple[str, ...]
    """Engines that store this format."""
    source: str
    """Where the layout is documented."""
    checked: str
    """Date the source was read, ISO."""

    @lru_cache(maxsize=512)  # noqa: B019 - a handful of frozen formats live as long as the process
    def row_bits(self, values: int) -> Fraction:
        """Bits of one row of this many values, scales included. [bits]"""
        bits = values * rational(self.value_bits) + self.row_scale_bits
        if self.group_size:
            bits += -(-values // self.group_size) * self.scale_bits
        return bits

    @lru_cache(maxsize=512)  # noqa: B019
    def latent_bits(self, latent: int, rope: int) -> Fraction:
        """Bits of one MLA entry: the latent with its scales, then the rotary key. [bits]"""
        if self.rope_bits is None:
            return self.row_bits(latent + rope)
        return self.row_bits(latent) + rope * rational(self.rope_bits)

    def __hash__(self) -> int:
        return hash(self.id)


class StateFormat(Record):
    """How a recurrent state is stored."""

    id: str
    """auto, bf16, fp16 or fp32."""
    label: str
    """Name on the page."""
    bytes_per_value: int | None = None
    """Bytes of one state value; None lets the model's declaration decide. [bytes]"""
    conv_bytes_per_value: int = 2
    """Bytes of one convolution value: the model's own precision. [bytes]"""
    source: str
    """Where engines document it."""
    checked: str
    """Date the source was read, ISO."""

    def bytes_for(self, declared: str | None) -> int:
        """Bytes per state value for a model that declares this precision (or None). [bytes]"""
        if self.bytes_per_value is not None:
            return self.bytes_per_value
        return 4 if declared == "fp32" else 2


class _Precisions(Record):
    weights: tuple[WeightFormat, ...]
    kv: tuple[KvFormat, ...]
    state: tuple[StateFormat, ...]


@lru_cache(maxsize=1)
def _precisions() -> _Precisions:
    return load_table("precisions.toml", _Precisions)


def weight_formats() -> tuple[WeightFormat, ...]:
    """Every weight format, in the order of the data file."""
    return _precisions().weights


def kv_formats() -> tuple[KvFormat, ...]:
    """Every KV format, in the order of the data file."""
    return _precisions().kv


def state_formats() -> tuple[StateFormat, ...]:
    """Every state format, in the order of the data file."""
    return _precisions().state


@lru_cache(maxsize=1)
def _weights_by_id() -> dict[str, WeightFormat]:
    return {row.id: row for row in weight_formats()}


@lru_cache(maxsize=1)
def _kv_by_id() -> dict[str, KvFormat]:
    return {row.id: row for row in kv_formats()}


@lru_cache(maxsize=1)
def _state_by_id() -> dict[str, StateFormat]:
    return {row.id: row for row in state_formats()}


def _find(field: str, wanted: str, table: Mapping[str, _Row]) -> _Row:
    row = table.get(str(wanted))
    if row is None:
        raise CatalogueError(field, f"one of {', '.join(table)}", wanted, hint="Choose one of these.")
    return row


def weight_format(precision: str) -> WeightFormat:
    """Weight format by id. Raises CatalogueError naming ``precision``."""
    return _find("precision", precision, _weights_by_id())


def kv_format(precision: str, *, declared: str | None = None) -> KvFormat:
    """KV format by id; 'auto' is what the checkpoint declares, else 16-bit. Raises CatalogueError."""
    return _find("kv_precision", (declared or "bf16") if precision == "auto" else precision, _kv_by_id())


def state_format(precision: str) -> StateFormat:
    """State format by id. Raises CatalogueError naming ``state_precision``."""
    return _find("state_precision", precision, _state_by_id())
