"""Fits the constants of model_presets/latency.toml, and scores them on sources they have not seen.

    python -m scripts.latency_fit            the fit, and the tables held out: about a minute
    python -m scripts.latency_fit --write    the same, and the table in METHODOLOGY.md made again

Objective   mean over measurements, each weighted 1 / sqrt(how many its source has of its model and GPU), of
            |log(measured / typical)| + 1 if it lies outside the band (softened over a tenth around its edges)
            + 0.2 x mean over constants of (log(constant / prior) / spread)^2
Held out    every source in turn is left out, the constants are fitted on the others, and it is predicted with them.

Engines from before March 2025 (vLLM 0.8 and its V1 engine) may launch slower by one more factor. It is fitted but not
shipped: old runs are predicted like new ones.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable
from math import exp, log, sqrt
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

from kvcalc.latency.flops import linear_flops, matrix_rate
from kvcalc.latency.tables import latency_tables
from scripts.latency_errors import Case, Judged, cases, context_class, judged, ratio_tenths, tables

METHODOLOGY = Path(__file__).resolve().parent.parent / "METHODOLOGY.md"


class Constant(NamedTuple):
    """What is known of a constant without these measurements."""

    prior: float
    spread: float
    """Of its logarithm: 0.1 is about 10 %, 1 is anything from a third to three times."""
    why: str


CONSTANTS = {
    "hbm": Constant(1.25, 0.1, "0.8 of the data sheet, as aiconfigurator's system files take"),
    "gddr": Constant(1.11, 0.1, "0.9 of the data sheet, what copies reach"),
    "lpddr": Constant(1.11, 0.1, "the same"),
    "step_us": Constant(2000, 0.7, "1 to 2 ms with CUDA graphs, 3 to 5 ms without"),
    "per_layer_us": Constant(30, 0.5, "ten kernels of 3 µs, as aiconfigurator's system files take"),
    "tp_per_layer_us": Constant(15, 0.5, "two all-reduces of a few µs each"),
    "tp_pcie_per_layer_us": Constant(50, 1.0, "two all-reduces through the host"),
    "all_reduce_gb_s": Constant(300, 0.3, "two thirds of NVLink 4's 450 GB/s each way"),
    "compute_factor": Constant(1.43, 0.5, "prefill alone reaches 0.53 to 0.89 of the dense rate"),
    "llamacpp step_us": Constant(1000, 1.0, "no server around it"),
    "llamacpp per_layer_us": Constant(30, 1.0, "as the others"),
    "llamacpp on HBM": Constant(1, 1.0, "as the others"),
    "H20": Constant(1, 3.0, "as the others"),
    "AMD, routed": Constant(1, 1.0, "as the others"),
    "AWS": Constant(1, 1.0, "as the others"),
    "old": Constant(1, 0.7, "as the others"),
}
NAMES = tuple(CONSTANTS)
PLACE = {name: place for place, name in enumerate(NAMES)}
_OUTSIDE = 1.0
_SOFT = 0.1
_PRIOR = 0.2
_ROUNDS = 80
_FINEST = 1e-3


class Row(NamedTuple):
    """A measurement as a sum of terms, each a constant times what this row has of it."""

    log_measured: float
    weight: float
    log_low: float
    log_high: float
    reading_s: float
    """At the data sheet's bandwidth. [s]"""
    memory: int
    """Place of its memory's constant."""
    slower: int
    """Place of the exception that slows its reading, -1 for none."""
    step: int
    """Place of its time per step."""
    layer: int
    """Place of its time per layer."""
    layers: float
    """A millionth of its layers, since times per layer are in µs."""
    tp_layers: float
    """The same where they are cut over NVLink and its like."""
    pcie_layers: float
    """The same where they are cut over PCIe."""
    fixed_s: float
    """Nodes and PCIe traffic, which no row can tell. [s]"""
    compute_s: float
    """Matrix work of a step's tokens at the dense rate. [s]"""
    all_reduced_gb: float
    """Over NVLink and its like. [GB]"""
    is_old: bool


_SLOWER = {"h20-": "H20", "inferentia": "AWS", "trainium": "AWS", "mi": "AMD, routed"}


