"""An engine's log beside the prediction: the same lines of one GPU's memory, and the pool each leaves.

    pool = request - weights - overheads       (GPU memory; both columns)

What the log does not print is found by subtraction where its other lines allow it, and said to be so.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from kvcalc.budget import Budget
from kvcalc.enginelog import EngineLog, calibrate
from kvcalc.errors import Note, Record
from kvcalc.inputs import Inputs, resolve
from kvcalc.measured import changed
from kvcalc.scenario import Scenario
from kvcalc.units import GIB, MIB

__all__ = ["MEASURED", "Counts", "Line", "Reconciliation", "reconcile", "same_layout"]

PRINTED_BYTES = GIB // 100
"""Last digit of the figures engines print."""

MEASURED = {
    "weights_mib": "weights_bytes",
    "kv_pool_mib": "kv_pool_bytes",
    "non_torch_mib": "non_torch_bytes",
    "activations_mib": "activation_bytes",
    "cuda_graphs_mib": "cuda_graph_bytes",
}
"""Measured field of a scenario → the fact of a log that it holds."""

_LAYOUT = (("tp", "TP"), ("pp", "PP"), ("dcp", "DCP"))
_NOT_IN_THE_REQUEST = frozenset(("driver", "weights", "kv_pool", "kept_free", "over_the_card", "unexplained"))
_PEAK = ("activations", "encoder_cache", "linear_attention")
"""Lines that one printed activation peak holds together."""
_LABELS = {
    "request": "Memory the engine may use",
    "weights": "Weights",
    "non_torch": "Outside PyTorch",
    "activations": "Activations",
    "cuda_graphs": "CUDA graphs",
    "unlogged": "Not in the log",
    "left_over": "Left over",
    "kv_pool": "KV pool",
}


class Line(Record):
    """One line of a GPU's memory, predicted and logged."""

    name: str
    """request, kv_pool, left_over, unlogged (several lines the log does not print), or a line of the budget."""
    label: str
    """The line as a person reads it."""
    predicted_bytes: int
    """As estimated without any figure of the log. [bytes/GPU]"""
    logged_bytes: int | None
    """As the log says; None when it does not and nothing tells. [bytes/GPU]"""
    by_subtraction: bool = False
    """Whether the log does not print it: it is what its other lines leave."""

    @property
    def difference_bytes(self) -> int | None:
        """Logged less predicted. [bytes/GPU]"""
        return None if self.logged_bytes is None else self.logged_bytes - self.predicted_bytes


class Counts(Record):
    """What a pool holds."""

    pool_bytes: int
    """The pool. [bytes/GPU]"""
    tokens: int
    """Tokens, in the engine's own accounting. [tokens]"""
    concurrency: float
    """Requests of max_model_len, as the engine counts them when it starts. [requests]"""
    requests: int
    """Whole requests of the scenario's context. [requests]"""


class Reconciliation(Record):
    """A prediction and, beside it, what a log or typed figures say."""

    scenario: Scenario
    """What was predicted: nothing in it is measured; release, layout and open settings are the log's."""
    max_model_len: int
    """Longest request of the log, else of the scenario. [tokens]"""
    lines: tuple[Line, ...]
    """Request first, pool last; between them what is taken from the request. [bytes/GPU]"""
    predicted: Counts
    """What the predicted pool holds."""
    logged: Counts | None
    """What the logged pool holds, the engine's own counts where it prints them; None when the log names no pool."""
    pool_low_bytes: int
    """Smallest pool the estimate's band allows. [bytes/GPU]"""
    pool_high_bytes: int
    """Largest pool the estimate's band allows. [bytes/GPU]"""
    prints_tokens: bool
    """Whether the log prints its tokens; else they follow from its pool."""
    has_log: bool
    """Whether there is a log, or a typed figure, at all."""
    failure: str | None = None
    """Why the engine did not start; None when it did or nothing tells."""
    notes: tuple[Note, ...] = ()
    """Settings and layout that the log contradicts, and figures that could not be used."""

    def line(self, name: str) -> Line | None:
        """The line of this name; None when there is none."""
        return next((line for line in self.lines if line.name == name), None)


