"""A GGUF file's header → a config for the reader, and the exact bytes of its weights.

Tensor data is never read: the first megabytes of an upload are enough. Storage types and file types are those of
the gguf package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvcalc.errors import ConfigError, Note, Record
from kvcalc.precision import weight_formats
from kvcalc.reading.gguf_config import architecture, hf_config
from kvcalc.reading.gguf_header import LARGEST_HEADER_BYTES, GgufHeader, TensorInfo, read_header, whole

if TYPE_CHECKING:
    from collections.abc import Iterator

_GUESSED = 1024
"""Set in general.file_type when the converter guessed it. Source: llama.h, LLAMA_FTYPE_GUESSED."""
_SAME_FORMAT = {"f32": "fp32", "f16": "fp16", "mxfp4_moe": "mxfp4"}
_DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
_LONGEST_LABEL = 80


class GgufModel(Record):
    """What a GGUF header says."""

    label: str
    """The model's name in the file; '' when it has none."""
    architecture: str
    """llama.cpp's name of its architecture."""
    config: dict[str, Any]
    """The same model as a config.json, for ``read_model``."""
    file_type: str
    """The mix of storage types: Q4_K_M; '' when the file does not say."""
    weight_precision: str | None
    """Id of that mix in the catalogue; None when it has none."""
    weights_bytes: int | None
    """Bytes of all tensors; None when the list is incomplete. [bytes]"""
    bytes_by_type: dict[str, int]
    """Those bytes by storage type; empty when the list is incomplete. [bytes]"""
    stored_values: int | None
    """Numbers in all tensors; None when the list is incomplete. [parameters]"""
    tensor_count: int
    """Tensors the header announces. [tensors]"""
    parts: int = 1
    """Files the model is split into. [files]"""
    notes: tuple[Note, ...] = ()
    """What the header could not say, and what follows."""


def read_gguf(source: bytes | Path) -> GgufModel:
    """A model from a GGUF file, or from the bytes at its start.

    Parameters
    ----------
    source : a file, of which only the header is read, or the first bytes of one.

    Raises
    ------
    ConfigError    naming the key that is missing, impossible or unknown, or what the file is instead.
    """
    header = _header(source)
    name, _ = architecture(header)
    parts = whole(header.values, "split.count") or 1
    tensors = (header.tensors or None) if parts == 1 else None
    sizes = None if tensors is None else _bytes_by_type(tensors)
    file_type = _file_type(header)
    precision = _weight_precision(file_type)
    config = hf_config(header, tensors)
    if file_type.lower() in _DTYPES:
        config["torch_dtype"] = _DTYPES[file_type.lower()]
    label = header.values.get("general.name")
    return GgufModel(
        label=label[:_LONGEST_LABEL] if isinstance(label, str) and label.isprintable() else "",
        architecture=name,
        config=config,
        file_type=file_type,
        weight_precision=precision,
        weights_bytes=None if sizes is None else sum(sizes.values()),
        bytes_by_type=sizes or {},
        stored_values=None if tensors is None else sum(tensor.values for tensor in tensors),
        tensor_count=header.tensor_count,
        parts=parts,
        notes=tuple(_notes(header, parts, file_type, precision, sizes)),
    )


def _header(source: bytes | Path) -> GgufHeader:
    if isinstance(source, Path):
        with _start_of(source) as data:
            return read_header(data)
    return read_header(source[:LARGEST_HEADER_BYTES])


@contextmanager
def _start_of(path: Path) -> Iterator[bytes | mmap]:
    """The start of a file, mapped: only the pages that are looked at are read."""
    try:
        with path.open("rb") as file:
            length = min(path.stat().st_size, LARGEST_HEADER_BYTES)
            if not length:
                yield b""
                return
            with mmap(file.fileno(), length, access=ACCESS_READ) as data:
                yield data
    except OSError as error:
        reason = error.strerror or "not readable"
        raise ConfigError("model", "a readable file", path.name, hint=f"The system says: {reason}.") from error


@lru_cache(maxsize=1)
def _storage_types() -> Mapping[int, tuple[str, int, int]]:
    """ggml's type number → its name, values in a block, bytes of a block."""
    from gguf.constants import GGML_QUANT_SIZES

    return {int(kind): (kind.name, block, size) for kind, (block, size) in GGML_QUANT_SIZES.items()}


def _bytes_by_type(tensors: Sequence[TensorInfo]) -> dict[str, int] | None:
    """Bytes of the tensors by storage type; None when one is of a type newer than the gguf package."""
    sizes: dict[str, int] = {}
    for tensor in tensors:
        known = _storage_types().get(tensor.type_id)
        if known is None:
            return None
        name, block, size = known
        row = tensor.dimensions[0] if tensor.dimensions else 1
        if row % block:
            raise ConfigError("GGUF tensor list", f"rows of whole {name} blocks", row, hint="Download the file again.")
        sizes[name] = sizes.get(name, 0) + tensor.values // block * size
    return sizes


def _file_type(header: GgufHeader) -> str:
    """The mix as people write it: Q4_K_M."""
    from gguf.constants import LlamaFileType

    number = whole(header.values, "general.file_type")
    if number is None:
        return ""
    names = {int(kind): kind.name for kind in LlamaFileType}
    return names.get(number & ~_GUESSED, "").removeprefix("MOSTLY_").removeprefix("ALL_")


def _weight_precision(file_type: str) -> str | None:
    wanted = _SAME_FORMAT.get(file_type.lower(), file_type.lower())
    return wanted if any(row.id == wanted for row in weight_formats()) else None


def _notes(
    header: GgufHeader, parts: int, file_type: str, precision: str | None, sizes: Mapping[str, int] | None
) -> Iterator[Note]:
    if parts > 1:
        text = (
            f"This is one of {parts} files. Its metadata describes the whole model; the size of the weights is "
            "computed from the architecture, because the other files hold the rest of the tensors."
        )
        yield Note(field="split.count", text=text)
    elif not header.tensors:
        how = "ends before its list of tensors does" if header.tensor_count else "lists no tensors"
        text = f"The file {how}. Its metadata is complete; the size of the weights is computed from the architecture."
        yield Note(field="GGUF header", text=text)
    elif sizes is None:
        yield Note(field="GGUF header", text="Some tensors have a storage type that is newer than this calculator.")
    if precision is None:
        mix = f"the {file_type} mix" if file_type else "this mix of storage types"
        yield Note(field="general.file_type", text=f"The catalogue has no row for {mix}: choose the nearest one.")
