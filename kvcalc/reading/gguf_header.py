"""The header of a GGUF file: metadata and tensor list, strictly, without the tensors' data.

The gguf package's reader maps the whole file, gives every tensor its data and keeps each token of the vocabulary
as an array, so it cannot read the first megabytes of an upload; this reads just the header, from any prefix of
the file that holds it, in bounded memory.

Source: ggml's docs/gguf.md, versions 2 and 3; limits of ggml/src/gguf.cpp.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from mmap import mmap
from typing import NamedTuple

from kvcalc.errors import ConfigError

LARGEST_HEADER_BYTES = 64 * 2**20
"""More than any known header: the largest vocabularies take about 20 MiB."""
MOST_KEYS = 10_000
MOST_TENSORS = 1_000_000
MOST_ITEMS = 4_000_000
"""Array items in the whole header; a large vocabulary has four arrays of 262,144."""
MOST_KEPT_ITEMS = 10_000
LONGEST_KEY_BYTES = 65_535
LONGEST_SHOWN_KEY = 80
LONGEST_TEXT_BYTES = 4_096
LONGEST_TENSOR_NAME_BYTES = 256
MOST_DIMENSIONS = 4
LARGEST_DIMENSION = 2**40

Value = int | float | bool | str | tuple[int | float | bool, ...]

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
_BOOL, _TEXT, _ARRAY = 7, 8, 9
_OTHER_FILE = "Choose a .gguf file, or paste the model's config.json."
_DAMAGED = "The file is damaged or no GGUF: download it again."
_LONGER = "Upload the whole file, or a longer piece from its start."


class TensorInfo(NamedTuple):
    """One tensor as the header lists it."""

    name: str
    """Name in the file: blk.0.attn_q.weight."""
    dimensions: tuple[int, ...]
    """Lengths, the contiguous one first. [values]"""
    type_id: int
    """ggml's number of the storage type."""

    @property
    def values(self) -> int:
        """Stored numbers. [values]"""
        count = 1
        for length in self.dimensions:
            count *= length
        return count


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """What a header holds."""

    values: dict[str, Value]
    """Metadata; an array of texts, or one too long to describe layers, is left out of it."""
    lengths: dict[str, int]
    """Items of every array, kept or not. [items]"""
    tensor_count: int
    """Tensors the header announces. [tensors]"""
    tensors: tuple[TensorInfo, ...] | None
    """The tensor list; None when the bytes end inside it."""


class _EndsError(Exception):
    """The bytes end before the header does."""


class _Reader:
    """A position in the bytes. Every read is checked against their end before anything is made of it."""

    def __init__(self, data: bytes | mmap) -> None:
        self.data = data
        self.end = len(data)
        self.position = 0
        self.order = "<"
        self.items_left = MOST_ITEMS

    def skip(self, count: int) -> int:
        """Move on by this many bytes; the position before."""
        start = self.position
        if count > self.end - start:
            raise _EndsError
        self.position = start + count
        return start

    def number(self, code: str) -> int | float:
        """One number of a struct code."""
        layout = self.order + code
        found: int | float = struct.unpack_from(layout, self.data, self.skip(struct.calcsize(layout)))[0]
        return found

    def count(self, code: str, most: int, field: str, what: str) -> int:
        """A count that may not exceed ``most``."""
        found = int(self.number(code))
        if found > most:
            raise ConfigError(field, f"at most {most:,} {what}", f"{found:,}", hint=_DAMAGED)
        return found

    def text(self, most: int, field: str) -> str:
        """A counted text of at most ``most`` bytes."""
        length = self.count("Q", most, field, "bytes of text")
        start = self.skip(length)
        try:
            return self.data[start : start + length].decode()
        except UnicodeDecodeError:
            raise ConfigError(field, "UTF-8 text", "other bytes", hint=_DAMAGED) from None

    def text_start(self) -> str:
        """A counted text, of which only the start is kept: a chat template may be long."""
        length = int(self.number("Q"))
        start = self.skip(length)
        return self.data[start : start + min(length, LONGEST_TEXT_BYTES)].decode(errors="replace")

    def skip_texts(self, count: int) -> None:
        """Move past this many counted texts."""
        unpack, data = struct.Struct(self.order + "Q").unpack_from, self.data
        position, last = self.position, self.end - 8
        for _ in range(count):
            if position > last:
                raise _EndsError
            position += 8 + unpack(data, position)[0]
        if position > self.end:
            raise _EndsError
        self.position = position


