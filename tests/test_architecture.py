"""The house rules that a machine can check. CONTRIBUTING.md says why they exist."""

from __future__ import annotations

import ast
import graphlib
import importlib
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kvcalc
from kvcalc.errors import Record
from tests.support import ROOT

# Ground first. A module imports only from what stands before it; a folder counts as one floor.
FLOORS = (
    *("errors", "units", "data", "glossary"),
    *("precision", "parallelism", "tensors", "layers", "model_spec", "hardware"),
    *("reading", "catalogue", "attention_variant"),
    *("cache", "module_patterns", "gguf_mixes", "storage", "weights"),
    *("engines", "prefix_cache", "overheads", "budget", "latency", "speculative"),
    *("layout_choice", "scenario", "measured", "inputs", "request_sizes", "document_size", "first_token"),
    *("verdict", "report"),
    *("scenario_notes", "budget_notes", "changes", "evaluation", "enginelog", "sources"),
    *("reconcile", "reconcile_words"),
    *(
        "curves",
        "crossover",
        "speed_curves",
        "request_cost",
        "document",
        "kv_formats",
        "model_choice",
        "way",
        "alternatives",
        "waterfall",
        "levers",
        "mistakes",
        "fragmentation",
        "comparison",
        "fleet",
        "deployment_search",
        "other_deployments",
        "arithmetic",
        "explain_speed",
        "explain_memory",
        "explain_document",
        "explain",
        "share",
        "document_link",
        "compare_link",
        "export",
        "export_document",
        "export_comparison",
        "uploads",
    ),
    *("__init__", "__main__", "ui"),
)
PAGE_ONLY = {"streamlit", "altair", "pandas"}
HEAVY = {"huggingface_hub": "reading/hub.py", "gguf": "reading/gguf.py", "pypdf": "uploads/pdf.py"}
IMPORTED_AS = {"markdown-it-py": "markdown_it"}
COMPUTING = {"cache", "storage", "weights", "engines", "overheads", "latency"}
CORE_ALLOWS = {"pydantic", "pydantic_core", "annotated_types", "typing_extensions", "typing_inspection"}
LONGEST_MODULE, LONGEST_FUNCTION = 400, 60
LARGEST_NUMBER = 10**8

# Where memory is counted: integers and rationals only.
EXACT = ("cache.py", "parallelism.py", "tensors.py", "layers.py", "weights.py", "engines/")
ON_PURPOSE = {
    ("cache.py", "bytes_by_group"): "a Fraction divided by 8 stays exact",
    ("layers.py", "bits_per_token"): "a Fraction divided by the compression ratio stays exact",
    ("engines/sglang.py", "_state_slots"): "the pool is split by an exact Fraction",
    ("engines/base.py", "capacity"): "the engine prints its concurrency as a float",
}
FAMILIES = re.compile(r"\b(llama|qwen|deepseek|gemma|mistral|mixtral|falcon|nemotron|kimi|phi\d|glm)", re.IGNORECASE)

PACKAGE = ROOT / "kvcalc"
FILES = sorted(PACKAGE.rglob("*.py"))
TREES = {file.relative_to(PACKAGE).as_posix(): ast.parse(file.read_text(encoding="utf-8")) for file in FILES}
CORE = {name: tree for name, tree in TREES.items() if not name.startswith("ui/")}


def imported(tree: ast.AST) -> Iterator[str]:
    """Every module that a file imports, wherever in the file: 'kvcalc.units', 'json'."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""
            # ``from kvcalc import cache`` imports the module, not a name of the façade.
            yield from (f"{node.module}.{alias.name}" for alias in node.names if is_module(node.module, alias.name))


def is_module(package: str | None, name: str) -> bool:
    path = ROOT / (package or "").replace(".", "/") / name
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def floor(module: str) -> str:
    """The floor of a dotted module or a file: 'kvcalc.reading.text' and 'reading/text.py' are 'reading'."""
    parts = module.removesuffix(".py").replace("/", ".").removeprefix("kvcalc").strip(".").split(".")
    return parts[0] or "__init__"


def roots(tree: ast.AST) -> set[str]:
    return {name.partition(".")[0] for name in imported(tree)}


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("name", TREES)
def test_a_module_imports_only_from_lower_floors(name: str) -> None:
    here = floor(name)
    assert here in FLOORS, f"{name}: give it a place in FLOORS"
    for module in imported(TREES[name]):
        if module.partition(".")[0] == "kvcalc" and module != "kvcalc" and floor(module) != here:
            assert floor(module) in FLOORS, f"{module}: give it a place in FLOORS"
            assert FLOORS.index(floor(module)) < FLOORS.index(here), f"{name} imports {module} from above"


def test_no_floor_is_empty() -> None:
    assert {floor(name) for name in TREES} == set(FLOORS)


@pytest.mark.parametrize("folder", sorted({name.partition("/")[0] for name in TREES if "/" in name}))
def test_inside_a_folder_no_import_goes_round_in_a_circle(folder: str) -> None:
    graph: dict[str, set[str]] = {}
    for name, tree in TREES.items():
        if name.startswith(f"{folder}/"):
            module = "kvcalc." + name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            graph[module] = {other for other in imported(tree) if other.startswith(f"kvcalc.{folder}.")}
    tuple(graphlib.TopologicalSorter(graph).static_order())


@pytest.mark.parametrize("name", CORE)
def test_the_core_knows_no_page_and_no_network(name: str) -> None:
    found = roots(CORE[name])
    assert not found & PAGE_ONLY
    for package, only in HEAVY.items():
        assert package not in found or name == only
    assert found <= set(sys.stdlib_module_names) | CORE_ALLOWS | set(HEAVY) | {"kvcalc", "tokenizers"}


@pytest.mark.parametrize("name", [name for name in TREES if name.startswith("ui/")])
def test_the_page_computes_nothing(name: str) -> None:
    """It reads a Report; whatever turns inputs into bytes or seconds stays out of its reach."""
    assert not {floor(module) for module in imported(TREES[name]) if module.startswith("kvcalc.")} & COMPUTING


def test_the_default_answer_needs_only_the_standard_library_and_pydantic() -> None:
    program = """