def row_of(case: Case, voices: Counter[tuple[str, str, str]]) -> Row:
    """The terms of one measurement, from the project's own bytes and arithmetic."""
    plan, row, spec, card = case.plan, case.row, case.spec, case.card
    known, batch = latency_tables().step, row["batch"]
    memory, is_llamacpp = latency_tables().memory.kind(card), row["engine"] == "llamacpp"
    slower = next((name for start, name in _SLOWER.items() if card.id.startswith(start)), "")
    if slower == "AMD, routed" and not case.routed:
        slower = ""
    if is_llamacpp and memory == "hbm":
        slower = "llamacpp on HBM"
    tp = 1 if plan.costs.splits_layers else row["tp"]
    prompts = batch * row["prompt"] / row["output"] if row["busy"] and batch > 1 else 0.0
    rate = matrix_rate(spec, card, row["weights"])
    compute = linear_flops(spec, 1) / (tp * rate) * (batch + prompts / row["pp"]) if rate else 0.0
    traffic = 2 * (tp - 1) / tp * 2 * spec.num_layers * spec.hidden_size * 2 * (batch + prompts) / 1e9
    split, over_pcie = tp > 1, card.link == "pcie"
    fixed = spec.num_layers * known.node_per_layer_us * 1e-6 * (tp > card.max_gpus_per_node)
    return Row(
        log_measured=log(case.measured_s),
        weight=1 / sqrt(voices[case.setup]),
        log_low=log(plan.costs.band.low_factor),
        log_high=log(plan.costs.band.high_factor),
        reading_s=(plan.weight_bytes(batch) + batch * plan.kv_bytes(case.context_tokens)) / plan.bandwidth,
        memory=PLACE[memory],
        slower=PLACE.get(slower, -1),
        step=PLACE["llamacpp step_us" if is_llamacpp else "step_us"],
        layer=PLACE["llamacpp per_layer_us" if is_llamacpp else "per_layer_us"],
        layers=spec.num_layers * 1e-6,
        tp_layers=spec.num_layers * 1e-6 * (split and not over_pcie),
        pcie_layers=spec.num_layers * 1e-6 * (split and over_pcie),
        fixed_s=fixed + (traffic / known.all_reduce_pcie_gb_s if over_pcie else 0.0),
        compute_s=compute,
        all_reduced_gb=0.0 if over_pcie else traffic,
        is_old=bool(row["old"]),
    )


def typical_s(row: Row, constants: list[float], *, old: float = 1.0) -> float:
    """The typical time under these constants; ``old`` is the factor on an old engine's launches. [s]"""
    reading = row.reading_s * constants[row.memory]
    if row.slower >= 0:
        reading *= constants[row.slower]
    launches = constants[row.step] * 1e-6 + row.layers * constants[row.layer]
    launches += row.tp_layers * constants[_TP] + row.pcie_layers * constants[_TP_PCIE]
    if row.is_old:
        launches *= old
    return (
        reading + launches + row.fixed_s + row.compute_s * constants[_COMPUTE] + row.all_reduced_gb / constants[_RATE]
    )


_TP, _TP_PCIE = PLACE["tp_per_layer_us"], PLACE["tp_pcie_per_layer_us"]
_COMPUTE, _RATE, _OLD = PLACE["compute_factor"], PLACE["all_reduce_gb_s"], PLACE["old"]


def shipped(*, old: float = 1.0) -> list[float]:
    """The constants of latency.toml, in the order of NAMES."""
    tables = latency_tables()
    step, rows = tables.step, tables.exceptions
    llamacpp = next(row for row in rows if row.engine == "llamacpp" and row.memory is None)
    slowdowns = {
        "llamacpp on HBM": next(row for row in rows if row.engine == "llamacpp" and row.memory == "hbm"),
        "H20": next(row for row in rows if "h20-96gb" in row.gpus),
        "AMD, routed": next(row for row in rows if "mi300x" in row.gpus),
        "AWS": next(row for row in rows if "trainium1" in row.gpus),
    }
    found = {
        "hbm": 1 / step.hbm_efficiency,
        "gddr": 1 / step.gddr_efficiency,
        "lpddr": 1 / step.lpddr_efficiency,
        "llamacpp step_us": float(llamacpp.step_us or 0),
        "llamacpp per_layer_us": float(llamacpp.per_layer_us or 0),
        "old": old,
        **{name: row.slowdown for name, row in slowdowns.items()},
    }
    return [found[name] if name in found else float(getattr(step, name)) for name in NAMES]


def objective(rows: list[Row], logs: list[float]) -> float:
    """What the fit makes small; ``logs`` are log(constant / prior)."""
    constants = from_logs(logs)
    loss = total = 0.0
    for row in rows:
        off = row.log_measured - log(typical_s(row, constants, old=constants[_OLD]))
        outside = max(row.log_low - off, off - row.log_high) / _SOFT + 0.5
        loss += row.weight * (abs(off) + _OUTSIDE * min(1.0, max(0.0, outside)))
        total += row.weight
    penalty = mean((change / CONSTANTS[name].spread) ** 2 for name, change in zip(NAMES, logs, strict=True))
    return loss / total + _PRIOR * penalty


