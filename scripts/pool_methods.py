"""The KV pool from nothing but a model, a GPU and a memory share, by us and by others' rules, against start-up logs.

    python -m scripts.pool_methods

Weights are computed here, for every method alike, from the preset with the logged model's shape
(scripts/data/start_up_models.toml); a logged model without one is left out.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

from kvcalc import catalogue
from kvcalc.budget import memory_budget
from kvcalc.errors import KvcalcError
from kvcalc.model_spec import ModelSpec
from kvcalc.units import GIB
from kvcalc.weights import weight_bytes
from scripts.budget_errors import gpu_of, is_regular, rows

DATA = Path(__file__).resolve().parent / "data" / "start_up_models.toml"


class Logged(NamedTuple):
    """One log whose model we can compute."""

    row: dict[str, Any]
    spec: ModelSpec
    weight_precision: str

    @property
    def weights_gib(self) -> float:
        """Computed weights of one GPU. [GiB]"""
        size = weight_bytes(self.spec, precision=self.weight_precision, tp=self.row["tp"], pp=self.row["pp"])
        return size / GIB

    @property
    def room_gib(self) -> float:
        """Share × memory − weights. [GiB]"""
        return float(self.row["usable_gib"] * self.row["share"]) - self.weights_gib


@lru_cache(maxsize=1)
def _data() -> dict[str, Any]:
    return tomllib.loads(DATA.read_text(encoding="utf-8"))


def logs() -> list[Logged]:
    """The logs that allow it."""
    found = []
    for row in rows():
        models = _data()["models"]
        named = models.get(f"{row['model']} {row['weights_gib']} GiB") or models.get(row["model"], {})
        try:
            spec = catalogue.read_model(named.get("like", row["model"]))
        except KvcalcError:
            continue
        found.append(Logged(row, spec, named.get("weights", "checkpoint")))
    return found


def ours(log: Logged, **known: Any) -> float:
    """Our pool with default overheads; ``known`` are further things taken from the log. [GiB]"""
    row = log.row
    budget = memory_budget(
        log.spec,
        gpu=gpu_of(row),
        weight_precision=log.weight_precision,
        tp=row["tp"],
        pp=row["pp"],
        utilization_pct=Fraction(str(row["share"])) * 100,
        images="image" in row,
        **known,
    )
    return (budget.kv_pool_bytes - budget.shortfall_bytes) / GIB


def as_started(log: Logged) -> float:
    """With the log's release and limits. [GiB]"""
    row = log.row
    return ours(
        log,
        engine_version=row["version"],
        max_num_batched_tokens=row["tokens"],
        max_num_seqs=row["requests"],
        enforce_eager=row["eager"],
    )


def llm_d(log: Logged) -> float:
    """With llm-d planner's constants. [GiB]"""
    row, known = log.row, _data()["llm_d"]
    name = row["model"].lower()
    dense = known["llama_gib"] if "llama" in name else known["qwen_gib"] if "qwen" in name else known["dense_gib"]
    kind = known["vision_gib"] if "image" in row else known["routed_gib"] if "experts" in row else dense
    outside = known["outside_one_gpu_gib"] if row["tp"] == 1 else known["outside_parallel_gib"]
    return log.room_gib - float(kind) - float(outside)


def _flat(log: Logged) -> float:
    return log.room_gib - float(_data()["thumb"]["flat_gib"])


def _share_of_card(log: Logged) -> float:
    thumb = _data()["thumb"]
    return log.room_gib - max(float(thumb["least_gib"]), float(thumb["share"]) * float(log.row["usable_gib"]))


METHODS: dict[str, Callable[[Logged], float]] = {
    "kvcalc, release and limits as logged": as_started,
    "kvcalc, release as logged, limits by default": lambda log: ours(log, engine_version=log.row["version"]),
    "kvcalc, nothing known but model, GPU and share": ours,
    "share × memory − weights": lambda log: log.room_gib,
    "the same less llm-d planner's constants": llm_d,
    "the same less 2 GiB": _flat,
    "the same less 1.5 GiB or 5% of the card": _share_of_card,
}


class Errors(NamedTuple):
    """How far off one method is."""

    median_gib: float
    p90_gib: float
    median_ratio: float
    """Of the logged pool, where there is one."""


def errors(method: Callable[[Logged], float], found: list[Logged]) -> Errors:
    """Median and 90th percentile of |predicted − logged|."""
    sizes = [abs(method(log) - float(log.row["kv_gib"])) for log in found]
    shares = [
        abs(method(log) - float(log.row["kv_gib"])) / float(log.row["kv_gib"]) for log in found if log.row["kv_gib"] > 0
    ]
    return Errors(median(sizes), quantiles(sizes, n=10, method="inclusive")[-1], median(shares))


def table() -> list[tuple[str, ...]]:
    """One row per method: name, then median, 90th percentile and median share over all and over regular logs."""
    found = logs()
    regular = [log for log in found if is_regular(log.row)]
    lines = []
    for name, method in METHODS.items():
        cells = [
            f"{value.median_gib:.2f} GiB, {value.p90_gib:.2f} GiB, {value.median_ratio:.1%}"
            for value in (errors(method, regular), errors(method, found))
        ]
        lines.append((name, *cells))
    return lines


def header() -> str:
    """The table's head, with the numbers of logs."""
    found = logs()
    regular = sum(1 for log in found if is_regular(log.row))
    return f"method | {regular} regular logs: median, 90%, median share of the pool | all {len(found)} logs"


if __name__ == "__main__":
    print(header())
    for line in table():
        print("  ".join((f"{line[0]:48}", *line[1:])))
