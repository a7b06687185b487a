"""A reconciliation in words: one sentence, and what explains the difference, largest part first."""

from __future__ import annotations

from kvcalc.errors import Record
from kvcalc.reconcile import PRINTED_BYTES, Line, Reconciliation
from kvcalc.units import fmt_gib, fmt_percent, fmt_tokens

__all__ = ["Cause", "explanations", "sentence"]

_ALIKE_PCT = 1
"""Tokens that differ by less than this are called a match. [%]"""


class Cause(Record):
    """A part of the difference."""

    title: str
    """The line and its size: 'CUDA graphs, 0.91 GiB'."""
    text: str
    """Why it differs, and what to do. One or two sentences."""


_WHY = {
    "request": (
        "The engine had another share, another card, or memory was held by another process.",
        "Compare the memory share and what nvidia-smi shows before the start.",
    ),
    "weights": (
        "Other tensors were loaded than the ones counted here: another precision, draft layers, a vision tower.",
        "Check the model and its weight precision.",
    ),
    "non_torch": (
        "CUDA context, NCCL and libraries: it moves with driver, links and number of GPUs.",
        "The estimate is a typical value.",
    ),
    "activations": (
        "The engine measures the peak of one step when it starts; the prediction is fitted to the kind of model.",
        "It grows with max_num_seqs and max_num_batched_tokens.",
    ),
    "cuda_graphs": (
        "vLLM takes an estimate of the graphs' memory from the pool since 0.20.",
        "Fewer captured sizes, or none, give it back; without graphs decoding is slower.",
    ),
    "unlogged": (
        "The log does not print these one by one: this is what its pool leaves for them together.",
        "A log at debug level names each.",
    ),
    "left_over": (
        "The printed lines do not add up to the pool.",
        "Look for a second engine, a draft model or another process on the card.",
    ),
}
_OTHER = ("The log and the prediction name different sizes.", "It is measured by the engine when it starts.")
_SMALL_WEIGHTS_RATIO = 50
"""Weights that differ by less than a fiftieth are the same tensors."""
_SAME_TENSORS = "The tensors are the ones counted; buffers and the allocator's rounding come on top."
_VERBS = {
    "non_torch": "memory outside PyTorch takes",
    "unlogged": "overheads it does not print take",
    "left_over": "something the log does not name takes",
}


def sentence(found: Reconciliation) -> str:
    """The answer in one sentence."""
    if not found.has_log:
        return _without_log(found) if not found.notes else "No line of your log was understood."
    if found.failure is not None:
        return f"Your engine did not start: {found.failure}."
    if found.logged is None:
        pool = found.line("kv_pool")
        if pool is not None and pool.logged_bytes is not None:
            return f"Your log leaves no memory for KV cache: the pool it prints is {fmt_gib(pool.logged_bytes, 2)}."
        return "Your log names no KV pool, so only its other lines can be compared."
    if not found.predicted.tokens:
        return f"Your engine holds {fmt_tokens(found.logged.tokens)} tokens; none were predicted to fit."
    change_pct = (found.logged.tokens - found.predicted.tokens) * 100 / found.predicted.tokens
    if abs(change_pct) < _ALIKE_PCT:
        return f"Your log matches the prediction within {_within(abs(change_pct))}."
    direction = "fewer" if change_pct < 0 else "more"
    start = f"Your engine holds {fmt_percent(abs(change_pct) / 100)} {direction} tokens than predicted"
    cause = _main_cause(found)
    return f"{start}; {cause}." if cause else f"{start}."


def _without_log(found: Reconciliation) -> str:
    pool, tokens = fmt_gib(found.predicted.pool_bytes, 2), fmt_tokens(found.predicted.tokens)
    if not found.predicted.pool_bytes:
        return "Predicted not to fit: weights and overhead leave no KV pool. Paste your engine's log to compare."
    return f"Predicted: {pool} for KV cache, {tokens} tokens. Paste your engine's log to compare."


