"""A scenario that agrees with a log: what was measured replaces what was estimated."""

from __future__ import annotations

from typing import Any

from kvcalc.enginelog.facts import EngineLog
from kvcalc.engines.base import parse_version
from kvcalc.errors import KvcalcError, Note, Record, ScenarioError
from kvcalc.inputs import Inputs, resolve
from kvcalc.precision import kv_format
from kvcalc.scenario import Scenario
from kvcalc.scenario_notes import ENGINE_NAMES
from kvcalc.units import GIB, MIB, fmt_count, fmt_gib, fmt_tokens

PRINTED_SLACK_BYTES = GIB // 200
"""Engines print two decimals of a GiB; SGLang does so for keys and for values."""

LARGEST_MIB = 2**20 * 16
"""A log's figure beyond 16 TiB is a misprint."""

_LAYOUT = (("tp", "TP"), ("pp", "PP"), ("dcp", "DCP"))
_SETTINGS = (
    ("max_num_seqs", "requests of one step"),
    ("max_num_batched_tokens", "tokens of one step"),
    ("block_size", "tokens of a block"),
)
_FIGURES = (
    ("weights_mib", "weights_bytes"),
    ("non_torch_mib", "non_torch_bytes"),
    ("activations_mib", "activation_bytes"),
    ("cuda_graphs_mib", "cuda_graph_bytes"),
)


class Calibration(Record):
    """A scenario set to a log."""

    scenario: Scenario
    """The scenario with what was measured."""
    notes: tuple[Note, ...]
    """What of the log could not be used, and what it contradicts."""


def calibrate(scenario: Scenario, log: EngineLog) -> Calibration:
    """Put a log's figures into a scenario: weights, KV pool and overheads, with the engine and its release.

    The scenario keeps its model, layout, lengths and settings. Figures of another layout are not used; settings that
    the log contradicts are named in the notes. The pool is taken to the whole MiB that gives the log's tokens, where
    the two decimals it was printed with allow it.

    Parameters
    ----------
    scenario : what to set.
    log : facts of ``parse``.

    Raises
    ------
    KvcalcError    a scenario that cannot be evaluated.
    """
    notes = list(log.notes)
    if log.engine is None:
        text = "No line of this text was understood. Paste the engine's output from its start to its first request."
        return Calibration(scenario=scenario, notes=(*notes, Note(field="log", text=text)))
    update = {**_release(scenario, log, notes), **_settings(scenario, log, notes)}
    _contradictions(scenario, log, notes)
    other = [
        f"{name} {getattr(log, field)}"
        for field, name in _LAYOUT
        if getattr(log, field) not in (None, getattr(scenario, field))
    ]
    if log.tp is None and scenario.tp < (log.tp_at_least or 1):
        other.append(f"TP {log.tp_at_least} at least")
    if other:
        text = f"The log is of {', '.join(other)}: its figures per GPU were not used. Set the same layout to use them."
        notes.append(Note(field="tp", text=text))
    else:
        update |= _figures(log, notes)
        plain = Scenario(**{**dict(scenario), **update, "kv_pool_mib": None})
        pool = _pool_mib(resolve(plain), log, notes)
        update |= {} if pool is None else {"kv_pool_mib": pool}
    return Calibration(scenario=Scenario(**{**dict(scenario), **update}), notes=tuple(notes))


def as_logged(scenario: Scenario, log: EngineLog) -> Calibration:
    """The same after taking over how the engine was started: layout, lengths, share, limits and cache type."""
    update: dict[str, Any] = {
        field: getattr(log, field)
        for field in ("tp", "pp", "dcp", "max_model_len", *(name for name, _ in _SETTINGS), "enforce_eager")
        if getattr(log, field) is not None
    }
    if log.tp is None and scenario.tp < (log.tp_at_least or 1):
        update["tp"] = log.tp_at_least
    if log.engine is not None:
        update["engine"] = log.engine
    if _share_pct(log) is not None:
        update["utilization_pct"] = _share_pct(log)
    if log.kv_precision is not None and _kv_id(log.kv_precision) is not None:
        update["kv_precision"] = _kv_id(log.kv_precision)
    return calibrate(Scenario(**{**dict(scenario), **update}), log)


def _figures(log: EngineLog, notes: list[Note]) -> dict[str, int]:
    """Weights and overheads in MiB; what cannot be is named and left out."""
    found: dict[str, int] = {}
    for field, fact in _FIGURES:
        size: int | None = getattr(log, fact)
        if size is None:
            continue
        if (1 if field == "weights_mib" else 0) <= round(size / MIB) <= LARGEST_MIB:
            found[field] = _mib(size)
        else:
            text = f"The log says {fmt_gib(size, 2)}, which cannot be used: it stays as computed."
            notes.append(Note(field=field, text=text))
    return found


def _mib(size: int) -> int:
    """Nearest MiB of a figure that was printed rounded. [MiB]"""
    return round(size / MIB)


def _release(scenario: Scenario, log: EngineLog, notes: list[Note]) -> dict[str, Any]:
    """Engine and release of the log."""
    update: dict[str, Any] = {}
    if log.engine is not None and log.engine != scenario.engine:
        text = f"The log is of {ENGINE_NAMES[log.engine]}: the engine was set to it."
        notes.append(Note(field="engine", text=text))
        update |= {"engine": log.engine, "engine_version": None}
    if log.version is not None:
        try:
            parse_version(log.version)
            update["engine_version"] = log.version
        except ScenarioError as error:
            notes.append(Note(field="engine_version", text=str(error)))
    return update


