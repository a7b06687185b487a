"""Runs tests/cases/*.toml, the specification. CONTRIBUTING.md says how to write a case."""

from __future__ import annotations

import ast
import importlib
import math
import operator
import tomllib
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from kvcalc.catalogue import read_model
from kvcalc.document_size import DocumentQuestion
from kvcalc.errors import KvcalcError
from kvcalc.scenario import Scenario

FILES = sorted((Path(__file__).parent / "cases").glob("*.toml"))
CASES = [case for file in FILES for case in tomllib.loads(file.read_text(encoding="utf-8"))["case"]]
KEYS = {"name", "source", "call", "model", "scenario", "document", "args", "input", "output", "refuses"}
_ARITHMETIC = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}


def whole(node: ast.expr) -> int:
    """The whole number that written-out arithmetic gives: + - * // ** and brackets."""
    if isinstance(node, ast.BinOp):
        return _ARITHMETIC[type(node.op)](whole(node.left), whole(node.right))
    assert type(getattr(node, "value", None)) is int, f"whole numbers only, got {ast.unparse(node)}"
    return node.value  # type: ignore[attr-defined]


def written(value: Any) -> Any:
    """A value of a case; text that starts with '=' is arithmetic."""
    if isinstance(value, str) and value.startswith("="):
        return whole(ast.parse(value[1:].strip(), mode="eval").body)
    return value


def plain(value: Any) -> Any:
    """A result in the types TOML has."""
    if isinstance(value, Fraction):
        return str(value)
    return [plain(item) for item in value] if isinstance(value, tuple | list) else value


def at(result: Any, path: str) -> Any:
    """What a dotted path names in a result; 'value' is all of it, a number picks an item."""
    for step in [] if path == "value" else path.split("."):
        if step.isdigit():
            result = result[int(step)]
        else:
            result = result[step] if isinstance(result, dict) else getattr(result, step)
    return result


def check(got: Any, wanted: Any, path: str) -> None:
    """One line of [case.output]."""
    if path == "assumed":
        assert set(wanted) <= {assumption.field for assumption in got.assumptions}
        return
    got = plain(at(got, path))
    if not isinstance(wanted, dict):
        assert not isinstance(wanted, float), f"{path}: a float needs rel_tol or abs_tol, and why"
        assert got == written(wanted), path
        return
    bounds = {key: written(bound) for key, bound in wanted.items()}
    for name, holds in _CHECKS.items():
        if name in bounds:
            assert holds(got, bounds), f"{path}: got {got!r}, expected {bounds}"
    assert bounds.keys() & _CHECKS.keys(), f"{path}: nothing is checked"
    assert bounds.keys() <= _CHECKS.keys() | _TOLERANCE, f"{path}: a key is not known"


def close(got: Any, bounds: dict[str, Any]) -> bool:
    assert bounds.get("why"), "a tolerance needs its reason"
    tolerance = {key: bounds[key] for key in ("rel_tol", "abs_tol") if key in bounds}
    assert tolerance, "rel_tol or abs_tol is missing"
    return math.isclose(got, bounds["value"], **{"rel_tol": 0, **tolerance})


_TOLERANCE = {"rel_tol", "abs_tol", "why"}
_CHECKS = {
    "value": close,
    "at_least": lambda got, bounds: got >= bounds["at_least"],
    "at_most": lambda got, bounds: got <= bounds["at_most"],
    "contains": lambda got, bounds: bounds["contains"] in got,
    "length": lambda got, bounds: len(got) == bounds["length"],
    "is_none": lambda got, bounds: (got is None) == bounds["is_none"],
}


def run(case: dict[str, Any]) -> Any:
    """The result of a case's call; without a call, the model it describes."""
    given = [written(value) for value in case.get("args", [])]
    if "model" in case:
        (source,) = case["model"].values()
        given.insert(0, read_model(source))
    if "scenario" in case:
        given.append(Scenario(**case["scenario"]))
    if "document" in case:
        given.append(DocumentQuestion.of_pages(**case["document"]))
    if "call" not in case:
        return given[0]
    module, _, path = case["call"].rpartition(":")
    owner = importlib.import_module(f"kvcalc.{module}" if module else "kvcalc")
    return at(owner, path)(*given, **{key: written(value) for key, value in case.get("input", {}).items()})


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_case(case: dict[str, Any]) -> None:
    assert case.keys() <= KEYS
    assert case["source"].strip()
    assert ("output" in case) != ("refuses" in case), "a case states an output or a refusal"
    if "output" in case:
        result = run(case)
        assert case["output"], "an output with nothing in it cannot fail"
        for path, wanted in case["output"].items():
            check(result, wanted, path)
        return
    refusal = case["refuses"]
    with pytest.raises(KvcalcError) as refused:
        run(case)
    assert type(refused.value).__name__ == refusal["error"]
    assert refused.value.field == refusal.get("field", refused.value.field)
    for words in refusal["says"]:
        assert words in str(refused.value)


def test_every_case_has_its_own_name() -> None:
    names = [case["name"] for case in CASES]
    assert sorted(set(names)) == sorted(names)