def _within(percent: float) -> str:
    """0.1% upwards in steps of a tenth, rounded up."""
    tenths = max(1, -int(-percent * 10 // 1))
    return f"{tenths // 10}.{tenths % 10}%" if tenths % 10 else f"{tenths // 10}%"


def _main_cause(found: Reconciliation) -> str:
    """The line that moved the pool most, in its direction; empty where the pools are alike."""
    pool = found.line("kv_pool")
    if pool is None or pool.difference_bytes is None:
        return ""
    gap = pool.difference_bytes
    if abs(gap) <= PRINTED_BYTES:
        return "the pool is the same, it is counted in other tokens"
    largest = max(_parts(found), key=lambda line: _pushes(line, gap), default=None)
    if largest is None or _pushes(largest, gap) <= PRINTED_BYTES:
        return ""
    size = fmt_gib(abs(largest.difference_bytes or 0), 2)
    if largest.name == "request":
        return f"it may use {size} {_more(gap)} memory"
    subject = _VERBS.get(largest.name, f"{_lowered(largest.label)} take")
    if gap > 0:
        return f"{subject} {size} less"
    if (largest.difference_bytes or 0) <= -gap:
        return f"{subject} {size.removesuffix(' GiB')} of the {fmt_gib(-gap, 2)}"
    return f"{subject} {size} more"


def _parts(found: Reconciliation) -> list[Line]:
    return [line for line in found.lines if line.name != "kv_pool" and line.difference_bytes is not None]


def _pushes(line: Line, gap: int) -> int:
    """How far a line moves the pool in the direction of the gap. [bytes]"""
    moves = line.difference_bytes or 0
    if line.name != "request":
        moves = -moves
    return moves if gap > 0 else -moves


def _lowered(label: str) -> str:
    return label if label[:2].isupper() else label[0].lower() + label[1:]


def explanations(found: Reconciliation) -> tuple[Cause, ...]:
    """Every line that differs by more than the log's rounding, largest first, and what is left over."""
    if found.logged is None:
        parts = [line for line in _parts(found) if line.name != "request"]
        return tuple(_cause(line) for line in _differing(parts))
    causes = [_cause(line) for line in _differing(_parts(found))]
    band = _band(found)
    if band is not None:
        causes.append(band)
    if all(line.logged_bytes is not None and not line.by_subtraction for line in found.lines):
        text = f"The lines add up to the log within {fmt_gib(PRINTED_BYTES * (len(found.lines) + 1) // 2, 2)}."
        causes.append(Cause(title="Nothing is left over", text=text))
    return tuple(causes)


def _differing(lines: list[Line]) -> list[Line]:
    differing = [line for line in lines if abs(line.difference_bytes or 0) > PRINTED_BYTES]
    return sorted(differing, key=lambda line: -abs(line.difference_bytes or 0))


def _cause(line: Line) -> Cause:
    gap = line.difference_bytes or 0
    why, do = _WHY.get(line.name, _OTHER)
    if line.name == "weights" and abs(gap) * _SMALL_WEIGHTS_RATIO < line.predicted_bytes:
        why, do = _SAME_TENSORS, "Both figures are good."
    if line.by_subtraction and line.name not in ("unlogged", "left_over"):
        why = f"The log does not print it: this is what its other lines leave. {why}"
    return Cause(title=f"{line.label}, {fmt_gib(abs(gap), 2)} {_more(gap)}", text=f"{why} {do}")


def _more(gap: int) -> str:
    return "more" if gap > 0 else "less"


def _band(found: Reconciliation) -> Cause | None:
    """Whether the pool is one the estimate's own error allows, where the request is the same."""
    request = found.line("request")
    same_request = request is not None and abs(request.difference_bytes or 0) <= PRINTED_BYTES
    if found.logged is None or not same_request or found.pool_low_bytes == found.pool_high_bytes:
        return None
    low, high = fmt_gib(found.pool_low_bytes, 2), fmt_gib(found.pool_high_bytes, 2)
    inside = found.pool_low_bytes <= found.logged.pool_bytes <= found.pool_high_bytes
    text = f"The estimate's own range is {low} to {high}."
    if not inside:
        text += " Something is different from the start-ups it was fitted on."
    return Cause(title=f"The pool is {'inside' if inside else 'outside'} the range", text=text)
