"""Tensor layouts as data: rows whose sizes are small sums and products of named facts.

``model_presets/tensors/*.toml`` says which matrices a block has and how large they are; this file works a
row out for given facts. Sizes are written as a person would: ``heads * key_dim``, ``2 * inner + 2 * groups``.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from functools import lru_cache

from kvcalc.errors import CatalogueError, Record
from kvcalc.tensors import Part, Role, Shard

Facts = Mapping[str, int]

_OPERATORS: dict[type[ast.AST], Callable[[int, int], int]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b if b else 0,  # a tower without patches has no grid
    ast.Eq: lambda a, b: int(a == b),
    ast.NotEq: lambda a, b: int(a != b),
    ast.Gt: lambda a, b: int(a > b),
    ast.Lt: lambda a, b: int(a < b),
}


class Row(Record):
    """One matrix or vector of a block. Sizes are expressions over the facts of the layer it sits in."""

    name: str
    """Module path without the layer prefix; a family may rename its parts."""
    rows: str = "1"
    """Output width. [values]"""
    columns: str = "1"
    """Input width. [values]"""
    copies: str = "1"
    """How many a layer has: experts, blocks of a tower."""
    when: str = "1"
    """Present when this is not 0."""
    bias: str = "0"
    """Whether the matrix has a bias of ``rows`` values."""
    part: Part | None = None
    """Part of the census; None takes the block's."""
    shard: Shard | None = None
    """How TP cuts it; None: matrices split, vectors are whole on every rank."""
    units: str = "0"
    """Heads past which ``kv_heads`` tensors repeat. [heads]"""
    kept: bool = False
    """Left alone by every quantiser although it is a matrix (router, convolution, table)."""
    role: Role = ""
    """What it does in its block, where a GGUF mix tells it apart."""
    tied_to: str | None = None
    """Tensor that holds the values when the fact ``tied`` is 1."""


class Block(Record):
    """Rows that belong together."""

    part: Part
    """Part of the census the rows belong to, unless a row says otherwise."""
    rows: tuple[Row, ...]
    """The tensors."""


class Expression:
    """A size over named facts, parsed once."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._node = ast.parse(text, mode="eval").body

    def value(self, fact: Callable[[str], int]) -> int:
        """The number for these facts."""
        return self._value(self._node, fact)

    def _value(self, node: ast.expr, fact: Callable[[str], int]) -> int:
        match node:
            case ast.Constant(value=int() as number):
                return int(number)
            case ast.Name(id=name):
                return fact(name)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](self._value(left, fact), self._value(right, fact))
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](self._value(left, fact), self._value(right, fact))
            case ast.IfExp(test=test, body=body, orelse=other):
                return self._value(body if self._value(test, fact) else other, fact)
            case ast.BoolOp(op=op, values=values):
                results = [self._value(value, fact) for value in values]
                return int(all(results)) if isinstance(op, ast.And) else int(any(results))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return int(not self._value(operand, fact))
        raise CatalogueError("model_presets/tensors", "a sum or product of facts", self.text, hint="Simplify the row.")


@lru_cache(maxsize=4096)
def expression(text: str) -> Expression:
    """The parsed expression; the data files repeat a few hundred."""
    return Expression(text)
