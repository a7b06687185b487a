"""Reading the bundled data files: TOML in, strict records out, and the file named when one is wrong."""

from __future__ import annotations

import hashlib
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from kvcalc.errors import CatalogueError

DATA_FOLDER = Path(__file__).resolve().parent.parent / "model_presets"

_Model = TypeVar("_Model", bound=BaseModel)


def load_toml(path: Path) -> dict[str, object]:
    """A TOML file as plain data. Raises CatalogueError naming the file."""
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise CatalogueError(path.name, "a readable TOML file", str(error), hint="Restore or fix the file.") from error


def validate(raw: object, model: type[_Model], *, where: str) -> _Model:
    """Raw data as a strict record. The first fault is named by file and key."""
    try:
        # Through JSON, so that strictness still lets a list become a tuple.
        return model.model_validate_json(to_json(raw))
    except ValidationError as error:
        first = error.errors()[0]
        missing, message = first["type"] == "missing", first["msg"].removeprefix("Input should be ")
        expected = {"missing": "this key", "extra_forbidden": "no such key"}.get(
            first["type"], message[0].lower() + message[1:]
        )
        raise CatalogueError(
            f"{where} [{_place(raw, first['loc'])}]",
            expected,
            None if missing else first.get("input"),
            hint="See model_presets/README.md for the keys a row takes.",
        ) from error


def _place(raw: Any, loc: tuple[int | str, ...]) -> str:
    """The key at fault; a row of a table by its id, where it has one."""
    names: list[str] = []
    for part in loc:
        inside = (isinstance(raw, dict) and part in raw) or (isinstance(raw, list) and isinstance(part, int))
        raw = raw[part] if inside else None
        row_id = raw.get("id") if isinstance(part, int) and isinstance(raw, dict) else None
        names.append(str(part if row_id is None else row_id))
    return ".".join(names) or "(top)"


def load_table(name: str, model: type[_Model]) -> _Model:
    """One bundled data file as its record."""
    return validate(load_toml(DATA_FOLDER / name), model, where=f"model_presets/{name}")


@lru_cache(maxsize=1)
def data_digest() -> str:
    """Eight hex digits of everything in model_presets/: a link remembers which data it was computed with."""
    digest = hashlib.sha256()
    for path in sorted(DATA_FOLDER.rglob("*.toml")):
        digest.update(path.relative_to(DATA_FOLDER).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:8]