import json, sys
before = set(sys.modules)
import kvcalc
kvcalc.evaluate(kvcalc.Scenario.default())
print(json.dumps(sorted({name.partition(".")[0] for name in set(sys.modules) - before})))
"""
    answer = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True, timeout=60
    )
    loaded = {name for name in json.loads(answer.stdout) if not name.startswith("_sysconfigdata")}
    assert "kvcalc" in loaded
    assert loaded - set(sys.stdlib_module_names) - CORE_ALLOWS == {"kvcalc"}


@pytest.mark.parametrize("name", [*TREES, "../app.py"])
def test_modules_and_functions_stay_short(name: str) -> None:
    text = (PACKAGE / name).read_text(encoding="utf-8")
    assert len(text.splitlines()) <= LONGEST_MODULE
    for function in functions(ast.parse(text)):
        start = function.body[1] if ast.get_docstring(function) and len(function.body) > 1 else function.body[0]
        length = (function.end_lineno or 0) - start.lineno + 1
        assert length <= LONGEST_FUNCTION, f"{function.name}: {length} lines"


@pytest.mark.parametrize("name", [name for name in CORE if name.startswith(EXACT)])
def test_memory_is_counted_without_floats(name: str) -> None:
    """No float literal, no float() and no true division where bytes are counted."""
    inexact = {
        inner
        for function in functions(CORE[name])
        if (name, function.name) in ON_PURPOSE
        for inner in ast.walk(function)
    }
    for node in ast.walk(CORE[name]):
        if node in inexact:
            continue
        place = f"{name}:{getattr(node, 'lineno', 0)}"
        assert not (isinstance(node, ast.Constant) and isinstance(node.value, float)), place
        assert not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)), place
        assert not (isinstance(node, ast.Call) and ast.unparse(node.func) == "float"), place


@pytest.mark.parametrize("name", [name for name in CORE if not name.startswith("reading/")])
def test_above_the_reader_nobody_knows_a_model_by_name(name: str) -> None:
    for node in ast.walk(CORE[name]):
        assert getattr(node, "attr", None) != "model_type"
        if isinstance(node, ast.Compare):
            texts = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
            assert not any(isinstance(text, str) and FAMILIES.search(text) for text in texts), ast.unparse(node)


@pytest.mark.parametrize("name", CORE)
def test_figures_of_hardware_and_models_live_in_data_files(name: str) -> None:
    for node in ast.walk(CORE[name]):
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and name != "units.py":
            assert node.value <= LARGEST_NUMBER, f"{name}:{node.lineno}: {node.value}"


@pytest.mark.parametrize("name", kvcalc.__all__)
def test_every_public_name_has_a_docstring(name: str) -> None:
    value = getattr(kvcalc, name)
    assert isinstance(value, str) or (value.__doc__ or "").strip()


def is_record(module: str, name: str) -> bool:
    owner = getattr(importlib.import_module(module), name, None)
    return isinstance(owner, type) and issubclass(owner, Record)


def silent_fields(module: str, tree: ast.Module) -> Iterator[str]:
    """Fields of public records without a docstring under them."""
    for owner in tree.body:
        if not isinstance(owner, ast.ClassDef) or owner.name.startswith("_") or not is_record(module, owner.name):
            continue
        for field, below in itertools.pairwise([*owner.body, ast.Pass()]):
            if not isinstance(field, ast.AnnAssign) or "ClassVar" in ast.unparse(field.annotation):
                continue
            name = ast.unparse(field.target)
            told = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
            if not told and name != "kind" and not name.startswith("_"):
                yield f"{owner.name}.{name}"


@pytest.mark.parametrize("name", CORE)
def test_every_field_of_a_record_says_what_it_is(name: str) -> None:
    module = "kvcalc." + name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    assert list(silent_fields(module, CORE[name])) == []


def test_requirements_name_what_is_imported_and_nothing_else() -> None:
    trees = [*TREES.values(), ast.parse((ROOT / "app.py").read_text(encoding="utf-8"))]
    third_party = set().union(*map(roots, trees)) - set(sys.stdlib_module_names) - {"kvcalc", "pydantic_core"}
    named = {IMPORTED_AS.get(name, name) for name in requirement_names(ROOT / "requirements.txt")}
    floors_of_the_web_server = {"starlette", "python-multipart"}
    assert named - floors_of_the_web_server == third_party


def requirement_names(file: Path) -> set[str]:
    lines = (line.partition("#")[0].strip() for line in file.read_text(encoding="utf-8").splitlines())
    return {re.split(r"[<>=!~\[ ]", line)[0] for line in lines if line}