def reconcile(scenario: Scenario, log: EngineLog | None = None) -> Reconciliation:
    """A scenario's estimates against a log, line by line.

    Equation   pool = request - weights - overheads, on both sides

    The prediction takes the engine, release and layout of the log, since its figures are of one GPU of that layout,
    and the settings the scenario leaves to the engine. It takes no figure that was measured.

    Parameters
    ----------
    scenario : what was expected. Without a log its own measured figures stand in for one.
    log : facts of ``enginelog.parse``.

    Raises
    ------
    KvcalcError    a scenario that cannot be evaluated.
    """
    read = _typed(scenario) if log is None else log
    plain = Scenario(**{**dict(scenario), **dict.fromkeys(MEASURED)})
    if read.engine is None:
        notes = () if log is None else calibrate(plain, log).notes
        return _compare(resolve(plain), read, None, notes, has_log=False)
    layout, notes = _layout(plain, read)
    found = calibrate(layout, read)
    predicted = Scenario(**{**dict(found.scenario), **dict.fromkeys(MEASURED)})
    pool = found.scenario.kv_pool_mib
    return _compare(resolve(predicted), read, None if pool is None else pool * MIB, notes + found.notes, has_log=True)


def same_layout(scenario: Scenario, log: EngineLog) -> bool:
    """Whether the log's figures are of one GPU of the scenario's layout, as far as the log says."""
    return all(getattr(log, field) in (None, getattr(scenario, field)) for field, _ in _LAYOUT)


def _typed(scenario: Scenario) -> EngineLog:
    """The scenario's measured figures as if a log had said them."""
    figures: dict[str, Any] = {
        fact: getattr(scenario, field) * MIB for field, fact in MEASURED.items() if getattr(scenario, field) is not None
    }
    return EngineLog(engine=scenario.engine if figures else None, **figures)


def _layout(scenario: Scenario, log: EngineLog) -> tuple[Scenario, tuple[Note, ...]]:
    """The scenario laid out over GPUs as the log's engine was."""
    update = {field: getattr(log, field) for field, _ in _LAYOUT if getattr(log, field) is not None}
    other = [
        (words, update[field]) for field, words in _LAYOUT if update.get(field) not in (None, getattr(scenario, field))
    ]
    if not other:
        return scenario, ()
    names = ", ".join(f"{words} {size}" for words, size in other)
    named = {words for words, _ in other}
    mine = ", ".join(f"{words} {getattr(scenario, field)}" for field, words in _LAYOUT if words in named)
    text = f"The log is of {names}, the scenario of {mine}: predicted here as the log ran."
    return changed(scenario, update), (Note(field="tp", text=text),)


def _compare(
    inputs: Inputs, log: EngineLog, exact_pool: int | None, notes: tuple[Note, ...], *, has_log: bool
) -> Reconciliation:
    length = log.max_model_len or inputs.scenario.max_model_len
    printed = exact_pool if log.kv_pool_bytes is None else log.kv_pool_bytes
    sized_by_context = not inputs.plan.fills_memory
    predicted_pool = inputs.budget.kv_pool_bytes
    if sized_by_context and has_log:
        predicted_pool = min(inputs.plan.needed_bytes(length), predicted_pool)
    predicted = _counts(inputs, predicted_pool, length)
    logged = None
    if printed is not None and printed > 0:
        held = _counts(inputs, exact_pool or printed, length)
        logged = Counts(
            pool_bytes=printed,
            tokens=held.tokens if log.kv_tokens is None else log.kv_tokens,
            concurrency=held.concurrency if log.max_concurrency is None else log.max_concurrency,
            requests=held.requests,
        )
    whole = not sized_by_context and not log.pool_by_hand
    return Reconciliation(
        scenario=inputs.scenario,
        max_model_len=length,
        lines=_lines(inputs.budget, log, predicted_pool, printed, whole=whole),
        predicted=predicted,
        logged=logged,
        pool_low_bytes=inputs.budget.kv_pool_low_bytes,
        pool_high_bytes=inputs.budget.kv_pool_high_bytes,
        prints_tokens=log.kv_tokens is not None,
        has_log=has_log,
        failure=log.failure,
        notes=notes,
    )


