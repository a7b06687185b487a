"""Readings of many ranks and wordings → one set of facts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

from kvcalc.enginelog.facts import EngineLog, EngineName, LogLine, Reading
from kvcalc.enginelog.found import Found, Match
from kvcalc.errors import Note
from kvcalc.units import GIB, MIB, fmt_gib

_SIZES = {"gib": GIB, "mib": MIB, "bytes": 1}
_UNITS = {"gib": "GiB", "mib": "MiB", "bytes": "bytes"}
# The engine plans for its busiest GPU: the largest need and the smallest pool of all ranks.
_SMALLEST = {"kv_pool", "kv_tokens", "max_concurrency", "num_gpu_blocks", "longest_context", "free"}
_LAST = {"graphs_flag"}
_FIRST = {"utilization", "version", "model", "tp", "pp", "dp", "dcp", "enforce_eager", "kv_precision"}
_SAME_DEVICE = re.compile(r"[_-](?:Mapped|REPACK|Split)$")
"""Ends of a buffer's name that are no part of the device's."""
_PRINTED_CHARGE = (0, 20)
"""First vLLM release that charges CUDA graphs to the pool unless told otherwise."""


def facts_of(engine: EngineName | None, lines: Sequence[Match], unread: list[LogLine], unread_count: int) -> EngineLog:
    """One record of everything read."""
    if engine is None:
        return EngineLog(unread=tuple(unread), unread_count=unread_count)
    merged = _Merged(engine, lines)
    build = {"vllm": _vllm, "sglang": _sglang, "tensorrt_llm": _tensorrt, "llamacpp": _llamacpp}[engine]
    facts = {**merged.common(), **build(merged)}
    failure = next((line.pattern.failure for line in lines if line.pattern.failure), None)
    return EngineLog(
        engine=engine,
        **facts,
        failure=failure,
        readings=tuple(merged.readings()),
        unread=tuple(unread),
        unread_count=unread_count,
        notes=tuple(merged.notes),
    )


class _Merged:
    """Facts by name: the best pattern's, then the rank that decides."""

    def __init__(self, engine: EngineName, lines: Sequence[Match]) -> None:
        self.engine = engine
        self.lines = lines
        self.notes: list[Note] = []
        self.found: dict[str, list[Found]] = {}
        for line in lines:
            for found in line.found:
                if not (found.fact == "num_gpu_blocks" and found.text == "0"):
                    self.found.setdefault(found.fact, []).append(found)

    def value(self, fact: str) -> Any:
        """The fact's value; None when nobody printed it. Sizes in bytes."""
        rows = self.found.get(fact)
        if not rows:
            return None
        if fact == "kv_pool":
            # A later line may say that less is used than an earlier one found: all wordings count.
            return min(_value(row) for row in rows)
        best = min(row.order for row in rows)
        values = [_value(row) for row in rows if row.order == best]
        if fact in _FIRST:
            return values[0]
        if fact in _LAST:
            return values[-1]
        return min(values) if fact in _SMALLEST else max(values)

    def first(self, *facts: str) -> Any:
        """The first of these facts that somebody printed."""
        return next((value for fact in facts if (value := self.value(fact)) is not None), None)

    def common(self) -> dict[str, Any]:
        """What every engine prints in one way."""
        version = self.value("version")
        utilization = self.value("utilization")
        concurrency = self.value("max_concurrency")
        ranks = [row.rank for rows in self.found.values() for row in rows if row.rank is not None]
        return {
            "version": version,
            "model": self.value("model"),
            "weights_bytes": self.value("weights"),
            "kv_pool_bytes": self.value("kv_pool"),
            "kv_tokens": self.value("kv_tokens"),
            "max_concurrency": None if concurrency is None else float(concurrency),
            "max_model_len": self.first("max_model_len", "auto_model_len", "stated_model_len", "option_model_len"),
            "memory_bytes": self.value("memory"),
            "requested_bytes": self.value("requested"),
            "free_bytes": self.value("free"),
            "utilization": None if utilization is None else float(utilization),
            "num_gpu_blocks": self.value("num_gpu_blocks"),
            "block_size": self.value("block_size"),
            "tp": self.value("tp"),
            "tp_at_least": max(ranks) + 1 if ranks else None,
            "pp": self.value("pp"),
            "dp": self.value("dp"),
            "dcp": self.value("dcp"),
            "max_num_seqs": self.value("max_num_seqs"),
            "max_num_batched_tokens": self.value("max_num_batched_tokens"),
            "enforce_eager": self.value("enforce_eager"),
            "kv_precision": self.value("kv_precision"),
            "kv_needed_bytes": self.value("kv_needed"),
            "longest_context_tokens": self.value("longest_context"),
        }

    def readings(self) -> Iterable[Reading]:
        """Every figure in the order of the log, each once."""
        rows = sorted((row for rows in self.found.values() for row in rows), key=lambda row: row.line.number)
        seen = set()
        for row in rows:
            printed = f"{row.text} {_UNITS.get(row.unit, '')}".strip()
            if (row.fact, printed, row.line.number) not in seen:
                seen.add((row.fact, printed, row.line.number))
                line = LogLine(number=row.line.number, text=row.line.text[:300])
                yield Reading(fact=row.fact, printed=printed, line=line)

    def note(self, field: str, text: str) -> None:
        self.notes.append(Note(field=field, text=text))


