"""A comparison in a link: every scenario comes back as it was, a bad one is named, the others stay."""

from __future__ import annotations

import csv
import io

import pytest

from kvcalc import KvcalcError, Scenario, from_link, to_link
from kvcalc.compare_link import read_compared, read_scenario, to_compare_link
from kvcalc.comparison import compare
from kvcalc.export_comparison import comparison_to_csv, comparison_to_markdown
from tests.small_model import scenario

A = Scenario.default()
B = A.model_copy(update={"kv_precision": "fp8"})
C = A.model_copy(update={"gpu": "h200-sxm", "target_requests": 9})
D = Scenario(model="google/gemma-3-27b-it", prompt_tokens=12_000)


def test_a_comparison_comes_back_as_it_was() -> None:
    link = to_compare_link(A, (B, C, D))
    found = read_compared(f"https://example.org/?view=compare&{link}")
    assert found.scenarios == {"B": B, "C": C, "D": D}
    assert found.notes == ()
    assert from_link(link).scenario == A
    assert from_link(link).notes == ()


def test_a_pasted_config_travels_in_a_comparison() -> None:
    pasted = scenario(model_label="Mine & co = 100%")
    assert read_compared(to_compare_link(A, (pasted,))).scenarios == {"B": pasted}


@pytest.mark.parametrize("rubbish", ["", "rubbish", "https://example.org/?q=1", "v=1&view=compare"])
def test_what_is_no_link_is_named_and_the_others_are_kept(rubbish: str) -> None:
    found = read_compared(f"{to_link(A)}&b={rubbish.replace('&', '%26')}&c={to_link(C).replace('&', '%26')}")
    assert found.scenarios == {"C": C}
    (note,) = found.notes
    assert note.field == "B"
    assert "link: expected a link of this page" in note.text
    assert note.text.endswith("It is left out.")


def test_a_bad_field_of_one_scenario_is_named_with_its_letter() -> None:
    bad = to_link(B).replace("prompt=7000", "prompt=many")
    found = read_compared(to_compare_link(A, (B,)).replace("prompt%3D7000", "prompt%3Dmany"))
    assert found.scenarios["B"] == from_link(bad).scenario
    assert [(note.field, note.text) for note in found.notes] == [
        ("B, prompt", "expected a whole number, got 'many'. The default was used.")
    ]


def test_a_scenario_without_an_answer_is_named() -> None:
    # 80 layers cannot be dealt over 81 stages.
    refused = to_link(A.model_copy(update={"pp": 81, "tp": 1}))
    with pytest.raises(KvcalcError, match="pp: expected"):
        read_scenario(refused)


def test_a_link_of_a_comparison_is_its_first_scenario() -> None:
    assert read_scenario(to_compare_link(B, (C,))) == (B, ())


def test_letters_stay_when_one_is_missing() -> None:
    found = compare((A, C), letters="AC")
    assert [column.letter for column in found.columns] == ["A", "C"]
    assert found.sentence.startswith("C serves ")


def test_the_files_hold_every_scenario_and_the_link() -> None:
    found = compare((A, B))
    markdown = comparison_to_markdown(found, address="https://example.org/")
    address = next(line for line in markdown.splitlines() if line.startswith("Link: ")).split("`")[1]
    assert read_compared(address).scenarios == {"B": B}
    assert from_link(address).scenario == A
    header, names, *rows = csv.reader(io.StringIO(comparison_to_csv(found)))
    assert header == ["", "A", "B"]
    assert names == ["Scenario", "now", "FP8 KV"]
    assert ["KV precision", "BF16", "FP8"] in rows


def test_a_name_is_no_formula_in_a_spreadsheet() -> None:
    named = scenario(model_label="=cmd()")
    rows = list(csv.reader(io.StringIO(comparison_to_csv(compare((A, named))))))
    assert not [cell for row in rows for cell in row if cell.startswith("=")]
