"""The catalogue: GPUs and model presets by name, and whatever a user holds → ModelSpec.

A preset is a trimmed config that goes through the same reader as a pasted one, so presets test the reader.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvcalc.data import DATA_FOLDER, load_toml, validate
from kvcalc.errors import Assumption, CatalogueError, ConfigError, Record
from kvcalc.hardware import GpuSpec, load_gpus
from kvcalc.model_spec import ModelSpec
from kvcalc.reading.hf_config import read_config
from kvcalc.reading.text import parse

if TYPE_CHECKING:
    from kvcalc.reading.gguf import GgufModel

_MODELS_FOLDER = DATA_FOLDER / "models"
_MOST_NEAR = 8
_MOST_FILE_BYTES = 4 * 2**20
_LONGEST_NAME = 200
_NOT_IN_A_NAME = frozenset("{}[]<>\n")


class ModelPreset(Record):
    """A model of the catalogue: its identity, where its facts come from, and the facts."""

    id: str
    """Its id on the Hugging Face Hub, org/name; also its id in links."""
    label: str
    """Name on the page."""
    words: tuple[str, ...] = ()
    """Other words people search for it by."""
    source: str
    """Where the config facts were read."""
    note: str | None = None
    """What to know about the source."""
    checked: str
    """Date the source was read, ISO."""
    config: dict[str, Any]
    """The config.json keys that decide sizes, and no others."""


@lru_cache(maxsize=1024)
def _key(name: str) -> str:
    """A name without case, spaces and punctuation, so that 'H100-SXM 80GB' and 'h100 sxm_80gb' are one."""
    return "".join(character for character in name.lower() if character.isalnum() or character == "+")


def _near(wanted: str, names: Mapping[str, str]) -> list[str]:
    """At most eight ids whose spellings are like the wanted one: those that contain it, then the likest.

    names  spelling key → id
    """
    key = _key(wanted[:_LONGEST_NAME])
    containing = [name for name in names if len(key) > 2 and key in name]
    like = difflib.get_close_matches(key, names, n=_MOST_NEAR, cutoff=0.6)
    return list(dict.fromkeys(names[name] for name in containing + like))[:_MOST_NEAR]


def _hint(wanted: str, names: Mapping[str, str], otherwise: str) -> str:
    near = _near(wanted, names)
    return f"Did you mean {', '.join(near)}?" if near else otherwise


# GPUs


def gpus() -> tuple[GpuSpec, ...]:
    """Every accelerator, in the order of the page's list."""
    return load_gpus()


@lru_cache(maxsize=1)
def _gpus_by_key() -> dict[str, GpuSpec]:
    table: dict[str, GpuSpec] = {}
    for spec in load_gpus():
        for name in {_key(text) for text in (spec.id, spec.name, *spec.aliases)}:
            if name in table:
                raise CatalogueError(
                    f"model_presets/gpus.toml [{spec.id}]",
                    f"names that no other row has (shared with {table[name].id})",
                    name,
                    hint="Remove the alias from one of the two rows.",
                )
            table[name] = spec
    return table


def gpu(name_or_spec: str | GpuSpec) -> GpuSpec:
    """An accelerator by id, name or alias, whatever its case and hyphens; a spec is returned as it is.

    Raises CatalogueError with the nearest names.
    """
    if isinstance(name_or_spec, GpuSpec):
        return name_or_spec
    if not isinstance(name_or_spec, str):
        raise CatalogueError("gpu", "a GPU's id, its name or a GpuSpec", name_or_spec, hint="Choose a GPU of the list.")
    found = _gpus_by_key().get(_key(name_or_spec))
    if found is None:
        names = {key: spec.id for key, spec in _gpus_by_key().items()}
        hint = _hint(name_or_spec, names, "Choose a GPU of the list.")
        raise CatalogueError("gpu", "a GPU of the catalogue", name_or_spec, hint=hint)
    return found


# Model presets


@lru_cache(maxsize=1)
def _preset_files() -> dict[str, Path]:
    """Preset id → file. A file is named org--name.toml, so that listing ids opens none."""
    return {path.stem.replace("--", "/", 1): path for path in sorted(_MODELS_FOLDER.glob("*.toml"), key=_file_order)}


def _file_order(path: Path) -> str:
    return path.stem.lower()


@lru_cache(maxsize=1)
def _ids_by_key() -> dict[str, str]:
    """Every spelling of a preset id: org/name, org--name and, where it is unique, the name alone."""
    table: dict[str, str] = {}
    shared: set[str] = set()
    for preset_id in _preset_files():
        table[_key(preset_id)] = preset_id
    for preset_id in _preset_files():
        short = _key(preset_id.split("/", 1)[-1])
        if table.setdefault(short, preset_id) != preset_id:
            shared.add(short)
    return {name: preset_id for name, preset_id in table.items() if name not in shared}


