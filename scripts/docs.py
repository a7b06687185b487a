"""Writes the parts of METHODOLOGY.md that are made from data: `python -m scripts.docs`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from statistics import mean, median

from kvcalc.glossary import TERMS
from scripts import budget_errors, peers_table, pool_methods

METHODOLOGY = Path(__file__).resolve().parent.parent / "METHODOLOGY.md"


def table(header: str, rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table; the header's cells are divided by bars."""
    names = [name.strip() for name in header.split("|")]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (names, ["---"] * len(names), *rows))


def glossary_table() -> str:
    """Every term of the glossary."""
    return table(
        "term | symbol | unit | meaning | elsewhere | source",
        ((row.name, row.symbol, row.unit, row.one_line, row.elsewhere, row.source) for row in TERMS),
    )


def pool_table() -> str:
    """The KV pool against vLLM start-up logs."""
    items = budget_errors.judged()
    regular = [item for item in items if budget_errors.regular(item)]
    groups = {
        "all": items,
        "regular": regular,
        "regular, one GPU": [item for item in regular if item.row["tp"] == 1],
        "regular, TP 2 and more": [item for item in regular if item.row["tp"] > 1],
        "regular, mixture of experts": [item for item in regular if "experts" in item.row],
        "regular, vision": [item for item in regular if "image" in item.row],
        "recurrent, sparse attention, unified memory": [item for item in items if not budget_errors.regular(item)],
    }
    return table(
        "logs | number | median error | mean error | in the band | mean error of share × memory − weights",
        ((name, str(len(found)), *_pool_cells(found)) for name, found in groups.items()),
    )


def _pool_cells(items: list[budget_errors.Judged]) -> tuple[str, ...]:
    errors = [abs(item.error_gib) for item in items]
    naive = mean(abs(item.baseline_gib) for item in items)
    inside = mean(item.inside for item in items)
    return f"{median(errors):.2f} GiB", f"{mean(errors):.2f} GiB", f"{inside:.0%}", f"{naive:.2f} GiB"


def pool_methods_table() -> str:
    """The KV pool by several rules, weights computed."""
    return table(pool_methods.header(), pool_methods.table())


FRAGMENTS = {
    "glossary": glossary_table,
    "pool errors": pool_table,
    "pool methods": pool_methods_table,
    "peers": peers_table.table,
}


def methodology(text: str) -> str:
    """METHODOLOGY.md as it should read: what stands between `<!-- name: … -->` and `<!-- end -->` is made again."""
    for name, fragment in FRAGMENTS.items():
        pattern = rf"(<!-- {name}:[^>]*-->\n).*?(<!-- end -->)"
        made = fragment()
        text, count = re.subn(
            pattern, lambda found, made=made: f"{found[1]}\n{made}\n\n{found[2]}", text, flags=re.DOTALL
        )
        if count != 1:
            raise ValueError(f"{name}: expected one pair of marks in METHODOLOGY.md, got {count}. Put them back.")
    return text


if __name__ == "__main__":
    METHODOLOGY.write_text(methodology(METHODOLOGY.read_text(encoding="utf-8")), encoding="utf-8")
