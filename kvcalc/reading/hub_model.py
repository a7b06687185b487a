"""What the Hub holds of a model, put together from its answers. The network is behind the connection passed in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Protocol
from urllib.parse import quote

from kvcalc.errors import ConfigError, HubError, Note, Record
from kvcalc.reading.checkpoint import CheckpointWeights, from_headers, from_summary
from kvcalc.reading.hub_address import Address, checked_id
from kvcalc.reading.text import parse

LONGEST_HEADERS_S = 15.0
MOST_SHARDS = 200
LARGEST_INFO_BYTES = 16 * 2**20
LARGEST_CONFIG_BYTES = 4 * 2**20
LARGEST_SUMMARY_BYTES = 64 * 2**20
LARGEST_HEADER_BYTES = 25_000_000
"""A file's header may be no longer. Source: huggingface_hub 2.4, SAFETENSORS_MAX_HEADER_LENGTH."""
FIRST_READ_BYTES = 100_000
"""Holds nearly every header at once. Source: huggingface_hub 2.4, parse_safetensors_file_metadata."""
LONGEST_LICENSE = 60

_CONFIGS = ("config.json", "params.json")
_QUANT_CONFIG = "hf_quant_config.json"
_INDEX = "model.safetensors.index.json"
_SHARD = re.compile(r"model(-\d{5}-of-\d{5,6})?\.safetensors")
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
_LATER = "Try again later, or paste the model's config.json."
_PASTE = "Paste the model's config.json."


class HubFile(Record):
    """A file of the repository."""

    name: str
    """Path in the repository."""
    size_bytes: int | None
    """Its size; None when the Hub does not say. [bytes]"""


class HubModel(Record):
    """A model as the Hub holds it, at one commit."""

    model_id: str
    """Its id today; a renamed model's new one."""
    revision: str
    """Commit everything was read at."""
    config: dict[str, Any]
    """config.json or params.json, with hf_quant_config.json under that name where there is one."""
    config_file: str
    """Which of the two it was."""
    weights: CheckpointWeights | None
    """What the safetensors files hold; None when the Hub does not say."""
    gguf_files: tuple[HubFile, ...] = ()
    """GGUF files beside them."""
    gated: bool = False
    """Whether its terms must be accepted before it can be read."""
    license: str | None = None
    """License as the repository declares it."""
    notes: tuple[Note, ...] = ()
    """A new name, or what could not be read."""


class Connection(Protocol):
    """How answers are got."""

    def get(self, path: str, limit: int, what: str, *, first: int | None = None) -> bytes:
        """The body at a path of the Hub, of at most ``limit`` bytes; with ``first``, that many from there on.

        Raises HubError, naming ``what`` was wanted.
        """

    def finish_within(self, seconds: float) -> None:
        """Give what follows no longer than this."""


def read_hub_model(connection: Connection, asked: Address) -> HubModel:
    """Everything about one model. Raises HubError when there is no config to read."""
    info = _info(connection, asked)
    model_id = checked_id(str(info.get("id", "")))
    commit = str(info.get("sha", ""))
    if not _COMMIT.fullmatch(commit):
        raise HubError("model", "a commit in the Hub's answer", "none", hint=_LATER)
    files = _files(info)
    config_file = next((name for name in _CONFIGS if name in files), None)
    if config_file is None:
        raise _no_config(model_id, files, info)
    config = _config(connection, model_id, commit, config_file)
    if _QUANT_CONFIG in files:
        config["hf_quant_config"] = _config(connection, model_id, commit, _QUANT_CONFIG)
    notes = []
    if model_id.lower() != asked.model_id.lower():
        notes.append(Note(field="model", text=f"{asked.model_id} is now called {model_id}."))
    weights, why_not = _weights(connection, asked, model_id, commit, info)
    if why_not:
        notes.append(Note(field="weights", text=why_not))
    return HubModel(
        model_id=model_id,
        revision=commit,
        config=config,
        config_file=config_file,
        weights=weights,
        gguf_files=tuple(HubFile(name=name, size_bytes=files[name]) for name in _gguf_names(files)),
        gated=info.get("gated") not in (None, False),
        license=_license(info),
        notes=tuple(notes),
    )


def _info(connection: Connection, asked: Address) -> Mapping[str, Any]:
    path = f"/api/models/{asked.model_id}"
    if asked.revision:
        path += f"/revision/{quote(asked.revision, safe='')}"
    info = _json(connection.get(f"{path}?blobs=true", LARGEST_INFO_BYTES, "the model's description"))
    if not isinstance(info, Mapping):
        raise HubError("model", "the Hub's description of the model", "another answer", hint=_LATER)
    return info


def _json(body: bytes) -> object:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise HubError("model", "JSON from the Hub", "another answer", hint=_LATER) from None


def _files(info: Mapping[str, Any]) -> dict[str, int | None]:
    """Path → size of every file. [bytes]"""
    siblings = info.get("siblings")
    files: dict[str, int | None] = {}
    for sibling in siblings if isinstance(siblings, list) else ():
        name = sibling.get("rfilename") if isinstance(sibling, Mapping) else None
        if isinstance(name, str):
            size = sibling.get("size")
            files[name] = size if type(size) is int and size >= 0 else None
    return files