def preset_ids() -> tuple[str, ...]:
    """Ids of all presets, sorted. Opens no file."""
    return tuple(_preset_files())


@lru_cache(maxsize=512)
def _load_preset(preset_id: str) -> ModelPreset:
    path = _preset_files()[preset_id]
    found = validate(load_toml(path), ModelPreset, where=f"model_presets/models/{path.name}")
    if found.id != preset_id:
        raise CatalogueError(
            f"model_presets/models/{path.name} [id]",
            f"the id of its file name, {preset_id}",
            found.id,
            hint="Rename it.",
        )
    return found


@lru_cache(maxsize=1)
def model_presets() -> tuple[ModelPreset, ...]:
    """Every model preset, sorted by id. Reads the files once, and builds no model."""
    return tuple(_load_preset(preset_id) for preset_id in _preset_files())


def preset(preset_id: str) -> ModelPreset:
    """A preset by its Hub id, its file's name or its short name, whatever the case.

    Raises CatalogueError with the nearest ids.
    """
    found = _ids_by_key().get(_key(preset_id))
    if found is None:
        hint = _hint(preset_id, _ids_by_key(), "Choose a model of the list, or paste its config.json.")
        raise CatalogueError("model", "a model of the catalogue", preset_id, hint=hint)
    return _load_preset(found)


@lru_cache(maxsize=256)
def _model(preset_id: str) -> ModelSpec:
    found = _load_preset(preset_id)
    return read_config(found.config, label=found.label)


def model(preset_id: str) -> ModelSpec:
    """The model of a preset. Raises CatalogueError, or ConfigError when its facts cannot be sized."""
    return _model(preset(preset_id).id)


# Whatever a user holds


def read_model(source: dict[str, Any] | str | Path) -> ModelSpec:
    """A model from a config as a dict, its JSON text, a JSON or GGUF file as a Path, or a preset's id.

    Raises ConfigError for what cannot be sized.
    """
    if isinstance(source, Path):
        return _read_file(source)
    if isinstance(source, dict):
        return read_config(source)
    if not isinstance(source, str):
        raise ConfigError("model", "a config, JSON text, a path or a preset id", source, hint="Paste config.json.")
    name = source.strip()
    is_name = len(name) <= _LONGEST_NAME and not _NOT_IN_A_NAME.intersection(name)
    return _read_named(name) if is_name else read_config(parse(source))


def read_gguf_model(source: bytes | Path) -> tuple[ModelSpec, GgufModel]:
    """A GGUF file, or the bytes at its start, as a model; and what its header says beside. Raises ConfigError."""
    from kvcalc.reading.gguf import read_gguf

    header = read_gguf(source)
    return read_config(header.config, label=header.label or None), header


def _with_mix(spec: ModelSpec, header: GgufModel) -> ModelSpec:
    """The model, with a word on how the file stores its weights: that is a weight precision, not a property of it."""
    if header.weight_precision is None or not header.file_type:
        return spec
    reason = "The file's mix is not part of the model: choose it as the weight precision."
    note = Assumption(field="weight_precision", value=header.weight_precision, reason=reason)
    return spec.model_copy(update={"assumptions": (*spec.assumptions, note)})


def _read_named(name: str) -> ModelSpec:
    known = _ids_by_key().get(_key(name))
    if known is not None:
        return _model(known)
    if name.lower().endswith((".json", ".gguf")):
        # Text is never opened as a file: it may be what somebody pasted into the page.
        hint = "Paste the text of the file, or give it as pathlib.Path."
    else:
        hint = _hint(name, _ids_by_key(), "Paste the model's config.json, or fetch it from the Hub.")
    raise ConfigError("model", "a model of the catalogue, or the text of a config.json", name or None, hint=hint)


def _read_file(path: Path) -> ModelSpec:
    if path.is_dir():
        raise ConfigError("model", "a file", str(path), hint="Point to the config.json inside this folder.")
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_FILE_BYTES + 1)
    except OSError as error:
        reason = error.strerror or "not readable"
        raise ConfigError("model", "a readable file", str(path), hint=f"The system says: {reason}.") from error
    if content[:4] == b"GGUF":
        return _with_mix(*read_gguf_model(path))
    if len(content) > _MOST_FILE_BYTES:
        limit = _MOST_FILE_BYTES // 2**20
        raise ConfigError("model", f"a config of at most {limit} MiB", str(path), hint="Use the model's config.json.")
    return read_config(parse(content.decode("utf-8", errors="replace")))
