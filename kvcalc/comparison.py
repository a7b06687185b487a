"""Two to four scenarios side by side: figures, differences against the first, curves on the same axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kvcalc.errors import Record, ScenarioError
from kvcalc.evaluation import Answer, answer, evaluate
from kvcalc.latency import Band
from kvcalc.report import Report
from kvcalc.request_cost import RequestFigures, figures_of
from kvcalc.scenario import Scenario
from kvcalc.scenario_notes import ENGINE_NAMES
from kvcalc.units import (
    fmt_cents,
    fmt_count,
    fmt_factor,
    fmt_gib,
    fmt_ms_band,
    fmt_percent,
    fmt_seconds_band,
    fmt_tokens,
)
from kvcalc.verdict import FITS

_LEAST, _MOST = 2, 4
_LETTERS = "ABCD"
_POINTS = 36
_PER_THOUSAND = 1_000
_FIRST_TOKENS = 1_000
_SAME, _NEARLY = 0.005, 0.05


class Column(Record):
    """One scenario of a comparison."""

    letter: str
    """A to D."""
    label: str
    """What sets it apart from the first, in few words; 'now' for the first."""
    report: Report
    """Its report."""
    figures: RequestFigures
    """What one of its requests costs."""
    gpus: int
    """GPUs over all replicas. [GPUs]"""
    requests_delta: int
    """Requests at once more than the first. [requests]"""
    requests_ratio: float | None
    """Requests at once against the first; None when the first serves none. [ratio]"""
    meets_target: bool | None
    """Whether the slow end of its time per token meets the speed target; None without target or time."""


class Cell(Record):
    """One figure of one scenario."""

    text: str
    """As the page shows it."""
    delta: str
    """Difference to the first: '+26', '−1.2', 'same'; empty for the first or where none makes sense."""
    differs: bool
    """Whether it differs from the first."""


class Row(Record):
    """One figure over all scenarios."""

    name: str
    """Stable id."""
    label: str
    """Name on the page."""
    cells: tuple[Cell, ...]
    """In the order of the columns."""


class CurvePoint(Record):
    """Requests at one length."""

    context_tokens: int
    """Prompt and output. [tokens]"""
    requests: float
    """What the KV memory of all replicas holds, engine cap applied, not rounded. [requests]"""


class Comparison(Record):
    """Scenarios side by side."""

    columns: tuple[Column, ...]
    """The scenarios, the first being what others are compared with."""
    rows: tuple[Row, ...]
    """Figures, then the inputs that differ."""
    curves: tuple[tuple[CurvePoint, ...], ...]
    """Requests against context, one per column, at the same contexts up to each one's own limit; empty where not
    even the shortest fits."""
    context_tokens: tuple[int, ...]
    """Each one's own point on its curve. [tokens]"""
    sentence: str
    """The comparison in one sentence."""


def compare(scenarios: tuple[Scenario, ...], *, letters: str = _LETTERS) -> Comparison:
    """Two to four scenarios side by side. Raises ScenarioError for another number, KvcalcError as evaluate does.

    letters  what they are called, in their order; the first is A
    """
    if not _LEAST <= len(scenarios) <= _MOST:
        raise ScenarioError(
            "scenarios", f"{_LEAST} to {_MOST} to compare", len(scenarios), hint="Pin or paste the links of some."
        )
    found = [answer(scenario) for scenario in scenarios]
    reports = [evaluate(scenario) for scenario in scenarios]
    columns = tuple(
        _column(letter, report, one, reports[0]) for letter, report, one in zip(letters, reports, found, strict=False)
    )
    return Comparison(
        columns=columns,
        rows=(*_figure_rows(columns), *_input_rows(columns)),
        curves=_curves(found),
        context_tokens=tuple(report.context_tokens for report in reports),
        sentence=_sentence(columns),
    )


def _column(letter: str, report: Report, found: Answer, first: Report) -> Column:
    target = report.scenario.target_tpot_ms
    return Column(
        letter=letter,
        label="now" if report is first else _label(report, first),
        report=report,
        figures=figures_of(found),
        gpus=_gpus(report),
        requests_delta=report.total_concurrency - first.total_concurrency,
        requests_ratio=report.total_concurrency / first.total_concurrency if first.total_concurrency else None,
        meets_target=None if target is None or report.tpot is None else report.tpot.high_s * 1000 <= target,
    )


def _gpus(report: Report) -> int:
    return report.gpus_per_replica * report.scenario.replicas


# What sets scenarios apart


class _Input(NamedTuple):
    """A choice worth a row when scenarios differ in it."""

    name: str
    label: str
    text: Callable[[Report], str]
    short: Callable[[Report], str]


def _gpus_text(report: Report) -> str:
    return f"{fmt_count(_gpus(report))} × {report.gpu.name}"