def _gguf_names(files: Mapping[str, int | None]) -> list[str]:
    return sorted(name for name in files if name.lower().endswith(".gguf"))


def _no_config(model_id: str, files: Mapping[str, int | None], info: Mapping[str, Any]) -> HubError:
    """Why there is nothing to read, and what to ask for instead."""
    base = _base_model(info)
    from_base = f"Fetch its base model, {base}, instead." if base else _PASTE
    gguf = _gguf_names(files)
    if gguf:
        listed = ", ".join(gguf[:3]) + (f" and {len(gguf) - 3} more" if len(gguf) > 3 else "")
        do = f"Fetch its base model, {base}, or upload" if base else "Upload"
        hint = f"It holds GGUF files alone ({listed}). {do} the first megabytes of one of them."
        return HubError("model", "a config.json", f"none in {model_id}", hint=hint)
    if "adapter_config.json" in files:
        return HubError("model", "a whole model", f"{model_id}, an adapter", hint=from_base)
    if "model_index.json" in files:
        got = f"{model_id}, an image pipeline"
        return HubError("model", "a language model", got, hint="It keeps no KV cache: choose a language model.")
    return HubError("model", "a config.json", f"none in {model_id}", hint=from_base)


def _base_model(info: Mapping[str, Any]) -> str | None:
    """The model this one was made from, as its card declares."""
    card = info.get("cardData")
    declared = card.get("base_model") if isinstance(card, Mapping) else None
    first = declared[0] if isinstance(declared, list) and declared else declared
    if not isinstance(first, str):
        return None
    try:
        return checked_id(first)
    except HubError:
        return None


def _license(info: Mapping[str, Any]) -> str | None:
    card = info.get("cardData")
    declared = card.get("license") if isinstance(card, Mapping) else None
    return declared[:LONGEST_LICENSE] if isinstance(declared, str) and declared.isprintable() else None


def _path(model_id: str, commit: str, name: str) -> str:
    return f"/{model_id}/resolve/{commit}/{quote(name)}"


def _config(connection: Connection, model_id: str, commit: str, name: str) -> dict[str, Any]:
    text = connection.get(_path(model_id, commit, name), LARGEST_CONFIG_BYTES, name).decode("utf-8", errors="replace")
    problem: object = None
    try:
        return parse(text)
    except ConfigError as error:
        problem = error.got
    raise HubError("model", f"a readable {name} in {model_id}", problem, hint="Paste a corrected config.json.")


def _weights(
    connection: Connection, asked: Address, model_id: str, commit: str, info: Mapping[str, Any]
) -> tuple[CheckpointWeights | None, str | None]:
    """(what the safetensors files hold, why it was not read from their headers)"""
    files = _files(info)
    shards = _shards(files)
    if not shards:
        return None, None
    connection.finish_within(LONGEST_HEADERS_S)
    problem = ""
    try:
        on_main = asked.revision in (None, "main")
        together = _headers_together(connection, model_id) if on_main and _INDEX in files else None
        return from_headers(together or _headers(connection, model_id, commit, shards)), None
    except HubError as error:
        problem = f"expected {error.expected}, got {error.got or 'nothing'}"
    summary = from_summary(info.get("safetensors"), sum(files[name] or 0 for name in shards))
    known = "the Hub's own count is used" if summary else "the size is computed from the architecture"
    return summary, f"The headers of the weight files were not read ({problem}); {known}."


def _shards(files: Mapping[str, int | None]) -> tuple[str, ...]:
    """The safetensors files that make up the model: repositories may hold a second copy under another name."""
    tensors = sorted(name for name in files if name.endswith(".safetensors") and "/" not in name)
    return tuple(name for name in tensors if _SHARD.fullmatch(name)) or tuple(
        name for name in tensors if name.startswith("consolidated")
    )


def _headers_together(connection: Connection, model_id: str) -> list[Mapping[str, object]] | None:
    """The headers of all files in one answer; None from a Hub that does not offer it."""
    try:
        path = f"/api/models/{model_id}/safetensors-metadata/{_INDEX}"
        found = _json(connection.get(path, LARGEST_SUMMARY_BYTES, "the headers"))
    except HubError:
        return None
    headers = found.get("headers") if isinstance(found, Mapping) else None
    if not isinstance(headers, Mapping) or not all(isinstance(header, Mapping) for header in headers.values()):
        return None
    return list(headers.values())


def _headers(
    connection: Connection, model_id: str, commit: str, shards: tuple[str, ...]
) -> Iterator[Mapping[str, object]]:
    if len(shards) > MOST_SHARDS:
        raise HubError("model", f"at most {MOST_SHARDS} weight files", f"{len(shards):,}", hint=_PASTE)
    for name in shards:
        path = _path(model_id, commit, name)
        start = connection.get(path, FIRST_READ_BYTES, "the weight files' headers", first=0)
        length = int.from_bytes(start[:8], "little")
        if len(start) < 8 or not 2 <= length <= LARGEST_HEADER_BYTES:
            raise HubError("model", "safetensors headers", "a damaged one", hint=_PASTE)
        text = start[8 : 8 + length]
        if len(text) < length:
            text = connection.get(path, length, "the weight files' headers", first=8)
        header = _json(text)
        if not isinstance(header, Mapping):
            raise HubError("model", "safetensors headers", "a damaged one", hint=_PASTE)
        yield header
