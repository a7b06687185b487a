"""The documents say what the code does."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

import kvcalc
from kvcalc.glossary import TERMS, term
from scripts import docs, shots
from tests.support import ROOT

DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("model_presets/*.md")])
NOT_OURS = {
    ".git",
    ".venv",
    ".hypothesis",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    "test-output",
    "__pycache__",
}
README = (ROOT / "README.md").read_text(encoding="utf-8")
METHODOLOGY = (ROOT / "METHODOLOGY.md").read_text(encoding="utf-8")


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def text_files() -> list[Path]:
    """Every file of the project that is text."""
    files = (path for path in ROOT.rglob("*") if path.is_file() and not NOT_OURS & set(path.parts))
    return sorted(path for path in files if path.suffix not in {".png", ".pyc", ".gz"})


def targets() -> set[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z]+):.*## ", makefile, flags=re.MULTILINE))


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_every_make_command_in_a_document_exists(document: Path) -> None:
    named = set(re.findall(r"(?:`|^)make ([a-z]+)", document.read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert named <= targets()


def test_the_readme_names_the_two_commands() -> None:
    assert {"run", "test"} <= targets()
    assert re.search(r"^make run\b", README, flags=re.MULTILINE)
    assert re.search(r"^make test\b", README, flags=re.MULTILINE)


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_links_and_pictures_of_a_document_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    headings = {
        re.sub(r"[^\w -]", "", line).strip().lower().replace(" ", "-")
        for line in re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    }
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("#"):
            assert target[1:] in headings, target
        elif "://" not in target:
            assert (document.parent / target.partition("#")[0]).exists(), target


def test_the_pictures_of_the_readme_are_those_the_script_takes() -> None:
    taken = {f"docs/shots/{shot.name}.png" for shot in shots.SHOTS}
    assert set(re.findall(r"!\[[^]]+\]\(([^)\s]+)\)", README)) == taken
    assert {relative(path) for path in (ROOT / "docs" / "shots").iterdir()} == taken
    assert all((ROOT / name).stat().st_size <= shots.MOST_BYTES for name in taken)


@pytest.mark.parametrize("document", DOCUMENTS, ids=relative)
def test_files_named_in_a_document_exist(document: Path) -> None:
    """A path in backticks with a folder in it is a file or folder of the project."""
    for name in re.findall(r"`([\w.]+/[\w./-]*)`", document.read_text(encoding="utf-8")):
        assert (ROOT / name).exists(), name


def test_the_worked_number_of_the_readme_is_what_the_code_says() -> None:
    worked = re.search(
        r"> (\d+) × (\d+) layers × (\d+) KV heads × (\d+) values × (\d+) B = ([\d,]+) B = (\d+) KiB", README
    )
    assert worked
    *factors, total, kib = (int(number.replace(",", "")) for number in worked.groups())
    product = 1
    for factor in factors:
        product *= factor
    spec = kvcalc.read_model("meta-llama/Llama-3.3-70B-Instruct")
    assert product == total == kib * 2**10
    assert total == kvcalc.kv_bytes_per_sequence(spec, context_tokens=1)
    assert kvcalc.evaluate(kvcalc.Scenario(model="meta-llama/Llama-3.3-70B-Instruct")).kv_bytes_per_token == total


def test_the_python_in_the_readme_runs() -> None:
    result = doctest.testfile(str(ROOT / "README.md"), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0
    assert result.failed == 0


def test_the_tables_of_the_method_are_up_to_date() -> None:
    assert docs.methodology(METHODOLOGY) == METHODOLOGY, "run: make fix"


def test_terms_are_written_once() -> None:
    for values in ([entry.key for entry in TERMS], [entry.name for entry in TERMS]):
        assert sorted(set(values)) == sorted(values)
    symbols = [entry.symbol for entry in TERMS if entry.symbol]
    assert sorted(set(symbols)) == sorted(symbols)


def test_a_word_that_is_not_in_the_glossary_is_refused_by_name() -> None:
    with pytest.raises(kvcalc.KvcalcError, match="got 'batch'"):
        term("batch")


@pytest.mark.parametrize("name", kvcalc.__all__)
def test_every_public_name_is_in_the_documents(name: str) -> None:
    pages = "\n".join(document.read_text(encoding="utf-8") for document in DOCUMENTS)
    assert re.search(rf"\b{re.escape(name)}\b", pages)


def test_the_changelog_begins_with_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\d+\.\d+\.\d+)", changelog, flags=re.MULTILINE)
    assert newest
    assert newest[1] == kvcalc.__version__


def test_no_file_names_a_machine_or_carries_a_secret() -> None:
    telling = re.compile(r"/(?:work|root|opt)/\w|/tmp/\w|\bhf_[A-Za-z0-9]{20,}|(?:index-url|find-links)[ =]", re.ASCII)
    made_up = {"tests/test_docs.py", "tests/test_hub.py"}
    found = [
        f"{relative(path)}: {match[0]}"
        for path in text_files()
        if relative(path) not in made_up
        for match in telling.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_no_work_is_left_open() -> None:
    marks = re.compile(r"\b(?:TODO|FIXME|XXX|TBD)\b")
    open_ends = [
        relative(path) for path in text_files() if path != Path(__file__) and marks.search(path.read_text("utf-8"))
    ]
    assert open_ends == []