def _layout_text(scenario: Scenario) -> str:
    text = f"TP {scenario.tp}" if scenario.replicas == 1 else f"{fmt_count(scenario.replicas)} × TP {scenario.tp}"
    sizes = (("PP", scenario.pp), ("EP", scenario.ep), ("DCP", scenario.dcp))
    return ", ".join([text, *(f"{name} {size}" for name, size in sizes if size > 1)])


def _weights_text(report: Report) -> str:
    precision = report.scenario.weight_precision
    stored = report.model.checkpoint_format
    return (
        (stored.upper() if len(stored) == len("bf16") else stored) if precision == "checkpoint" else precision.upper()
    )


def _kv_text(report: Report) -> str:
    return report.model.kv_precision.upper()


def _tokens_text(report: Report) -> str:
    return f"{fmt_tokens(report.scenario.prompt_tokens)} + {fmt_tokens(report.scenario.output_tokens)}"


def _limit_text(report: Report) -> str:
    return fmt_tokens(report.scenario.max_model_len)


def _share_text(report: Report) -> str:
    return fmt_percent(report.budget.utilization_pct / 100)


def _cap_text(report: Report) -> str:
    return fmt_count(report.budget.max_num_seqs)


def _chunk_text(report: Report) -> str:
    return fmt_tokens(report.budget.max_num_batched_tokens)


def _draft_text(report: Report) -> str:
    return fmt_count(report.scenario.speculative_tokens)


_INPUTS = (
    _Input("model", "Model", lambda r: r.model.label, lambda r: r.model.label),
    _Input("attention", "Attention", lambda r: r.scenario.attention, lambda r: r.scenario.attention.upper()),
    _Input("gpus", "GPUs", _gpus_text, _gpus_text),
    _Input("layout", "Layout", lambda r: _layout_text(r.scenario), lambda r: _layout_text(r.scenario)),
    _Input("weight_precision", "Weights", _weights_text, lambda r: f"{_weights_text(r)} weights"),
    _Input("kv_precision", "KV precision", _kv_text, lambda r: f"{_kv_text(r)} KV"),
    _Input("engine", "Engine", lambda r: ENGINE_NAMES[r.scenario.engine], lambda r: ENGINE_NAMES[r.scenario.engine]),
    _Input("workload", "Prompt and output", _tokens_text, lambda r: f"{fmt_tokens(r.context_tokens)} tokens"),
    _Input("max_model_len", "Context limit", _limit_text, lambda r: f"limit {_limit_text(r)}"),
    _Input("utilization_pct", "Memory share", _share_text, lambda r: f"share {_share_text(r)}"),
    _Input("max_num_seqs", "Engine cap", _cap_text, lambda r: f"cap {_cap_text(r)}"),
    _Input("max_num_batched_tokens", "Tokens of one step", _chunk_text, lambda r: f"chunks of {_chunk_text(r)}"),
    _Input("speculative_tokens", "Draft tokens", _draft_text, lambda r: f"{_draft_text(r)} draft tokens"),
)
_MOST_NAMED = 2


def _label(report: Report, first: Report) -> str:
    """The first differences to the first scenario: 'FP8 KV'."""
    names = [one.short(report) for one in _INPUTS if one.text(report) != one.text(first)]
    if len(names) > 1 and names[-1] == _layout_text(report.scenario):
        names.pop()
    if not names:
        return "the same"
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _input_rows(columns: tuple[Column, ...]) -> list[Row]:
    rows = []
    for one in _INPUTS:
        texts = [one.text(column.report) for column in columns]
        if len(set(texts)) > 1:
            cells = tuple(
                Cell(text=text if i == 0 or text != texts[0] else "same", delta="", differs=text != texts[0])
                for i, text in enumerate(texts)
            )
            rows.append(Row(name=one.name, label=one.label, cells=cells))
    return rows


# Figures


def _figure_rows(columns: tuple[Column, ...]) -> list[Row]:
    reports = [column.report for column in columns]
    kv = [report.kv_bytes_per_request for report in reports]
    pools = [report.budget.kv_pool_bytes * _gpus(report) for report in reports]
    longest = [report.longest_context_tokens for report in reports]
    rows = [
        _numbers("requests", "Requests at once", [report.total_concurrency for report in reports], fmt_count, _plain),
        _bands("tpot", "Time per token", [column.figures.tpot for column in columns], fmt_ms_band),
        _bands("ttft", "First token", [column.figures.ttft for column in columns], fmt_seconds_band),
        _numbers("kv", "KV per request", kv, fmt_gib, _gib),
        _numbers("pool", "KV pool, all GPUs", pools, fmt_gib, _gib),
        _numbers("longest", "Longest context", longest, fmt_tokens, _plain),
    ]
    cents = [column.figures.cents for column in columns]
    if any(value is not None for value in cents):
        rows.append(_money(cents))
    return rows