def _value(row: Found) -> Any:
    """A figure in the unit the facts use: bytes, counts, exact ratios."""
    if row.unit in _SIZES:
        return round(Fraction(row.text) * _SIZES[row.unit])
    if row.unit == "n":
        return int(row.text.replace(",", ""))
    if row.unit == "ratio":
        return Fraction(row.text)
    if row.unit == "flag":
        return row.text.lower() in ("true", "1", "on")
    return row.text


def _vllm(merged: _Merged) -> dict[str, Any]:
    weights, activation = merged.value("weights"), merged.value("activation")
    non_torch, consumed = merged.value("non_torch"), merged.value("consumed")
    peak = merged.value("peak_with_weights")
    if activation is None and peak is not None and weights is not None:
        activation = peak - weights
    if non_torch is None and consumed is not None and weights is not None:
        non_torch = max(0, consumed - weights)
    estimate, captured = merged.value("graphs_estimated"), merged.value("graphs_captured")
    both = merged.value("activation_and_graphs")
    # This wording came with 0.27, when the pool pays for the graphs unless told otherwise.
    charged = merged.value("graphs_flag") != "disabled" if both is not None else _charged(merged)
    graphs = estimate if charged and estimate is not None else captured
    if both is not None:
        # The printed peak holds the estimate that was charged.
        activation = both if estimate is None or not charged else max(0, both - estimate)
        graphs = (estimate or 0) if charged else captured
        if estimate is None:
            merged.note("activations", "The printed activation peak of this release includes the CUDA graphs.")
    by_hand = merged.value("pool_by_hand")
    pools = {_value(row) for row in merged.found.get("kv_pool", ())}
    if len(pools) > 1:
        low, high = fmt_gib(min(pools), 2), fmt_gib(max(pools), 2)
        merged.note("kv_pool", f"The log names pools from {low} to {high}, of ranks or of starts: the smallest counts.")
    return {
        "activation_bytes": activation,
        "non_torch_bytes": non_torch,
        "cuda_graph_bytes": graphs,
        "cuda_graphs_charged": charged,
        "pool_by_hand": by_hand is not None,
        **({"kv_pool_bytes": by_hand} if by_hand is not None and not pools else {}),
    }


def _charged(merged: _Merged) -> bool | None:
    """Whether the pool paid for the CUDA graphs: the log says so, or its release does."""
    flag = merged.value("graphs_flag")
    if flag is not None:
        return bool(flag.lower() == "enabled")
    version = merged.value("version")
    numbers = [int(part) for part in version.split(".")[:2] if part.isdecimal()] if version else []
    return tuple(numbers) >= _PRINTED_CHARGE if len(numbers) == 2 else None