def _counts(inputs: Inputs, pool_bytes: int, length: int) -> Counts:
    plan = inputs.plan
    return Counts(
        pool_bytes=pool_bytes,
        tokens=plan.reported_tokens(pool_bytes, length),
        concurrency=float(plan.planned_requests(pool_bytes, length)),
        requests=plan.requests_at(pool_bytes, inputs.scenario.context_tokens),
    )


def _lines(
    budget: Budget, log: EngineLog, predicted_pool: int, logged_pool: int | None, *, whole: bool
) -> tuple[Line, ...]:
    """Request, what is taken from it, pool. ``whole``: the request is a share of memory that the lines use up."""
    taken = _taken(budget, log)
    pool = _line("kv_pool", predicted_pool, logged_pool)
    if not whole:
        return (*taken, pool)
    request = _line("request", budget.requested_bytes, _logged_request(budget, log))
    if logged_pool is None or request.logged_bytes is None:
        return (request, *taken, pool)
    rest = request.logged_bytes - logged_pool - sum(line.logged_bytes or 0 for line in taken)
    return (request, *_with_rest(taken, rest), pool)


def _with_rest(taken: tuple[Line, ...], rest: int) -> tuple[Line, ...]:
    """The lines with what the printed ones leave: on the one that is not printed, on several together, or left over."""
    missing = [line for line in taken if line.logged_bytes is None]
    if not missing:
        # Each printed figure may be half a digit off.
        slack = PRINTED_BYTES * (len(taken) + 2) // 2
        return taken if abs(rest) <= slack else (*taken, _line("left_over", 0, rest, by_subtraction=True))
    if len(missing) == 1:
        only = missing[0]
        found = Line(**{**dict(only), "logged_bytes": rest, "by_subtraction": True})
        return tuple(found if line is only else line for line in taken)
    together = Line(
        name="unlogged",
        label=_listed([line.label for line in missing]),
        predicted_bytes=sum(line.predicted_bytes for line in missing),
        logged_bytes=rest,
        by_subtraction=True,
    )
    return (*(line for line in taken if line.logged_bytes is not None), together)


def _listed(labels: list[str]) -> str:
    """'Activations, CUDA graphs': capitals that are not names only at the start."""
    rest = [label if label[:2].isupper() else label[0].lower() + label[1:] for label in labels[1:]]
    return ", ".join([labels[0], *rest])


def _taken(budget: Budget, log: EngineLog) -> tuple[Line, ...]:
    """Weights and every overhead that either side names."""
    graphs = log.cuda_graph_bytes
    if log.cuda_graphs_charged is False:
        # Captured after the pool was made: no part of the request.
        graphs = 0 if any(line.name == "cuda_graphs" for line in budget.lines) else None
    logged = {"non_torch": log.non_torch_bytes, "activations": log.activation_bytes, "cuda_graphs": graphs}
    predicted: dict[str, int] = {}
    labels: dict[str, str] = {}
    for line in budget.lines:
        if line.name in _NOT_IN_THE_REQUEST:
            continue
        name = "activations" if line.name in _PEAK and logged["activations"] is not None else line.name
        predicted[name] = predicted.get(name, 0) + line.bytes
        labels.setdefault(name, _LABELS.get(name, line.label))
    names = dict.fromkeys([*predicted, *(name for name, size in logged.items() if size is not None)])
    overheads = (_line(name, predicted.get(name, 0), logged.get(name), label=labels.get(name)) for name in names)
    return (_line("weights", budget.weights_bytes, log.weights_bytes), *overheads)


def _line(
    name: str, predicted: int, logged: int | None, *, label: str | None = None, by_subtraction: bool = False
) -> Line:
    return Line(
        name=name,
        label=label or _LABELS[name],
        predicted_bytes=predicted,
        logged_bytes=logged,
        by_subtraction=by_subtraction,
    )


def _logged_request(budget: Budget, log: EngineLog) -> int | None:
    """What the log's engine went up to: printed, or its share of its card in place of the predicted ones."""
    if log.engine is None or log.requested_bytes is not None:
        return log.requested_bytes
    share = Fraction(str(budget.utilization_pct)) / 100
    given = share if log.utilization is None else Fraction(str(round(log.utilization, 6)))
    memory = budget.usable_bytes if log.memory_bytes is None else log.memory_bytes
    return budget.requested_bytes + int(given * memory - share * budget.usable_bytes)
