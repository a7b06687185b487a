"""Prints a pytest-benchmark report as ratios to its yardstick."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(report: Path) -> None:
    """One line per benchmark: median, and how many yardsticks that is."""
    medians = {row["name"]: row["stats"]["median"] for row in json.loads(report.read_text())["benchmarks"]}
    yardstick = medians["test_yardstick"]
    for name, median_s in medians.items():
        print(f"{name.removeprefix('test_'):45} {median_s * 1e3:9.3f} ms {median_s / yardstick:9.3g} x")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
