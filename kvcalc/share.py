"""Scenario to link and back. A link names every field, a version, and digests of the data behind its answer,
so that it opens years later, shows the same scenario, and says what changed since.

Plain text in, validated records out: nothing in a link is ever executed, unpickled or rendered.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any, Literal
from urllib.parse import parse_qsl, urlencode, urlsplit

from kvcalc import catalogue, precision
from kvcalc.data import data_digest
from kvcalc.errors import KvcalcError, LinkError, Note, Record, shown
from kvcalc.scenario import CUSTOM, DEFAULT_MODEL, PASTED, CustomGpu, Scenario, gpu_of, spec_of

LINK_VERSION = 1
_NONE = "none"
_LONGEST_LINK = 100_000
_LONGEST_FACTS = 500_000
_PAGE_KEYS = frozenset({"view", "embed", "embed_options"})
"""Keys of the page, not of the scenario."""
DOCUMENT_PREFIX = "doc_"
"""Keys that start so belong to the document question, see ``document_link``."""
COMPARED_KEYS = ("b", "c", "d")
"""Keys of the scenarios compared with the link's own, see ``compare_link``."""
SESSION_KEYS = ("sessions", "active")
"""Keys of the levers' sessions, see ``waterfall``."""
_OF_VIEWS = frozenset({*COMPARED_KEYS, *SESSION_KEYS})


@dataclass(frozen=True)
class LinkField:
    """One field of a record in a link."""

    key: str
    name: str
    kind: Literal["text", "whole", "flag", "facts"]
    optional: bool = False


FIELDS = (
    LinkField("model", "model", "text"),
    LinkField("facts", "model_facts", "facts", optional=True),
    LinkField("label", "model_label", "text", optional=True),
    LinkField("attention", "attention", "text"),
    LinkField("weights", "weight_precision", "text"),
    LinkField("kv", "kv_precision", "text"),
    LinkField("state", "state_precision", "text"),
    LinkField("gpu", "gpu", "text"),
    LinkField("tp", "tp", "whole"),
    LinkField("pp", "pp", "whole"),
    LinkField("ep", "ep", "whole"),
    LinkField("dcp", "dcp", "whole"),
    LinkField("replicas", "replicas", "whole"),
    LinkField("engine", "engine", "text"),
    LinkField("engine_version", "engine_version", "text", optional=True),
    LinkField("util_pct", "utilization_pct", "whole", optional=True),
    LinkField("max_len", "max_model_len", "whole"),
    LinkField("max_seqs", "max_num_seqs", "whole", optional=True),
    LinkField("batched", "max_num_batched_tokens", "whole", optional=True),
    LinkField("block", "block_size", "whole", optional=True),
    LinkField("prefix", "prefix_caching", "flag"),
    LinkField("draft", "speculative_tokens", "whole"),
    LinkField("eager", "enforce_eager", "flag"),
    LinkField("hybrid", "hybrid_manager", "flag", optional=True),
    LinkField("async", "async_scheduling", "flag"),
    LinkField("images", "images", "flag"),
    LinkField("chunked", "chunked_prefill", "flag"),
    LinkField("weights_mib", "weights_mib", "whole", optional=True),
    LinkField("pool_mib", "kv_pool_mib", "whole", optional=True),
    LinkField("non_torch_mib", "non_torch_mib", "whole", optional=True),
    LinkField("activations_mib", "activations_mib", "whole", optional=True),
    LinkField("graphs_mib", "cuda_graphs_mib", "whole", optional=True),
    LinkField("prompt", "prompt_tokens", "whole"),
    LinkField("output", "output_tokens", "whole"),
    LinkField("want", "target_requests", "whole", optional=True),
    LinkField("tpot_ms", "target_tpot_ms", "whole", optional=True),
    LinkField("ttft_ms", "target_ttft_ms", "whole", optional=True),
    LinkField("cached", "cached_prompt_tokens", "whole"),
    LinkField("busy", "busy", "flag"),
    LinkField("per_hour", "requests_per_hour", "whole", optional=True),
    LinkField("prompt_p95", "prompt_tokens_p95", "whole", optional=True),
    LinkField("output_p95", "output_tokens_p95", "whole", optional=True),
    LinkField("gpu_cents", "price_cents_per_gpu_hour", "whole", optional=True),
    LinkField("fleet_pct", "fleet_utilization_pct", "whole"),
)
_GPU_FIELDS = (
    LinkField("gpu_mib", "memory_mib", "whole"),
    LinkField("gpu_gbps", "bandwidth_gb_per_s", "whole"),
    LinkField("gpu_tflops", "bf16_tflops", "whole", optional=True),
)
_BY_KEY = {field.key: field for field in FIELDS}
_KNOWN_KEYS = {*_BY_KEY, *(field.key for field in _GPU_FIELDS), "v", "data", *_PAGE_KEYS, *_OF_VIEWS}


