"""A report for elsewhere: Markdown for a design review, JSON and CSV for a spreadsheet, the engine's command."""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Iterable

from kvcalc import curves, explain
from kvcalc.report import Report
from kvcalc.scenario import PASTED, Scenario
from kvcalc.scenario_notes import ENGINE_NAMES
from kvcalc.share import to_link
from kvcalc.units import (
    MIB,
    fmt_bytes,
    fmt_cents,
    fmt_count,
    fmt_gib,
    fmt_ms,
    fmt_ms_band,
    fmt_seconds_band,
    fmt_tokens,
)


def scenario_line(report: Report) -> str:
    """Every choice that decides the answer, in one line."""
    scenario = report.scenario
    weights = "as published" if scenario.weight_precision == "checkpoint" else scenario.weight_precision.upper()
    layout = f"TP {scenario.tp}" + (f", PP {scenario.pp}" if scenario.pp > 1 else "")
    layout += f", EP {scenario.ep}" if scenario.ep > 1 else ""
    layout += f", DCP {scenario.dcp}" if scenario.dcp > 1 else ""
    parts = [
        f"{report.model.label}, weights {weights}, {report.model.kv_precision.upper()} KV",
        f"{report.gpus_per_replica} × {report.gpu.name}, {layout}",
        ENGINE_NAMES[scenario.engine] + (f" {scenario.engine_version}" if scenario.engine_version else ""),
        f"{fmt_tokens(scenario.prompt_tokens)} prompt + {fmt_tokens(scenario.output_tokens)} output tokens",
    ]
    parts += _traffic(scenario)
    if scenario.replicas > 1:
        parts.insert(2, f"{fmt_count(scenario.replicas)} replicas")
    if scenario.attention != "as_trained":
        parts.insert(1, f"attention as {scenario.attention.upper()}")
    return " · ".join(parts)


def _traffic(scenario: Scenario) -> list[str]:
    """Traffic and price, as far as they were typed."""
    parts = []
    if scenario.requests_per_hour is not None:
        parts.append(f"{fmt_count(scenario.requests_per_hour)} requests per hour")
        if scenario.prompt_tokens_p95 or scenario.output_tokens_p95:
            prompt = scenario.prompt_tokens_p95 or scenario.prompt_tokens
            output = scenario.output_tokens_p95 or scenario.output_tokens
            parts[-1] += f", 95th percentile {fmt_tokens(prompt)} + {fmt_tokens(output)}"
    if scenario.price_cents_per_gpu_hour is not None:
        parts.append(f"{fmt_cents(scenario.price_cents_per_gpu_hour)} per GPU-hour as typed")
    return parts


def markdown_cell(text: str) -> str:
    """Text that cannot break out of a Markdown table or turn into markup."""
    return text.translate({ord(mark): f"\\{mark}" for mark in "\\|`*_<>[]$"}).replace("\n", " ")


def markdown_table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    """Lines of a table whose cells are escaped."""
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    return [*lines, *("| " + " | ".join(map(markdown_cell, row)) + " |" for row in rows)]


def to_markdown(report: Report, *, address: str = "") -> str:
    """The report as Markdown, with its link, assumptions and arithmetic."""
    lines = [f"## {markdown_cell(report.sentence)}", "", markdown_cell(scenario_line(report)), ""]
    lines += [f"Link: `{address}?{to_link(report.scenario)}`", ""]
    lines += markdown_table(("Figure", "Value"), _figures(report))
    lines += ["", "### Memory of one GPU", ""]
    lines += markdown_table(
        ("Line", "GiB", "How"), [(x.label, fmt_gib(x.bytes, 2), x.formula) for x in report.budget.lines]
    )
    if report.would_fit:
        lines += ["", "### These would fit", ""]
        fits = [(row.change, f"{fmt_count(row.requests)} requests at once", row.pays) for row in report.would_fit]
        lines += markdown_table(("Change", "Result", "What you pay"), fits)
    lines += ["", "### Notes and assumptions", ""]
    lines += [f"- **{markdown_cell(note.field)}**: {markdown_cell(note.text)}" for note in report.notes]
    lines += [
        f"- **{markdown_cell(x.field)}** {markdown_cell(x.value)}: {markdown_cell(x.reason)}"
        for x in report.assumptions
    ]
    for section in explain.steps(report):
        lines += ["", f"### {markdown_cell(section.title)}", ""]
        rows = [(x.title, x.formula, x.numbers, x.value) for x in section.steps]
        lines += markdown_table(("Step", "Formula", "Numbers", "Value"), rows)
    return "\n".join(lines) + "\n"