def _share_pct(log: EngineLog) -> int | None:
    """The log's memory share when it is a whole per cent. [%]"""
    if log.utilization is None or not 0 < log.utilization <= 1:
        return None
    percent = round(log.utilization * 100)
    return percent if abs(log.utilization * 100 - percent) < 1e-6 else None


def _settings(scenario: Scenario, log: EngineLog, notes: list[Note]) -> dict[str, Any]:
    """Settings of the log that the scenario leaves to the engine; a different choice is named."""
    update: dict[str, Any] = {}
    for field, words in _SETTINGS:
        logged, chosen = getattr(log, field), getattr(scenario, field)
        if logged is not None and chosen is None and field != "block_size":
            update[field] = logged
        elif logged is not None and chosen is not None and logged != chosen:
            text = f"The log ran with {fmt_count(logged)} {words}, the scenario says {fmt_count(chosen)}."
            notes.append(Note(field=field, text=text))
    share = _share_pct(log)
    if share is not None and scenario.utilization_pct is None:
        update["utilization_pct"] = share
    elif log.utilization is not None and share != scenario.utilization_pct:
        text = f"The log ran at a memory share of {log.utilization:g}; the pool is the log's either way."
        notes.append(Note(field="utilization_pct", text=text))
    if log.enforce_eager is not None and log.enforce_eager != scenario.enforce_eager:
        update["enforce_eager"] = log.enforce_eager
        state = "without" if log.enforce_eager else "with"
        notes.append(Note(field="enforce_eager", text=f"The log ran {state} CUDA graphs: set as in the log."))
    return update


def _contradictions(scenario: Scenario, log: EngineLog, notes: list[Note]) -> None:
    """What the log says about things that stay as the scenario has them."""
    if log.max_model_len is not None and log.max_model_len != scenario.max_model_len:
        text = (
            f"The log is of a context limit of {fmt_tokens(log.max_model_len)} tokens, the scenario's is "
            f"{fmt_tokens(scenario.max_model_len)}: requests and tokens as printed may differ from those shown."
        )
        notes.append(Note(field="max_model_len", text=text))
    if log.kv_precision is not None and _kv_id(log.kv_precision) not in (None, scenario.kv_precision):
        text = f"The log stored its KV cache as {log.kv_precision}, the scenario as {scenario.kv_precision}."
        notes.append(Note(field="kv_precision", text=text))
    if log.failure is not None:
        notes.append(Note(field="log", text=f"The engine did not start: {log.failure}."))
    if log.dp is not None and log.dp > 1:
        text = f"The log is of {log.dp} data parallel engines: its tokens are those of one."
        notes.append(Note(field="replicas", text=text))


def _kv_id(printed: str) -> str | None:
    """Id of the cache type as engines print it; None for one we do not know."""
    name = printed.lower().removeprefix("torch.").split("_e4m3")[0].split("_e5m2")[0]
    known = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16"}.get(name, name)
    try:
        return "auto" if known == "auto" else kv_format(known).id
    except KvcalcError:
        return None


def _pool_mib(inputs: Inputs, log: EngineLog, notes: list[Note]) -> int | None:
    """The pool in MiB: the log's tokens decide within what its rounding leaves open. [MiB]"""
    printed = log.kv_pool_bytes
    if printed is not None and not 0 < printed <= LARGEST_MIB * MIB:
        text = f"The engine found {fmt_gib(printed, 2)} for KV cache: the pool stays as computed."
        notes.append(Note(field="kv_pool_mib", text=text))
        return None
    plan, length = inputs.plan, log.max_model_len or inputs.scenario.max_model_len
    if log.kv_tokens is not None:
        wanted, what = log.kv_tokens, "tokens"
    elif log.num_gpu_blocks is not None:
        wanted, what = log.num_gpu_blocks, "blocks"
    else:
        return None if printed is None else _mib(printed)

    def holds(pool_mib: int) -> int:
        pool = pool_mib * MIB
        return plan.reported_tokens(pool, length) if what == "tokens" else plan.num_blocks(pool)

    if printed is not None and holds(_mib(printed)) == wanted:
        return _mib(printed)
    low, high = 0, 2 * inputs.gpu.usable_bytes // MIB
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) >= wanted else (middle + 1, high)
    slack = PRINTED_SLACK_BYTES * (2 if log.engine == "sglang" else 1) + MIB
    if printed is not None and abs(low * MIB - printed) <= slack:
        # The first whole MiB that holds them: where a MiB holds many tokens, a few more.
        return low
    if printed is None and holds(low) < wanted:
        text = f"The log prints {fmt_count(wanted)} {what}, more than this GPU holds: the pool stays as computed."
        notes.append(Note(field="kv_pool_mib", text=text))
        return None
    if printed is None:
        text = f"The log prints no pool: it follows from {fmt_count(wanted)} {what}, to a MiB."
        notes.append(Note(field="kv_pool_mib", text=text))
        return low
    counted = f"a pool of {fmt_gib(printed, 2)} holds {fmt_count(holds(_mib(printed)))} as computed here"
    text = f"The log prints {fmt_count(wanted)} {what}; {counted}. Look at block size, cache type, layout and release."
    notes.append(Note(field="kv_pool_mib", text=text))
    return _mib(printed)