class LinkResult(Record):
    """What a link opened as."""

    scenario: Scenario
    """The scenario; fields that could not be used have their defaults."""
    notes: tuple[Note, ...]
    """Every field changed or refused, and what changed since the link was made."""


def to_link(scenario: Scenario) -> str:
    """The scenario as a query string, every field written: ``v=1&model=…``."""
    return urlencode(link_fields(scenario))


def link_fields(scenario: Scenario) -> dict[str, str]:
    """The same as separate keys and values, for a page's address bar."""
    pairs = {"v": str(LINK_VERSION)}
    for field in FIELDS:
        value = getattr(scenario, field.name)
        if field.name in ("model_facts", "model_label") and value is None:
            continue
        pairs[field.key] = written(field, value)
    if scenario.custom_gpu is not None:
        pairs |= {field.key: written(field, getattr(scenario.custom_gpu, field.name)) for field in _GPU_FIELDS}
    pairs["data"] = ".".join(_digests(scenario))
    return pairs


def from_link(text: str) -> LinkResult:
    """Open a query string or a whole address: what cannot be used is named in the notes.

    Raises LinkError only for what is not text at all.
    """
    if not isinstance(text, str):
        raise LinkError("link", "a query string or an address", text, hint="Give it as text.")
    notes: list[Note] = []
    pairs = read_pairs(text, notes)
    pairs = {key: value for key, value in pairs.items() if view_of(key) is None}
    if not pairs.keys() - _PAGE_KEYS:
        return LinkResult(scenario=Scenario.default(), notes=tuple(notes))
    _check_version(pairs.get("v"), notes)
    values = _values(pairs, notes)
    missing = [
        field.key for field in FIELDS if field.key not in pairs and field.kind != "facts" and field.key != "label"
    ]
    if missing:
        notes.append(Note(field="link", text=f"Not in the link, so filled in: {', '.join(missing)}."))
    scenario = _build(values, notes)
    _compare_data(pairs.get("data"), scenario, notes)
    return LinkResult(scenario=scenario, notes=tuple(notes))


def view_of(key: str) -> str | None:
    """The view a key of a link belongs to; None for the scenario's own and the page's."""
    if key.startswith(DOCUMENT_PREFIX):
        return "document"
    if key in COMPARED_KEYS:
        return "compare"
    return "levers" if key in SESSION_KEYS else None


def written(field: LinkField, value: Any) -> str:
    """A value as a link writes it."""
    if value is None:
        return _NONE
    if field.kind == "flag":
        return "on" if value else "off"
    if field.kind == "facts":
        packed = zlib.compress(str(value).encode(), 9)
        return base64.urlsafe_b64encode(packed).decode().rstrip("=")
    return str(value)


def read_value(field: LinkField, text: str) -> Any:
    """A value from a link. Raises LinkError."""
    if text == _NONE and field.optional:
        return None
    if field.kind == "flag":
        if text not in ("on", "off"):
            raise LinkError(field.key, "on or off", text, hint="")
        return text == "on"
    if field.kind == "whole":
        # isdecimal alone admits other scripts' digits; a link is ASCII.
        if not (text.isascii() and text.isdecimal() and len(text) <= 12):
            raise LinkError(field.key, "a whole number", text, hint="")
        return int(text)
    if field.kind == "facts":
        return _unpacked(field, text)
    return text


def _unpacked(field: LinkField, text: str) -> str:
    try:
        packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        reader = zlib.decompressobj()
        raw = reader.decompress(packed, _LONGEST_FACTS)
        if reader.unconsumed_tail or not reader.eof:
            raise ValueError
        facts = json.loads(raw)
        if not isinstance(facts, dict):
            raise ValueError
        return raw.decode()
    except (ValueError, binascii.Error, zlib.error, RecursionError) as error:
        raise LinkError(field.key, "packed sizing facts", text, hint="") from error


def read_pairs(text: str, notes: list[Note]) -> dict[str, str]:
    if len(text) > _LONGEST_LINK:
        notes.append(Note(field="link", text=f"Longer than {_LONGEST_LINK:,} characters, so it was not read."))
        return {}
    query = text.strip()
    # In front of the first value: a value may be an address itself.
    if "://" in query.partition("=")[0] or query.startswith("/"):
        try:
            query = urlsplit(query).query
        except ValueError:
            notes.append(Note(field="link", text="Not an address that can be read."))
            return {}
    try:
        found = parse_qsl(query.lstrip("?"), keep_blank_values=True, max_num_fields=200)
    except ValueError:
        notes.append(Note(field="link", text="More than 200 fields, so it was not read."))
        return {}
    pairs: dict[str, str] = {}
    for key, value in found:
        if key not in _KNOWN_KEYS and not key.startswith(DOCUMENT_PREFIX):
            notes.append(Note(field=shown(key)[1:-1], text="Not a field of a scenario, so it was ignored."))
        elif key in pairs:
            notes.append(Note(field=key, text="Given twice; the first was used."))
        else:
            pairs[key] = value
    return pairs


