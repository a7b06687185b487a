"""A comparison for elsewhere: Markdown for a design review, CSV for a spreadsheet."""

from __future__ import annotations

import csv
import io

from kvcalc.compare_link import to_compare_link
from kvcalc.comparison import Cell, Comparison
from kvcalc.export import markdown_cell, markdown_table, scenario_line


def comparison_to_markdown(found: Comparison, *, address: str = "") -> str:
    """Sentence, scenarios and table, with the link that opens the comparison.

    address  of the page, without a query string; empty leaves the link out
    """
    lines = [f"## {markdown_cell(found.sentence)}", ""]
    for column in found.columns:
        words = f"{column.letter} ({column.label}): {scenario_line(column.report)}"
        lines.append(f"- {markdown_cell(words)}")
    header = ("", *(column.letter for column in found.columns))
    lines += ["", *markdown_table(header, [(row.label, *map(_text, row.cells)) for row in found.rows])]
    if address:
        scenarios = [column.report.scenario for column in found.columns]
        lines += ["", f"Link: `{address}?view=compare&{to_compare_link(scenarios[0], tuple(scenarios[1:]))}`"]
    return "\n".join(lines) + "\n"


def comparison_to_csv(found: Comparison) -> str:
    """One line per figure, one column per scenario."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["", *(column.letter for column in found.columns)])
    writer.writerow(["Scenario", *(_plain(column.label) for column in found.columns)])
    writer.writerows([row.label, *(_plain(cell.text) for cell in row.cells)] for row in found.rows)
    return out.getvalue()


def _plain(text: str) -> str:
    """Text that no spreadsheet takes for a formula: a model's name may come from a link."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t")) else text


def _text(cell: Cell) -> str:
    return f"{cell.text} ({cell.delta})" if cell.delta else cell.text
