"""How far `decode_step` is from published measurements: `python -m scripts.latency_errors`.

The measurements are in tests/measurements/decode_times.jsonl. The context is the mean of a run: prompt and half the
output. These are the constants as shipped, fitted on the same rows; what they are worth on a source they have not seen
is printed by `python -m scripts.latency_fit`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from statistics import mean, median, quantiles
from typing import Any, NamedTuple

from kvcalc.catalogue import gpu, read_model
from kvcalc.hardware import GpuSpec
from kvcalc.latency import StepPlan, StepTime, step_plan
from kvcalc.model_spec import ModelSpec

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "measurements"


class Case(NamedTuple):
    """One measurement, its model and GPU looked up."""

    row: dict[str, Any]
    source: str
    """Who measured: a repository or site; two campaigns in one repository are two."""
    spec: ModelSpec
    card: GpuSpec
    plan: StepPlan

    @property
    def routed(self) -> bool:
        """Whether it is a mixture of experts."""
        return self.spec.is_moe

    @property
    def measured_s(self) -> float:
        """Time per token. [s]"""
        return float(self.row["tpot_ms"]) / 1e3

    @property
    def context_tokens(self) -> int:
        """Mean of the run: the prompt and half the output. [tokens]"""
        return int(self.row["prompt"] + self.row["output"] // 2)

    @property
    def setup(self) -> tuple[str, str, str]:
        """Measurements of one model on one GPU by one source are one voice."""
        return self.source, self.row["model"], self.row["gpu"]


class Judged(NamedTuple):
    """A measurement beside a prediction."""

    case: Case
    typical_s: float
    low_s: float
    high_s: float

    @property
    def routed(self) -> bool:
        """Whether it is a mixture of experts."""
        return self.case.routed

    @property
    def row(self) -> dict[str, Any]:
        """The measurement as published."""
        return self.case.row

    @property
    def ratio(self) -> float:
        """Measured over typical."""
        return self.case.measured_s / self.typical_s

    @property
    def error(self) -> float:
        """Share by which the typical time is off."""
        return abs(1 / self.ratio - 1)

    @property
    def inside(self) -> bool:
        """Whether the measurement lies in the band."""
        return self.low_s <= self.case.measured_s <= self.high_s


@cache
def cases() -> tuple[Case, ...]:
    """Every measurement. [measurements]"""
    known = json.loads((FOLDER / "decode_models.json").read_text(encoding="utf-8"))
    specs = {name: read_model(model) for name, model in known["models"].items()}
    rows = [json.loads(text) for text in (FOLDER / "decode_times.jsonl").read_text(encoding="utf-8").splitlines()]
    found = []
    for row in rows:
        spec, card = specs[row["model"]], gpu(row["gpu"])
        found.append(Case(row, source_of(known["sources"][row["source"]]), spec, card, _plan(spec, card, row)))
    return tuple(found)


def source_of(text: str) -> str:
    """Who measured. The InferenceMAX dump and NVIDIA's own sweep were published in one repository.

    >>> source_of("https://github.com/vllm-project/vllm/pull/1 (H100)"), source_of("owner/name README.md")
    ('vllm-project/vllm', 'owner/name')
    """
    if "NVIDIA AIC" in text:
        return "NVIDIA AIC sweep"
    if "InferenceMAX" in text:
        return "InferenceMAX"
    place = text.removeprefix("https://").removeprefix("github.com/").split(" ")[0]
    return "/".join(place.split("/")[:2])


def _plan(spec: ModelSpec, card: GpuSpec, row: dict[str, Any]) -> StepPlan:
    plan = step_plan(
        spec,
        gpu=card,
        tp=row["tp"],
        pp=row["pp"],
        ep=row["ep"],
        weight_precision=row["weights"],
        kv_precision=row["kv"],
        engine=row["engine"],
    )
    return plan.busy(prompt_tokens=row["prompt"], output_tokens=row["output"]) if row["busy"] else plan


def judged() -> list[Judged]:
    """Every measurement with the prediction of the shipped constants. [measurements]"""
    return [_judge(case, case.plan.at(batch=case.row["batch"], context_tokens=case.context_tokens)) for case in cases()]


def _judge(case: Case, step: StepTime) -> Judged:
    return Judged(case, step.typical_s, step.low_s, step.high_s)


def summary(name: str, items: Iterable[Judged]) -> str:
    """One line of the table."""
    found = list(items)
    tenths = ratio_tenths(found)
    return (
        f"{name[:62]:62} {len(found):4}  {median(item.error for item in found):6.1%} "
        f"{mean(item.inside for item in found):5.0%}   {tenths[0]:.2f} {tenths[1]:.2f} {tenths[2]:.2f}"
    )


def ratio_tenths(items: list[Judged]) -> tuple[float, float, float]:
    """Measured over typical: a tenth are below the first, half below the second, nine tenths below the third."""
    ratios = [item.ratio for item in items]
    tenths = quantiles(ratios, n=10, method="inclusive") if len(ratios) > 1 else ratios * 9
    return tenths[0], median(ratios), tenths[-1]


KEYS: dict[str, Callable[[Judged], str]] = {
    "source": lambda item: item.case.source,
    "engine": lambda item: item.row["engine"] or "another",
    "GPU": lambda item: item.row["gpu"],
    "tensor parallel size": lambda item: f"{item.row['tp']:3}",
    "context": lambda item: context_class(item.case.context_tokens),
}


def context_class(tokens: int) -> str:
    """A context's place among three.

    >>> context_class(2_047), context_class(2_048), context_class(8_192)
    ('up to 2k tokens', '2k to 8k tokens', 'from 8k tokens')
    """
    return "up to 2k tokens" if tokens < 2_048 else "2k to 8k tokens" if tokens < 8_192 else "from 8k tokens"


def tables(items: list[Judged]) -> None:
    """Print every table."""
    print(f"{'measurements':62} {'n':>4}  median  band   measured over typical: 10%, 50%, 90%")
    for routed, name in ((False, "dense"), (True, "routed")):
        mine = [item for item in items if item.routed == routed]
        print(summary(name, mine))
        for busy, words in ((False, "one request or a fixed batch"), (True, "busy server")):
            print(summary(f"  {words}", (item for item in mine if item.row["busy"] == busy)))
    for title, key in KEYS.items():
        print(f"\nby {title}")
        for routed, name in ((False, "dense"), (True, "routed")):
            mine = [item for item in items if item.routed == routed]
            for value in sorted({key(item) for item in mine}):
                print(summary(f"{name} {value}", (item for item in mine if key(item) == value)))


if __name__ == "__main__":
    tables(judged())