def _check_version(version: str | None, notes: list[Note]) -> None:
    if version is None:
        notes.append(Note(field="v", text=f"The link names no version; it was read as version {LINK_VERSION}."))
    elif version != str(LINK_VERSION):
        notes.append(
            Note(
                field="v",
                text=f"expected version {LINK_VERSION}, got {shown(version)}. What this release knows was used; "
                "open the link in a newer kvcalc to see the rest.",
            )
        )


def _values(pairs: dict[str, str], notes: list[Note]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in FIELDS:
        if field.key in pairs:
            _take(field, pairs[field.key], values, notes)
    if "facts" in pairs and "model_facts" not in values:
        # Refused just now: that the model lacks them needs no second note.
        values.pop("model", None)
    if values.get("gpu") == CUSTOM:
        typed: dict[str, Any] = {}
        for field in _GPU_FIELDS:
            if field.key in pairs:
                _take(field, pairs[field.key], typed, notes)
        try:
            values["custom_gpu"] = CustomGpu(**typed)
        except KvcalcError as error:
            del values["gpu"]
            if error.field in typed:
                notes.append(Note(field="gpu", text=f"{error} The default GPU was used."))
                return values
            notes.append(Note(field="gpu", text="A custom GPU needs gpu_mib and gpu_gbps; the default GPU was used."))
    return values


def _take(field: LinkField, text: str, into: dict[str, Any], notes: list[Note]) -> None:
    try:
        into[field.name] = read_value(field, text)
    except LinkError as error:
        notes.append(
            Note(
                field=field.key,
                text=f"expected {error.expected}, got {shown(error.got)}. The default was used.",
            )
        )


def _build(values: dict[str, Any], notes: list[Note]) -> Scenario:
    """The scenario, leaving out one refused field at a time."""
    values = {"model": DEFAULT_MODEL, **values}
    for _ in range(len(FIELDS) + 1):
        try:
            scenario = Scenario(**values)
            _resolve(scenario)
            return scenario
        except KvcalcError as error:
            refused = _field_of(error, values)
            if refused is None:
                notes.append(Note(field=error.field, text=f"{error} The default scenario is shown."))
                break
            said = str(error).removeprefix(f"{refused}: ")
            notes.append(Note(field=refused, text=f"{said} The default was used."))
            for name in _GOES_WITH.get(refused, (refused,)):
                values.pop(name, None)
            values = {"model": DEFAULT_MODEL, **values}
    return Scenario.default()


_GOES_WITH = {
    "model": ("model", "model_facts", "model_label"),
    "model_facts": ("model", "model_facts", "model_label"),
    "tp": ("tp", "pp"),
    "pp": ("tp", "pp"),
    "gpu": ("gpu", "custom_gpu"),
    "custom_gpu": ("gpu", "custom_gpu"),
}


def _resolve(scenario: Scenario) -> None:
    """Touch what a scenario names, so that an unknown id is found while its field can still be named."""
    spec_of(scenario)
    gpu_of(scenario)
    if scenario.weight_precision != "checkpoint":
        precision.weight_format(scenario.weight_precision)
    precision.kv_format(scenario.kv_precision)
    precision.state_format(scenario.state_precision)


def _field_of(error: KvcalcError, values: dict[str, Any]) -> str | None:
    """The given field an error blames; the model when its facts were refused under a config key."""
    names = {"precision": "weight_precision"}
    name = names.get(error.field, error.field).split(".")[0]
    if name in values and not (name == "model" and values["model"] == DEFAULT_MODEL):
        return name
    return "model" if values["model"] != DEFAULT_MODEL else None


@lru_cache(maxsize=256)
def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:6]


def _digests(scenario: Scenario) -> tuple[str, str, str]:
    """Digests of the model's facts, the GPU's row, and everything bundled."""
    model = PASTED if scenario.model == PASTED else _model_digest(scenario.model)
    gpu = CUSTOM if scenario.gpu == CUSTOM else _gpu_digest(scenario.gpu)
    return model, gpu, data_digest()


@lru_cache(maxsize=256)
def _model_digest(model: str) -> str:
    return _digest(catalogue.model(model).sizing_facts)


@lru_cache(maxsize=256)
def _gpu_digest(gpu: str) -> str:
    return _digest(catalogue.gpu(gpu).model_dump_json())


def _compare_data(given: str | None, scenario: Scenario, notes: list[Note]) -> None:
    """Say what changed since the link was made."""
    if given is None:
        return
    now, then = _digests(scenario), given.split(".")
    if then == list(now):
        return
    names = ("the model preset", "the GPU's figures")
    changed = [name for name, old, new in zip(names, then, now, strict=False) if old != new]
    what = " and ".join(changed) if changed else "bundled data this scenario may use (formats, overheads, fits)"
    notes.append(
        Note(field="data", text=f"Since this link was made {what} changed in kvcalc; the numbers are today's.")
    )