def _numbers(
    name: str, label: str, values: list[int], text: Callable[[int], str], difference: Callable[[int], str]
) -> Row:
    first = values[0]
    cells = tuple(
        Cell(
            text=text(value),
            delta="" if index == 0 else _signed(value - first, difference) if text(value) != text(first) else "same",
            differs=text(value) != text(first),
        )
        for index, value in enumerate(values)
    )
    return Row(name=name, label=label, cells=cells)


def _plain(value: int) -> str:
    return fmt_count(value)


def _gib(value: int) -> str:
    return fmt_gib(value).removesuffix(" GiB")


def _signed(value: int, text: Callable[[int], str]) -> str:
    return f"+{text(value)}" if value > 0 else f"−{text(-value)}"


def _bands(name: str, label: str, bands: list[Band | None], text: Callable[[float, float], str]) -> Row:
    texts = ["–" if band is None else text(band.low_s, band.high_s) for band in bands]
    cells = tuple(
        Cell(text=one, delta="" if index == 0 else "same" if one == texts[0] else "", differs=one != texts[0])
        for index, one in enumerate(texts)
    )
    return Row(name=name, label=label, cells=cells)


def _money(cents: list[float | None]) -> Row:
    """Price of 1,000 requests, from the typed price alone."""
    texts = ["–" if value is None else fmt_cents(value * _PER_THOUSAND) for value in cents]
    cells = tuple(
        Cell(text=one, delta="" if index == 0 else "same" if one == texts[0] else "", differs=one != texts[0])
        for index, one in enumerate(texts)
    )
    return Row(name="price", label="Per 1,000 requests", cells=cells)


# Curves


def _curves(found: list[Answer]) -> tuple[tuple[CurvePoint, ...], ...]:
    """Requests at the same contexts, each up to the longest its model and engine admit."""
    own = {one.inputs.scenario.context_tokens for one in found}
    last = max(2 * _FIRST_TOKENS, *(_limit(one) for one in found))
    first = min(_FIRST_TOKENS, *own)
    steps = {round(first * (last / first) ** (i / (_POINTS - 1))) for i in range(_POINTS)}
    contexts = sorted({*steps, *own, *(_limit(one) for one in found)})
    curves = [tuple(_point(one, tokens) for tokens in contexts if tokens <= _limit(one)) for one in found]
    return tuple(curve if any(point.requests >= 1 for point in curve) else () for curve in curves)


def _limit(found: Answer) -> int:
    inputs = found.inputs
    return min(inputs.scenario.max_model_len, inputs.spec.max_context_tokens or inputs.scenario.max_model_len)


def _point(found: Answer, tokens: int) -> CurvePoint:
    inputs = found.inputs
    held = float(inputs.plan.side_by_side(inputs.budget.kv_pool_bytes, tokens))
    requests = min(held, float(inputs.budget.max_num_seqs))
    return CurvePoint(context_tokens=tokens, requests=requests * inputs.scenario.replicas)


# The sentence


def _sentence(columns: tuple[Column, ...]) -> str:
    first = columns[0]
    if first.report.verdict not in FITS or not first.report.total_concurrency:
        serving = [f"{column.letter} serves {fmt_count(column.report.total_concurrency)}" for column in columns[1:]]
        return f"A serves none; {'; '.join(serving)}."
    return f"{'; '.join(_clause(column, first) for column in columns[1:])}."


def _clause(column: Column, first: Column) -> str:
    """'B serves twice as many on the same GPUs', 'C serves 2.7 times as many but can miss 50 ms'."""
    ratio = column.requests_ratio or 0.0
    if not ratio:
        return f"{column.letter} serves none"
    text = f"{column.letter} serves {_times(ratio)}{_on_which(column, first)}"
    if column.meets_target is False and first.meets_target is not False:
        text += f" but can miss {column.report.scenario.target_tpot_ms} ms"
    return text


def _times(ratio: float) -> str:
    if abs(ratio - 1) < _SAME:
        return "as many"
    if abs(ratio - 2) < _NEARLY:
        return "twice as many"
    if abs(ratio - 0.5) < _NEARLY / 4:
        return "half as many"
    if ratio < 1:
        return f"{fmt_percent(1 - ratio)} fewer"
    if ratio < 2:
        return f"{fmt_percent(ratio - 1)} more"
    return f"{fmt_factor(ratio)} as many"


def _on_which(column: Column, first: Column) -> str:
    same_card = column.report.gpu.id == first.report.gpu.id
    if same_card and column.gpus == first.gpus:
        return " on the same GPUs"
    if column.gpus != first.gpus:
        return f" on {fmt_count(column.gpus)} GPUs instead of {fmt_count(first.gpus)}"
    return f" on {fmt_count(column.gpus)} × {column.report.gpu.name}"