def fit(rows: list[Row]) -> list[float]:
    """Constants of least objective, by moving one at a time from its prior, ever less."""
    logs = [0.0] * len(NAMES)
    steps = [CONSTANTS[name].spread / 2 for name in NAMES]
    best = objective(rows, logs)
    for _ in range(_ROUNDS):
        if all(step < _FINEST for step in steps):
            break
        for place, step in enumerate(steps):
            if step < _FINEST:
                continue
            for moved in (logs[place] + step, logs[place] - step):
                tried = [*logs[:place], moved, *logs[place + 1 :]]
                if (value := objective(rows, tried)) < best - 1e-7:
                    best, logs, steps[place] = value, tried, 1.3 * step
                    break
            else:
                steps[place] = step / 2
    return from_logs(logs)


def from_logs(logs: list[float]) -> list[float]:
    """Constants from log(constant / prior)."""
    return [CONSTANTS[name].prior * exp(change) for name, change in zip(NAMES, logs, strict=True)]


def predicted(case: Case, row: Row, constants: list[float]) -> Judged:
    """A measurement beside what these constants say."""
    typical, band = typical_s(row, constants), case.plan.costs.band
    return Judged(case, typical, max(row.reading_s, band.low_factor * typical), band.high_factor * typical)


def rows_of(measurements: Iterable[Case]) -> list[Row]:
    """The terms of every measurement."""
    found = list(measurements)
    voices = Counter(case.setup for case in found)
    return [row_of(case, voices) for case in found]


def held_out() -> list[Judged]:
    """Every measurement, predicted by constants fitted without its source."""
    measurements = cases()
    rows = rows_of(measurements)
    found: dict[int, Judged] = {}
    for source in sorted({case.source for case in measurements}):
        seen = [row for case, row in zip(measurements, rows, strict=True) if case.source != source]
        constants = fit(seen)
        for place, (case, row) in enumerate(zip(measurements, rows, strict=True)):
            if case.source == source:
                found[place] = predicted(case, row, constants)
    return [found[place] for place in range(len(measurements))]


def groups(items: list[Judged]) -> dict[str, list[Judged]]:
    """The lines of METHODOLOGY's table."""
    kinds = {"dense": [x for x in items if not x.routed], "mixture of experts": [x for x in items if x.routed]}
    found = dict(kinds)
    for kind, mine in kinds.items():
        found[f"{kind}, one request or a fixed batch"] = [x for x in mine if not x.row["busy"]]
        found[f"{kind}, busy server"] = [x for x in mine if x.row["busy"]]
    for engine in ("vllm", "sglang", "tensorrt_llm", "llamacpp"):
        found[engine] = [x for x in items if x.row["engine"] == engine]
    for words in ("up to 2k tokens", "2k to 8k tokens", "from 8k tokens"):
        found[words] = [x for x in items if context_class(x.case.context_tokens) == words]
    return found


def markdown(seen: list[Judged], unseen: list[Judged]) -> str:
    """METHODOLOGY's table: the shipped constants, and without the source in question."""
    heads = ("measurements", "number", "median error", "in the band", "held out: median error", "in the band")
    heads = (*heads, "measured ÷ typical: 10%, 50%, 90%")
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    for name, items in groups(seen).items():
        fresh = groups(unseen)[name]
        cells = (name, str(len(items)), *_cells(items), *_cells(fresh))
        spread = ", ".join(f"{value:.2f}" for value in ratio_tenths(fresh))
        lines.append(f"| {' | '.join((*cells, spread))} |")
    return "\n".join(lines)


def _cells(items: list[Judged]) -> tuple[str, str]:
    return f"{median(item.error for item in items):.1%}", f"{mean(item.inside for item in items):.1%}"


def main() -> None:
    """Print the constants, then the tables held out; write METHODOLOGY's when asked to."""
    constants = fit(rows_of(cases()))
    print("constants fitted on every source; memories as shares of the bandwidth")
    for name, value, now in zip(NAMES, constants, shipped(), strict=True):
        prior, spread, why = CONSTANTS[name]
        shown = [1 / x if name in ("hbm", "gddr", "lpddr") else x for x in (value, now, prior)]
        print(f"  {name:22} {shown[0]:8.3g}   shipped {shown[1]:8.3g}   prior {shown[2]:8.3g} ± {spread}, {why}")
    unseen = held_out()
    print("\nheld out, each source predicted without it")
    tables(unseen)
    table = markdown(judged(), unseen)
    print(f"\n{table}")
    if "--write" in sys.argv:
        text = METHODOLOGY.read_text(encoding="utf-8")
        pattern = r"(<!-- speed held out:[^>]*-->\n).*?(<!-- end -->)"
        text, count = re.subn(pattern, lambda found: f"{found[1]}\n{table}\n\n{found[2]}", text, flags=re.DOTALL)
        if count != 1:
            raise ValueError(
                f"speed held out: expected one pair of marks in METHODOLOGY.md, got {count}. Put them back."
            )
        METHODOLOGY.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
