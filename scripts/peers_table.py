"""KV of one request, ours beside eight other calculators', as the table of METHODOLOGY.

    python -m scripts.peers_table

The others' figures are in scripts/data/peers.toml; ours are computed now, each with the layers that explain it.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from kvcalc import kv_bytes_per_sequence, read_model
from kvcalc.cache import bytes_by_group
from kvcalc.units import GIB

CONTEXTS = (8_192, 32_768, 131_072)


def gib(count: int) -> str:
    """Three decimals, as the others' figures have."""
    return f"{count / GIB:.3f}"


def why(preset: str) -> str:
    """The layers that make up our figure at the longest context."""
    spec = read_model(preset)
    rows = bytes_by_group(spec, context_tokens=CONTEXTS[-1], kv_precision="bf16")
    parts = []
    for row in rows:
        if not row.total_bytes:
            parts.append(f"{row.layers} {row.title}: nothing")
        elif row.kept_tokens:
            parts.append(f"{row.layers} {row.title} × {row.kept_tokens:,} tokens = {gib(row.total_bytes)}")
        else:
            parts.append(f"{row.layers} {row.title} = {gib(row.total_bytes)}")
    return "; ".join(parts)


def table() -> str:
    """The whole table in Markdown."""
    peers = tomllib.loads((Path(__file__).parent / "data" / "peers.toml").read_text(encoding="utf-8"))
    header = ["model", *(f"kvcalc, {context:,}" for context in CONTEXTS), *peers["tools"], "kvcalc's is made of"]
    lines = [header, ["---"] * len(header)]
    for row in peers["model"]:
        spec = read_model(row["preset"])
        figures = [
            gib(kv_bytes_per_sequence(spec, context_tokens=context, kv_precision="bf16")) for context in CONTEXTS
        ]
        lines.append([row["name"], *figures, *row["gib"], why(row["preset"])])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


if __name__ == "__main__":
    print(table())
