"""What the reader of a budget must know: what was measured against what was computed, and what a step may run into."""

from __future__ import annotations

from kvcalc.budget import Budget
from kvcalc.errors import Note
from kvcalc.inputs import Inputs
from kvcalc.scenario import Scenario
from kvcalc.units import fmt_gib, fmt_tokens
from kvcalc.weights import weight_bytes

_SAME_MODEL_RATIO = 0.05
"""Weights further apart than this are those of another model, precision or layout."""


def budget_notes(inputs: Inputs) -> tuple[Note, ...]:
    """Notes on one GPU's budget."""
    scenario, budget = inputs.scenario, inputs.budget
    found = list(budget.notes)
    if scenario.weights_mib is not None:
        found.append(_weights(inputs))
    step = _step(scenario, budget)
    if step is not None:
        found.append(step)
    beside = _beside(budget)
    if beside is not None:
        found.append(beside)
    return tuple(found)


def _weights(inputs: Inputs) -> Note:
    scenario, measured = inputs.scenario, inputs.budget.weights_bytes
    computed = weight_bytes(
        inputs.spec,
        precision=scenario.weight_precision,
        tp=scenario.tp,
        pp=scenario.pp,
        ep=scenario.ep,
        draft=scenario.speculative_tokens > 0,
    )
    text = f"Weights {fmt_gib(measured, 2)} as measured, {fmt_gib(computed, 2)} computed."
    if abs(measured - computed) > _SAME_MODEL_RATIO * computed:
        text += " So far apart, the figure may be of another model, precision or layout."
    return Note(field="weights_mib", text=text)


def _bytes(budget: Budget, name: str) -> int:
    return sum(line.bytes for line in budget.lines if line.name == name)


def _step(scenario: Scenario, budget: Budget) -> Note | None:
    """Whether a step's activations run out of memory, and what an uncut prompt costs."""
    activations = _bytes(budget, "activations")
    tokens = fmt_tokens(budget.max_num_batched_tokens)
    left = budget.requested_bytes - budget.weights_bytes - (budget.overhead_bytes - activations)
    runs_out = bool(budget.shortfall_bytes) and left > 0
    need = f"the activations of a step of {tokens} tokens take {fmt_gib(activations, 2)}"
    if not scenario.chunked_prefill:
        text = f"Without chunked prefill a step holds the whole prompt: {need} per GPU."
        if runs_out:
            text += (
                f" {fmt_gib(left, 2)} is left beside the weights. Turn chunked prefill on, or lower the context limit."
            )
        elif budget.beside_bytes is None:
            text += " Chunked prefill would spread the same prompt over steps and leave more for KV cache."
        return Note(field="chunked_prefill", text=text) if runs_out or _is_longest(scenario, budget) else None
    if runs_out:
        text = f"{need[0].upper()}{need[1:]}, and {fmt_gib(left, 2)} is left beside the weights. "
        text += "Lower max_num_batched_tokens or max_num_seqs."
        return Note(field="max_num_batched_tokens", text=text)
    return None


def _is_longest(scenario: Scenario, budget: Budget) -> bool:
    return budget.max_num_batched_tokens == scenario.max_model_len and budget.beside_bytes is None


def _beside(budget: Budget) -> Note | None:
    """Whether a step's activations fit in what the engine keeps free for them."""
    free = _bytes(budget, "kept_free")
    need = budget.beside_bytes
    if need is None or need <= free or not budget.kv_pool_bytes:
        return None
    text = (
        f"A step of {fmt_tokens(budget.max_num_batched_tokens)} tokens needs about {fmt_gib(need, 1)} of activations "
        f"and {fmt_gib(free, 1)} is kept free for them: a long prompt may run out of memory. Compute prompts in "
        "smaller chunks, or lower the memory share."
    )
    return Note(field="max_num_batched_tokens", text=text)
