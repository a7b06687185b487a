"""Which blocks a model type's layers have: ``model_presets/tensors/families.toml`` as records, and its facts.

Adding a family is a table in that file; nothing here knows a model's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from pydantic import Field

from kvcalc.data import load_table
from kvcalc.errors import CatalogueError, Record
from kvcalc.reading.rows import Block, expression
from kvcalc.reading.section import Section, whole_number

_NO_NUMBER = ("auto",)
"""Values that ask for the class's own rule, as ``mamba_dt_rank = "auto"``."""


class FactSource(Record):
    """A fact the config states."""

    keys: tuple[str, ...]
    """Config keys, the first that is not null wins; true counts 1."""
    default: int | str = 0
    """Number or expression when no key is there."""
    within: str | None = None
    """Nested dict that holds the keys."""
    count: bool = False
    """The value is a list, and the fact how many entries it has; any other list stands for its first entry."""
    outside: bool = False
    """For a tower: the keys are in the whole file, not in the tower's section."""


Fact = int | str | FactSource


class Family(Record):
    """What differs from the base layout."""

    model_types: tuple[str, ...] = ()
    """Model types of this family."""
    first: tuple[str, ...] | None = None
    """Blocks before the first layer."""
    last: tuple[str, ...] | None = None
    """Blocks after the last layer."""
    each: tuple[str, ...] | None = None
    """Blocks of every layer."""
    dense: tuple[str, ...] | None = None
    """Feed-forward blocks of a dense layer."""
    moe: tuple[str, ...] | None = None
    """Feed-forward blocks of a routed layer."""
    mixers: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Blocks by layer kind."""
    facts: dict[str, Fact] = Field(default_factory=dict)
    """Facts and switches."""
    rename: dict[str, str] = Field(default_factory=dict)
    """Module path prefixes as this family's checkpoints write them."""


class _Blocks(Record):
    blocks: dict[str, Block]


class _Families(Record):
    base: Family
    families: tuple[Family, ...]


@lru_cache(maxsize=1)
def blocks() -> dict[str, Block]:
    """Every block by name."""
    return load_table("tensors/blocks.toml", _Blocks).blocks


@lru_cache(maxsize=1)
def _families() -> tuple[Family, dict[str, Family]]:
    table = load_table("tensors/families.toml", _Families)
    return table.base, {model_type: row for row in table.families for model_type in row.model_types}


@lru_cache(maxsize=256)
def family(model_type: str) -> tuple[Family, bool]:
    """(layout of a model type, whether the type is known). An unknown type gets the base layout."""
    base, by_type = _families()
    own = by_type.get(model_type)
    if own is None:
        return base, False
    return (
        Family(
            model_types=own.model_types,
            first=base.first if own.first is None else own.first,
            last=base.last if own.last is None else own.last,
            each=base.each if own.each is None else own.each,
            dense=base.dense if own.dense is None else own.dense,
            moe=base.moe if own.moe is None else own.moe,
            mixers=base.mixers | own.mixers,
            facts=base.facts | own.facts,
            rename=own.rename,
        ),
        True,
    )


class FactBook:
    """Facts by name: those the data file reads or sets, else those given. Each is worked out once."""

    def __init__(
        self, given: Mapping[str, int], facts: Mapping[str, Fact], config: Section, whole: Section | None = None
    ) -> None:
        self._known = {name: value for name, value in given.items() if name not in facts}
        self._facts = facts
        self._config = config
        self._whole = config if whole is None else whole

    def __call__(self, name: str) -> int:
        """The fact. Raises CatalogueError when the data files do not define it."""
        if name not in self._known:
            if name not in self._facts:
                raise CatalogueError("model_presets/tensors", "a fact that is defined", name, hint="Define the fact.")
            self._known[name] = self._worked_out(self._facts[name])
        return self._known[name]

    def _worked_out(self, fact: Fact) -> int:
        if isinstance(fact, FactSource):
            place: Section | None = self._whole if fact.outside else self._config
            if place is not None and fact.within:
                place = place.section(fact.within)
            value = place.get(*fact.keys) if place is not None else None
            if value is None or value in _NO_NUMBER:
                return self._worked_out(fact.default)
            if isinstance(value, list | tuple):
                value = len(value) if fact.count else next(iter(value), None)
            return int(value) if isinstance(value, bool) else whole_number(fact.keys[0], value)
        return fact if isinstance(fact, int) else expression(fact).value(self)
