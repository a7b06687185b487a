"""Levers: each change worth trying on a scenario, with what it brings in requests, KV and time per token."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from kvcalc import attention_variant, changes, measured
from kvcalc.document_size import document_tables
from kvcalc.errors import KvcalcError, Record
from kvcalc.evaluation import Answer, answer
from kvcalc.inputs import Inputs, resolve
from kvcalc.kv_formats import caution, formats_ruled_out, smaller_formats
from kvcalc.model_choice import smaller_models
from kvcalc.precision import weight_format
from kvcalc.report import Report
from kvcalc.request_cost import RequestFigures, figures_of
from kvcalc.scenario import Scenario
from kvcalc.units import GB, fmt_count, fmt_seconds
from kvcalc.waterfall import Waterfall, waterfall

Family = Literal["architecture", "quantisation", "offload", "layout", "engine"]
_HARDWARE = ("gpus", "card")
_SMALLEST_GAIN = 1.02
_MOST_MODELS = 3


class Move(Record):
    """One change to the scenario and what it brings."""

    change: str
    """What to change, in words."""
    scenario: Scenario
    """The scenario with that change."""
    before_requests: int
    """Requests at once now, over all replicas. [requests]"""
    after_requests: int
    """Requests at once with the change, over all replicas. [requests]"""
    pays: str
    """What it costs, in words."""


class Lever(Record):
    """One lever, whether it works here, and what it brings."""

    family: Family
    """What kind it is."""
    title: str
    """Name on the page."""
    why_not: str | None
    """Why it cannot work on this engine, GPU or model; None when it can."""
    scenario: Scenario | None
    """The scenario with it applied; None when it cannot be or nothing in a scenario says it."""
    after: RequestFigures | None
    """A request with it applied."""
    gpus: int
    """GPUs with it applied, over all replicas. [GPUs]"""
    verify: str
    """What to check, or what one pays."""


class Levers(Record):
    """The levers of a scenario, in the order architecture, quantisation, offload, layout, engine."""

    now: RequestFigures
    """A request as it is."""
    gpus: int
    """GPUs of the scenario, over all replicas. [GPUs]"""
    levers: tuple[Lever, ...]
    """Every lever, those that cannot work included."""
    waterfall: Waterfall
    """What they make of the KV of all sessions."""
    bring_back_s: float | None
    """Time to bring one idle session back from host memory; None where there is no such memory. [s]"""
    bring_back_link: str
    """What it comes over; empty where there is no such memory."""


def best_moves(report: Report, *, count: int = 3) -> tuple[Move, ...]:
    """At most this many moves of different kinds that raise requests at once.

    What needs no other hardware comes first, the largest gain of each kind; one place is kept for hardware.
    """
    inputs = resolve(report.scenario)
    before = report.total_concurrency
    best: dict[str, Move] = {}
    for change in changes.candidates(report.scenario, inputs.spec, inputs.gpu):
        if change.kind == "limit":
            continue
        try:
            changed = changes.apply(report.scenario, change)
            after = answer(changed).concurrency * changed.replicas
        except KvcalcError:
            continue
        if after <= before * _SMALLEST_GAIN or change.kind in best:
            continue
        best[change.kind] = Move(
            change=change.text,
            scenario=changed,
            before_requests=before,
            after_requests=after,
            pays=change.pays,
        )
    ranked = sorted(best.items(), key=lambda found: (found[0] in _HARDWARE, -found[1].after_requests))
    settings = [move for kind, move in ranked if kind not in _HARDWARE]
    hardware = [move for kind, move in ranked if kind in _HARDWARE]
    kept = settings[: max(count - 1, count - len(hardware))]
    return (*kept, *hardware[: count - len(kept)])


def levers(scenario: Scenario, *, sessions: int | None = None, active: int | None = None) -> Levers:
    """Every lever of a scenario.

    sessions, active  sessions that keep their KV, and those that run; see ``waterfall`` [requests]

    Raises KvcalcError for a scenario that cannot be used.
    """
    found = answer(scenario)
    seconds, link = _bring_back(found.inputs)
    makers = (_architecture, _quantisation, _offload, _layout, _engine)
    return Levers(
        now=figures_of(found),
        gpus=_gpus(scenario),
        levers=tuple(lever for make in makers for lever in make(found)),
        waterfall=waterfall(found, sessions=sessions, active=active),
        bring_back_s=seconds,
        bring_back_link=link,
    )


def _gpus(scenario: Scenario) -> int:
    return scenario.replicas * scenario.tp * scenario.pp


def _applied(family: Family, title: str, scenario: Scenario, update: dict[str, Any], verify: str) -> Lever:
    """The lever applied, or the rule that forbids it."""
    try:
        changed = measured.changed(scenario, update)
        after = figures_of(answer(changed))
    except KvcalcError as error:
        return _ruled_out(family, title, scenario, f"{error.field}: expected {error.expected}. {error.hint}")
    return Lever(
        family=family, title=title, why_not=None, scenario=changed, after=after, gpus=_gpus(changed), verify=verify
    )


def _ruled_out(family: Family, title: str, scenario: Scenario, why: str) -> Lever:
    return Lever(family=family, title=title, why_not=why, scenario=None, after=None, gpus=_gpus(scenario), verify="")


def _architecture(found: Answer) -> Iterator[Lever]:
    scenario, spec = found.inputs.scenario, found.inputs.spec
    models = smaller_models(scenario, count=_MOST_MODELS)
    for row in models:
        yield _applied(
            "architecture", row.label, scenario, dict(row.scenario), "Another model: compare its answers first."
        )
    if not models:
        why = "No preset of a similar size keeps less KV per request and fits these GPUs."
        yield _ruled_out("architecture", "A model with smaller KV", scenario, why)
    keeps_heads = any(group.kind == "full_attention" for group in spec.layer_groups)
    if scenario.attention == attention_variant.AS_TRAINED and keeps_heads:
        verify = "A what-if: no such checkpoint exists. It shows what the architecture decides."
        yield _applied("architecture", "If it were built with MLA", scenario, {"attention": "mla"}, verify)


def _quantisation(found: Answer) -> Iterator[Lever]:
    inputs, scenario = found.inputs, found.inputs.scenario
    formats, why_not = smaller_formats(inputs)
    for row in formats:
        verify = f"Verify quality on your own tests: measurements point both ways.{caution(row, inputs)}"
        yield _applied("quantisation", f"{row.label} KV", scenario, {"kv_precision": row.id}, verify)
    for row, why in formats_ruled_out(inputs):
        yield _ruled_out("quantisation", f"{row.label} KV", scenario, why)
    if not formats:
        yield _ruled_out("quantisation", "Smaller KV values", scenario, why_not)
    bits = changes.weight_bits(scenario, inputs.spec)
    for id, verify in (("fp8", "Verify quality on your own tests."), ("int4", "Verify quality more closely.")):
        weights = weight_format(id)
        title = f"{weights.label} weights"
        if float(weights.bits_per_value) >= bits:
            why = f"The weights take {bits:g} bits already."
            yield _ruled_out("quantisation", title, scenario, why)
        elif id == "fp8" and inputs.gpu.fp8_flops_per_s is None:
            yield _ruled_out("quantisation", title, scenario, f"{inputs.gpu.name} has no FP8 arithmetic.")
        else:
            yield _applied("quantisation", title, scenario, {"weight_precision": id}, verify)


def _offload(found: Answer) -> Iterator[Lever]:
    inputs, scenario = found.inputs, found.inputs.scenario
    title = "Offload idle KV to host memory"
    back_s, link = _bring_back(inputs)
    if back_s is None:
        why = "This GPU has no memory of its own: host memory is what it already uses."
        yield _ruled_out("offload", title, scenario, why)
        return
    verify = f"Makes no room for running requests. An idle session comes back in {fmt_seconds(back_s)} over {link}."
    yield Lever(
        family="offload",
        title=title,
        why_not=None,
        scenario=None,
        after=figures_of(found),
        gpus=_gpus(scenario),
        verify=verify,
    )


def _bring_back(inputs: Inputs) -> tuple[float | None, str]:
    """Time for one session's KV to come back from host memory, and what it comes over. [s]"""
    if inputs.gpu.unified_memory:
        return None, ""
    host = document_tables().host_link
    row = host.row(inputs.gpu.compute_capability)
    each = inputs.plan.reserved_bytes(inputs.scenario.context_tokens)
    return each / (row.gb_per_s * GB * host.share_pct // 100), row.text


def _layout(found: Answer) -> Iterator[Lever]:
    inputs, scenario = found.inputs, found.inputs.scenario
    tp, largest = scenario.tp, max(inputs.gpu.max_gpus_per_node, scenario.tp)
    if 2 * tp <= largest:
        verify = "Twice the GPUs. Collectives take a share of every step."
        yield _applied("layout", f"TP {2 * tp}", scenario, {"tp": 2 * tp}, verify)
    else:
        why = f"TP {2 * tp} does not fit one node of {fmt_count(largest)} GPUs."
        yield _ruled_out("layout", f"TP {2 * tp}", scenario, why)
    if tp % 2 == 0:
        title = f"{fmt_count(2 * scenario.replicas)} replicas of TP {tp // 2}"
        update = {"tp": tp // 2, "replicas": 2 * scenario.replicas, "dcp": 1}
        yield _applied("layout", title, scenario, update, "The same GPUs, each holding twice the weights.")
    yield _dcp(inputs)


def _dcp(inputs: Inputs) -> Lever:
    """Decode context parallelism deals tokens over ranks that would otherwise repeat them."""
    scenario = inputs.scenario
    title = "Decode context parallelism"
    if scenario.engine != "vllm":
        return _ruled_out("layout", title, scenario, "Only counted for vLLM, whose option it is.")
    if not any(group.splits_over_dcp() for group in inputs.spec.layer_groups):
        return _ruled_out("layout", title, scenario, "This model has no layer whose tokens can be dealt over ranks.")
    heads = max((group.heads_on_rank(1) for group in inputs.spec.layer_groups if group.grows), default=1)
    copies = scenario.tp // heads
    if copies <= scenario.dcp:
        why = f"TP {scenario.tp} stores no KV head twice, so there is nothing to deal out."
        return _ruled_out("layout", title, scenario, why if scenario.dcp == 1 else "It is on already.")
    return _applied("layout", f"{title}, {copies}", scenario, {"dcp": copies}, "More collectives in every step.")


def _engine(found: Answer) -> Iterator[Lever]:
    scenario, budget = found.inputs.scenario, found.inputs.budget
    chunk = budget.max_num_batched_tokens
    for tokens, verify in ((chunk // 2, "Long prompts take more steps."), (chunk * 2, "Prompts read faster.")):
        if tokens >= _LEAST_CHUNK:
            title = f"Chunks of {fmt_count(tokens)} tokens"
            yield _applied("engine", title, scenario, {"max_num_batched_tokens": tokens}, verify)
    if scenario.context_tokens < scenario.max_model_len:
        title = f"Context limit {fmt_count(scenario.context_tokens)}"
        update = {"max_model_len": scenario.context_tokens}
        yield _applied("engine", title, scenario, update, "Longer requests are refused.")
    for change in changes.engine_settings(scenario):
        if change.kind != "limit":
            yield _applied("engine", change.text, scenario, change.update, f"{change.pays}.")


_LEAST_CHUNK = 512
"""Below this, chunks only slow prompts down. [tokens]"""