def read_header(data: bytes | mmap) -> GgufHeader:
    """The header at the start of these bytes; tensor data after it is not looked at.

    Raises
    ------
    ConfigError    no GGUF, an unknown version, a damaged or hostile header, or bytes that end inside the metadata.
    """
    reader = _Reader(data)
    try:
        _read_version(reader)
        tensor_count = reader.count("Q", MOST_TENSORS, "GGUF header", "tensors")
        key_count = reader.count("Q", MOST_KEYS, "GGUF header", "metadata keys")
        values: dict[str, Value] = {}
        lengths: dict[str, int] = {}
        for _ in range(key_count):
            _read_pair(reader, values, lengths)
    except _EndsError:
        got = f"{reader.end:,} bytes, which end inside it"
        raise ConfigError("GGUF header", "the whole metadata", got, hint=_LONGER) from None
    try:
        tensors = _read_tensors(reader, tensor_count)
    except _EndsError:
        tensors = None
    return GgufHeader(values=values, lengths=lengths, tensor_count=tensor_count, tensors=tensors)


def _read_version(reader: _Reader) -> None:
    start = reader.data[:4]
    if start != _MAGIC:
        what = "an empty file" if not start else "another kind of file"
        raise ConfigError("GGUF header", "a file that starts with GGUF", what, hint=_OTHER_FILE)
    reader.skip(4)
    version = int(reader.number("I"))
    if version and version & 0xFFFF == 0:
        reader.order = ">"
        version = int.from_bytes(version.to_bytes(4, "big"), "little")
    if version not in _VERSIONS:
        raise ConfigError("GGUF version", "2 or 3", version, hint="Convert the model again with a current llama.cpp.")


def _read_pair(reader: _Reader, values: dict[str, Value], lengths: dict[str, int]) -> None:
    key = reader.text(LONGEST_KEY_BYTES, "GGUF key")
    if key in values or key in lengths:
        raise ConfigError(_shown(key), "one value", "the key twice", hint=_DAMAGED)
    kind = int(reader.number("I"))
    if kind == _TEXT:
        values[key] = reader.text_start()
    elif kind == _ARRAY:
        _read_array(reader, key, values, lengths)
    else:
        values[key] = _scalar(reader, kind, key)


def _scalar(reader: _Reader, kind: int, key: str) -> int | float | bool:
    number = reader.number(_code(kind, key))
    return bool(number) if kind == _BOOL else number


def _code(kind: int, key: str) -> str:
    code = _SCALARS.get(kind)
    if code is None:
        what = "an array of arrays" if kind == _ARRAY else f"type {kind}"
        raise ConfigError(_shown(key), "a number, a text or a list of them", what, hint=_DAMAGED)
    return code


def _read_array(reader: _Reader, key: str, values: dict[str, Value], lengths: dict[str, int]) -> None:
    kind = int(reader.number("I"))
    count = reader.count("Q", reader.items_left, _shown(key), "items")
    reader.items_left -= count
    lengths[key] = count
    if kind == _TEXT:
        reader.skip_texts(count)
        return
    layout = f"{reader.order}{count}{_code(kind, key)}"
    start = reader.skip(struct.calcsize(layout))
    if count <= MOST_KEPT_ITEMS:
        numbers = struct.unpack_from(layout, reader.data, start)
        values[key] = tuple(map(bool, numbers)) if kind == _BOOL else numbers


def _read_tensors(reader: _Reader, count: int) -> tuple[TensorInfo, ...]:
    tensors: dict[str, TensorInfo] = {}
    for _ in range(count):
        name = reader.text(LONGEST_TENSOR_NAME_BYTES, "GGUF tensor name")
        if name in tensors:
            raise ConfigError(_shown(name), "one tensor of this name", "two", hint=_DAMAGED)
        dimensions = tuple(
            reader.count("Q", LARGEST_DIMENSION, _shown(name), "values a side")
            for _ in range(reader.count("I", MOST_DIMENSIONS, _shown(name), "dimensions"))
        )
        type_id = int(reader.number("I"))
        reader.number("Q")  # where its data starts
        tensors[name] = TensorInfo(name=name, dimensions=dimensions, type_id=type_id)
    return tuple(tensors.values())


def _shown(key: str) -> str:
    """A key as an error may show it: a hostile file could call it anything."""
    return key if key and key.isprintable() and len(key) <= LONGEST_SHOWN_KEY else "GGUF key"


def whole(values: Mapping[str, Value], key: str) -> int | None:
    """A whole number of the metadata; None when the key is missing. Raises ConfigError for anything else."""
    value = values.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigError(key, "a whole number from 0", value, hint=_DAMAGED)
    return value
