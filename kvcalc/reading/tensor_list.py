"""Rows of the data files, worked out for given facts and joined into tensor classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from kvcalc.reading.rows import Block, Row, expression
from kvcalc.tensors import Part, Role, Shard, TensorClass


class _Key(NamedTuple):
    """What makes two tensors the same class."""

    name: str
    part: Part
    rows: int
    columns: int
    copies: int
    shard: Shard
    shard_units: int
    quantizable: bool
    role: Role
    tied_to: str | None


class TensorList:
    """Tensors by class, in the order they were first met."""

    def __init__(self, rename: Mapping[str, str]) -> None:
        self._rename = rename
        self._layers: dict[_Key, list[int]] = {}

    def add(self, block: Block, fact: Callable[[str], int], layers: Iterable[int], *, part: Part | None = None) -> None:
        """A block's rows worked out for these facts, in these layers."""
        places = tuple(layers)
        for row in block.rows:
            for key in _keys(row, block.part, fact, self._rename, part):
                self._layers.setdefault(key, []).extend(places)

    def classes(self) -> tuple[TensorClass, ...]:
        """The tensors as records."""
        return tuple(TensorClass(layers=tuple(sorted(layers)), **key._asdict()) for key, layers in self._layers.items())


def _keys(
    row: Row, part: Part, fact: Callable[[str], int], rename: Mapping[str, str], override: Part | None
) -> Iterable[_Key]:
    if not expression(row.when).value(fact):
        return
    rows, columns = expression(row.rows).value(fact), expression(row.columns).value(fact)
    copies = expression(row.copies).value(fact)
    if not rows * columns * copies:
        return
    is_vector = row.rows == "1" and not row.kept
    shard: Shard = row.shard or ("replicated" if is_vector else "split")
    key = _Key(
        name=_renamed(row.name, rename),
        part=override or row.part or part,
        rows=rows,
        columns=columns,
        copies=copies,
        shard=shard,
        shard_units=expression(row.units).value(fact),
        quantizable=not row.kept and not is_vector,
        role=row.role,
        tied_to=row.tied_to if row.tied_to and fact("tied") else None,
    )
    if key.tied_to:
        key = key._replace(tied_to=_renamed(key.tied_to, rename))
    yield key
    if expression(row.bias).value(fact):
        width = columns if is_vector else rows
        yield key._replace(name=f"{key.name}.bias", rows=1, columns=width, quantizable=False, role="")


def _renamed(name: str, rename: Mapping[str, str]) -> str:
    """The module path as the family writes it: the longest prefix in the map is replaced.

    >>> _renamed("mlp.experts.up_proj", {"mlp": "ffn", "mlp.experts.up_proj": "ffn.experts.w3"})
    'ffn.experts.w3'
    """
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        prefix = ".".join(parts[:length])
        if prefix in rename:
            return ".".join((rename[prefix], *parts[length:]))
    return name
