"""The arithmetic behind one GPU's memory: each line, and activations by tokens of a step."""

from __future__ import annotations

from kvcalc.arithmetic import Section, Step
from kvcalc.budget import Budget, BudgetLine
from kvcalc.inputs import budget_of
from kvcalc.report import Report
from kvcalc.scenario import Scenario, spec_of
from kvcalc.units import fmt_gib, fmt_tokens

_SOURCE = "METHODOLOGY, Memory budget"
_FORMULAS = {
    "driver": "what the driver reports − what a process sees",
    "weights": "by part, below",
    "non_torch": "growth of the CUDA context, communication buffers, kernels' own memory",
    "activations": "base + expert workspace + max(forward, vision encoder, sampler + hidden states)",
    "encoder_cache": "image tokens kept × hidden size × bytes",
    "linear_attention": "kept by some releases after warming up the kernels",
    "cuda_graphs": "first capture + each further one × layers × graphs",
    "other_overhead": "share asked for − weights − what was measured − KV cache",
    "kv_pool": "share asked for − weights − overhead",
    "kept_free": "card − everything above",
    "over_the_card": "card − weights − overhead",
    "unexplained": "card − weights − KV cache as measured",
}
_STEP_TOKENS = (2_048, 8_192, 32_768)


def memory_section(report: Report) -> Section:
    """Every line of the budget, with its band; then activations at other step sizes."""
    budget = report.budget
    steps = [_line(line) for line in budget.lines]
    steps += _by_tokens(report)
    return Section(title=f"KV pool, each GPU: {fmt_gib(budget.kv_pool_bytes, 2)}", steps=tuple(steps))


def _line(line: BudgetLine) -> Step:
    value = fmt_gib(line.bytes, 2)
    if line.low_bytes != line.high_bytes:
        value += f" ({fmt_gib(line.low_bytes, 2).removesuffix(' GiB')}–{fmt_gib(line.high_bytes, 2)})"
    return Step(
        title=line.label,
        formula=_FORMULAS[line.name],
        numbers=line.formula,
        value=value,
        source=line.source or _SOURCE,
    )


def _by_tokens(report: Report) -> list[Step]:
    """Activations at a few step sizes and at the longest prompt, uncut; none where they were measured."""
    scenario = report.scenario
    if scenario.activations_mib is not None or scenario.kv_pool_mib is not None:
        return []
    sizes = {tokens for tokens in _STEP_TOKENS if tokens < scenario.max_model_len} | {scenario.max_model_len}
    steps = []
    for tokens in sorted(sizes):
        found = _activations(_budget_at(scenario, report, tokens))
        if found is None:
            return []
        size, numbers = found
        whole = "the longest prompt in one step, " if tokens == scenario.max_model_len else "a step of "
        steps.append(
            Step(
                title=f"Activations of {whole}{fmt_tokens(tokens)} tokens",
                formula="the same with other max_num_batched_tokens; prompts in smaller steps need less at a time",
                numbers=numbers,
                value=fmt_gib(size, 2),
                source=_SOURCE,
            )
        )
    return steps


def _budget_at(scenario: Scenario, report: Report, tokens: int) -> Budget:
    fields = {**dict(scenario), "max_num_batched_tokens": tokens, "chunked_prefill": True}
    return budget_of(Scenario(**fields), spec_of(scenario), report.gpu)


def _activations(budget: Budget) -> tuple[int, str] | None:
    """(bytes, arithmetic) of a step's activations, whether the pool pays for them or the rest of the card."""
    if budget.beside_bytes is not None:
        return budget.beside_bytes, "forward pass and expert workspace, beside the pool"
    return next(((line.bytes, line.formula) for line in budget.lines if line.name == "activations"), None)