def _figures(report: Report) -> list[tuple[str, ...]]:
    found = report.capacities
    rows: list[tuple[str, ...]] = [
        ("Requests at once", fmt_count(report.total_concurrency)),
        (
            "KV per request",
            f"{fmt_gib(report.kv_bytes_per_request)} ({fmt_bytes(report.kv_bytes_per_token)} per token)",
        ),
        ("Longest context", f"{fmt_tokens(report.longest_context_tokens)} tokens"),
        ("Requests, ideal", f"{fmt_count(found.ideal_requests)}. {found.why[0]}"),
        ("Requests, reserved", f"{fmt_count(found.reserved_requests)}. {found.why[1]}"),
        (
            "Reported by the engine",
            f"{found.reported_tokens:,} tokens, {found.reported_concurrency:.2f} x. {found.why[2]}",
        ),
    ]
    if report.tpot is not None:
        band = fmt_ms_band(report.tpot.low_s, report.tpot.high_s)
        rows.insert(2, ("Time per token (TPOT)", f"{band}, physical floor {fmt_ms(report.tpot.floor_s)}"))
    if report.ttft is not None:
        rows.insert(3, ("First token (TTFT), prefill alone", fmt_seconds_band(report.ttft.low_s, report.ttft.high_s)))
    return rows


def to_json(report: Report) -> str:
    """The whole report as JSON."""
    return report.model_dump_json(indent=2)


def to_csv(report: Report) -> str:
    """The curve of requests against context as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["context_tokens", "reserved_requests", "ideal_requests", "slab_requests", "within_engine_limit"])
    for point in curves.context_curve(report).points:
        figures = (point.reserved_requests, point.ideal_requests, point.slab_requests)
        writer.writerow([point.context_tokens, *(f"{figure:.4g}" for figure in figures), point.within_engine_limit])
    return out.getvalue()


def serve_command(scenario: Scenario) -> str | None:
    """The command that starts the engine this way; None for engines whose options differ too much to guess."""
    if scenario.engine != "vllm":
        return None
    model = "MODEL" if scenario.model == PASTED else scenario.model
    words = ["vllm", "serve", model, "--max-model-len", str(scenario.max_model_len)]
    options = (
        ("--tensor-parallel-size", scenario.tp, scenario.tp > 1),
        ("--pipeline-parallel-size", scenario.pp, scenario.pp > 1),
        ("--decode-context-parallel-size", scenario.dcp, scenario.dcp > 1),
        ("--data-parallel-size", scenario.replicas, scenario.replicas > 1),
        ("--kv-cache-dtype", scenario.kv_precision, scenario.kv_precision not in ("auto", "bf16", "fp16")),
        ("--max-num-seqs", scenario.max_num_seqs, scenario.max_num_seqs is not None),
        (
            "--max-num-batched-tokens",
            scenario.max_num_batched_tokens,
            scenario.max_num_batched_tokens is not None,
        ),
        ("--block-size", scenario.block_size, scenario.block_size is not None),
        ("--kv-cache-memory-bytes", (scenario.kv_pool_mib or 0) * MIB, scenario.kv_pool_mib is not None),
    )
    for option, value, given in options:
        if given:
            words += [option, str(value)]
    if scenario.utilization_pct is not None:
        words += ["--gpu-memory-utilization", f"{scenario.utilization_pct / 100:.2f}"]
    flags = (
        ("--enable-expert-parallel", scenario.ep > 1),
        ("--no-enable-prefix-caching", not scenario.prefix_caching),
        ("--no-enable-chunked-prefill", not scenario.chunked_prefill),
        ("--enforce-eager", scenario.enforce_eager),
        ("--disable-hybrid-kv-cache-manager", scenario.hybrid_manager is False),
        ("--no-async-scheduling", not scenario.async_scheduling),
    )
    return shlex.join(words + [flag for flag, given in flags if given])
