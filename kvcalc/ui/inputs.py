"""The inputs between the sidebar's widgets and a Scenario: which widget holds which field, and how text is read.

Numbers are typed as text, so that nothing a user writes is clamped, rounded or lost: what cannot be read is
answered in the project's own words and stays in its field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kvcalc.errors import Record, ScenarioError
from kvcalc.measured import DECIDED_BY
from kvcalc.scenario import CUSTOM, PASTED, CustomGpu, Scenario
from kvcalc.ui.sizes import gib_text, read_gib
from kvcalc.units import fmt_count


def _fields(record: type[Record], *kinds: object) -> tuple[str, ...]:
    """Names of a record's fields of these kinds, in its order: a new field of a scenario is carried by itself."""
    return tuple(name for name, field in record.model_fields.items() if field.annotation in kinds)


CHOICES = (
    "model",
    "attention",
    "weight_precision",
    "kv_precision",
    "state_precision",
    "gpu",
    "tp",
    "engine",
)
SWITCHES = ("hybrid_manager",)
"""On, off, or as the engine decides: a choice cannot hold None, so these stand for it."""
SWITCH_VALUES: dict[str, bool | None] = {"auto": None, "on": True, "off": False}
TEXTS = ("engine_version",)
DOLLARS = frozenset({"price_cents_per_gpu_hour"})
"""Typed in dollars, kept in whole cents."""
SIZES = frozenset(DECIDED_BY)
"""Measured figures: typed in GiB, kept in whole MiB."""
PASTED_FIELDS = ("model_facts", "model_label")
TRAFFIC = (
    "requests_per_hour",
    "price_cents_per_gpu_hour",
    "prompt_tokens_p95",
    "output_tokens_p95",
    "fleet_utilization_pct",
)
"""What the fleet and its cost depend on, and none of the four figures does."""
FLAGS = _fields(Scenario, bool)
NUMBERS = tuple(name for name in _fields(Scenario, int) if name not in CHOICES)
OPTIONAL_NUMBERS = _fields(Scenario, int | None)
GPU_NUMBERS = _fields(CustomGpu, int)
GPU_OPTIONAL_NUMBERS = _fields(CustomGpu, int | None)
ALL = (
    *CHOICES,
    *SWITCHES,
    *TEXTS,
    *FLAGS,
    *NUMBERS,
    *OPTIONAL_NUMBERS,
    *GPU_NUMBERS,
    *GPU_OPTIONAL_NUMBERS,
    *PASTED_FIELDS,
)
LABELS = {
    "memory_mib": "Memory, MiB",
    "bandwidth_gb_per_s": "Bandwidth, GB/s",
    "bf16_tflops": "16-bit TFLOP/s",
    "replicas": "Replicas",
    "pp": "Pipeline stages",
    "ep": "Expert parallel",
    "dcp": "Decode context",
    "max_model_len": "Context limit",
    "utilization_pct": "Memory share",
    "max_num_seqs": "Engine cap",
    "max_num_batched_tokens": "Tokens per step",
    "block_size": "Block size",
    "speculative_tokens": "Draft tokens",
    "prompt_tokens": "Prompt tokens",
    "output_tokens": "Output tokens",
    "target_tpot_ms": "Target ms/token",
    "target_requests": "Target requests",
    "target_ttft_ms": "First token, ms",
    "cached_prompt_tokens": "Shared prefix",
    "requests_per_hour": "Requests per hour",
    "price_cents_per_gpu_hour": "Price, $/GPU-hour",
    "prompt_tokens_p95": "Prompt, p95",
    "output_tokens_p95": "Output, p95",
    "fleet_utilization_pct": "Planned use, %",
    "weights_mib": "Weights, GiB",
    "kv_pool_mib": "KV pool, GiB",
    "non_torch_mib": "Not PyTorch, GiB",
    "activations_mib": "Activations, GiB",
    "cuda_graphs_mib": "Graphs, GiB",
    "weight_precision": "Weights",
    "kv_precision": "KV cache",
    "state_precision": "State",
    "attention": "Attention",
    "engine": "Engine",
    "engine_version": "Engine version",
    "tp": "GPUs per replica",
    "hybrid_manager": "Window layers",
}
"""Field → its name beside the widget, and wherever the page speaks of it."""
_SEPARATORS = str.maketrans("", "", ",_' \u00a0\u2009\u202f")
_MOST_DIGITS = 15


def key(field: str) -> str:
    """The widget's key for a scenario field."""
    return f"in_{field}"