def _sglang(merged: _Merged) -> dict[str, Any]:
    """Several pools on one rank add up; of ranks, the smallest pool and the largest weights count."""
    pools: dict[int | None, int] = {}
    together: dict[int | None, int] = {}
    states: dict[int | None, int] = {}
    weights: dict[int | None, dict[str, int]] = {}
    begin: dict[int | None, int] = {}
    free: dict[int | None, int] = {}
    for line in merged.lines:
        values = {row.fact: _value(row) for row in line.found}
        rank = line.found[0].rank if line.found else None
        if "pool_k" in values:
            pools[rank] = pools.get(rank, 0) + values["pool_k"] + values.get("pool_v", 0)
        if "pools_together" in values:
            together[rank] = values["pools_together"]
        if "state_k" in values:
            states[rank] = states.get(rank, 0) + values["state_k"] + values["state_v"]
        if "load_begin" in values:
            begin[rank] = values["load_begin"]
            free.setdefault(rank, values["load_begin"])
        if "load_end" in values:
            loaded = values.get("weights_part", begin.get(rank, values["load_end"]) - values["load_end"])
            parts = weights.setdefault(rank, {})
            model = values.get("weights_of", "")
            parts[model] = max(loaded, parts.get(model, 0))
    if any(len(parts) > 1 for parts in weights.values()):
        merged.note("weights", "A second model was loaded, to draft tokens: the weights are those of both.")
    # The window pool and the full pool print a line each, and newer releases one for both.
    ranks = pools.keys() | together.keys() | states.keys()
    held = {rank: together.get(rank, pools.get(rank, 0)) + states.get(rank, 0) for rank in ranks}
    return {
        "weights_bytes": max((sum(parts.values()) for parts in weights.values()), default=None),
        "kv_pool_bytes": min(held.values(), default=None),
        "free_bytes": min(free.values(), default=None),
        "cuda_graph_bytes": merged.value("graphs_captured"),
        "cuda_graphs_charged": False,
    }


def _tensorrt(merged: _Merged) -> dict[str, Any]:
    """The first pool is the dry run's: the last one counts."""
    pools = merged.found.get("kv_pool", [])
    tokens = [row for row in merged.found.get("kv_tokens", ()) if not pools or row.order == pools[-1].order]
    weights = merged.first("weights", "weights_loaded")
    activation, peak = merged.value("activation"), merged.value("peak_with_all")
    over = None if peak is None or weights is None else max(0, peak - weights)
    return {
        "weights_bytes": weights,
        "kv_pool_bytes": _value(pools[-1]) if pools else None,
        "kv_tokens": _value(tokens[-1]) if tokens else None,
        "activation_bytes": activation if over is None else over,
        "cuda_graphs_charged": None,
    }


def _llamacpp(merged: _Merged) -> dict[str, Any]:
    """Buffers by device: the busiest GPU counts; the CPU only where there is no GPU."""
    sizes: dict[tuple[str, str], int] = {}
    for line in merged.lines:
        values = {row.fact: _value(row) for row in line.found}
        if "device" in values:
            device = _SAME_DEVICE.sub("", values["device"])
            key = (device, (values.get("buffer") or "model").lower())
            sizes[key] = sizes.get(key, 0) + values["size"]
    holders = {device for device, kind in sizes if kind in ("model", "kv", "rs")}
    gpus = {device for device in holders if not _is_host(device)} or holders

    def largest(kind: str) -> int | None:
        return max((sizes[device, kind] for device in gpus if (device, kind) in sizes), default=None)

    cache = {device: sizes.get((device, "kv"), 0) + sizes.get((device, "rs"), 0) for device, _ in sizes}
    total = sum(cache.values()) or sum(_value(row) for row in merged.found.get("cache", ())) or merged.value("kv_total")
    pool = max((cache[device] for device in gpus), default=0) or total
    if len(gpus) > 1:
        merged.note("weights", f"The model is spread over {len(gpus)} devices: the figures are those of the busiest.")
    return {
        "weights_bytes": largest("model"),
        "kv_pool_bytes": pool,
        "kv_total_bytes": total,
        "activation_bytes": largest("compute"),
        "max_model_len": merged.first("max_model_len", "kv_tokens"),
    }


def _is_host(device: str) -> bool:
    return device.upper().startswith(("CPU", "AMX", "BLAS")) or device.upper().endswith("_HOST")