def from_scenario(scenario: Scenario) -> dict[str, Any]:
    """What the widgets show for a scenario, by field."""
    values: dict[str, Any] = {field: getattr(scenario, field) for field in (*CHOICES, *FLAGS, *PASTED_FIELDS)}
    for field in SWITCHES:
        values[field] = next(name for name, value in SWITCH_VALUES.items() if value is getattr(scenario, field))
    for field in TEXTS:
        values[field] = getattr(scenario, field) or ""
    for field in (*NUMBERS, *OPTIONAL_NUMBERS):
        values[field] = typed(field, getattr(scenario, field))
    for field in (*GPU_NUMBERS, *GPU_OPTIONAL_NUMBERS):
        values[field] = typed(field, getattr(scenario.custom_gpu, field, None))
    return values


def typed(field: str, number: int | None) -> str:
    """A number as its field shows it; nothing for none.

    >>> typed("prompt_tokens", 7_000), typed("price_cents_per_gpu_hour", 250)
    ('7,000', '2.50')
    """
    if number is None:
        return ""
    if field in SIZES:
        return gib_text(number)
    return f"{number // 100:,}.{number % 100:02d}" if field in DOLLARS else fmt_count(number)


def to_scenario(values: Mapping[str, Any]) -> Scenario:
    """The scenario the widgets describe. Raises KvcalcError for the first field that cannot be used."""
    fields: dict[str, Any] = {field: values[field] for field in (*CHOICES, *FLAGS)}
    for field in SWITCHES:
        fields[field] = SWITCH_VALUES[values[field]]
    for field in TEXTS:
        fields[field] = values[field].strip() or None
    for field in (*NUMBERS, *OPTIONAL_NUMBERS):
        fields[field] = read_number(field, values[field], optional=field in OPTIONAL_NUMBERS)
    if fields["model"] == PASTED:
        fields |= {field: values[field] for field in PASTED_FIELDS}
    if fields["gpu"] == CUSTOM:
        fields["custom_gpu"] = _custom_gpu(values)
    return Scenario(**fields)


def _custom_gpu(values: Mapping[str, Any]) -> CustomGpu:
    numbers: dict[str, Any] = {
        field: read_number(field, values[field], optional=field in GPU_OPTIONAL_NUMBERS)
        for field in (*GPU_NUMBERS, *GPU_OPTIONAL_NUMBERS)
    }
    return CustomGpu(**numbers)


def read_number(field: str, text: str | None, *, optional: bool = False) -> int | None:
    """A whole number as a person types it, with or without thousands separators. Raises ScenarioError.

    >>> read_number("prompt_tokens", "7,000"), read_number("block_size", " ", optional=True)
    (7000, None)
    """
    plain = (text or "").translate(_SEPARATORS)
    if not plain and optional:
        return None
    if field in DOLLARS:
        return _read_cents(field, text or "")
    if field in SIZES:
        return read_gib(field, text or "")
    if not plain:
        raise ScenarioError(field, "a whole number", None, hint="Type a number.")
    if not (plain.isascii() and plain.isdecimal() and len(plain) <= _MOST_DIGITS):
        hint = "Type digits only, or leave it empty for the default." if optional else "Type digits only."
        raise ScenarioError(field, "a whole number", (text or "").strip(), hint=hint)
    return int(plain)


_AMOUNT = re.compile(r"\$?(\d{1,9}|\d{1,3}(?:,\d{3}){1,2})(?:\.(\d{1,2}))?", re.ASCII)


def _read_cents(field: str, text: str) -> int:
    """Dollars as a person types them, in cents. A comma only parts thousands, so that '2,50' is never 250."""
    found = _AMOUNT.fullmatch(text.strip())
    if found is None:
        hint = "Type it with a point, such as 2.50, or leave it empty."
        raise ScenarioError(field, "dollars with at most two decimals", text.strip(), hint=hint)
    dollars, cents = found.groups(default="")
    return int(dollars.replace(",", "")) * 100 + int(cents.ljust(2, "0"))


_REQUESTS, _KV, _TIME, _LONGEST = "requests", "kv", "time", "longest"
FIGURES = frozenset({_REQUESTS, _KV, _TIME, _LONGEST})
_TOUCHES = {
    "target_requests": frozenset[str](),
    "target_tpot_ms": frozenset({_REQUESTS, _TIME}),
    "replicas": frozenset({_REQUESTS}),
    "max_num_seqs": frozenset({_REQUESTS, _TIME}),
    "bandwidth_gb_per_s": frozenset({_REQUESTS, _TIME}),
    "bf16_tflops": frozenset[str](),
    **dict.fromkeys(TRAFFIC, frozenset[str]()),
    "prompt_tokens": frozenset({_REQUESTS, _KV, _TIME}),
    "output_tokens": frozenset({_REQUESTS, _KV, _TIME}),
}


def touched_figures(field: str) -> frozenset[str]:
    """The figures a bad field takes away; all of them where nothing better is known."""
    return _TOUCHES.get(field, FIGURES)
