"""Which deployments meet a scenario's wishes: GPU x count x parallelism x weight precision x KV precision, ranked.

A candidate is only asked whether it meets the targets, with budgets, engine plans and decode steps shared between
candidates; the verdict of every row is ``evaluate``'s own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kvcalc import catalogue
from kvcalc.budget import Budget
from kvcalc.cache import check_layout
from kvcalc.engines import Plan
from kvcalc.errors import KvcalcError, Record, ScenarioError, check_whole
from kvcalc.evaluation import answer
from kvcalc.first_token import in_time, prompt_alone
from kvcalc.hardware import GpuSpec
from kvcalc.inputs import Inputs, budget_of, plan_of, steps_of
from kvcalc.model_spec import ModelSpec
from kvcalc.parallelism import Parallelism
from kvcalc.precision import kv_format, weight_format
from kvcalc.scenario import Scenario, spec_of
from kvcalc.units import ceil_div
from kvcalc.weights import weight_bytes

_LAYOUTS = tuple((tp, pp) for pp in (1, 2, 4) for tp in (1, 2, 4, 8, 16))
"""(tp, pp) as people deploy them."""
_LAYOUTS_OF = {"llamacpp": tuple((1, pp) for pp in (1, 2, 3, 4, 6, 8))}
"""Engines that split by layers."""
_VENDORS: dict[str, tuple[str, ...]] = {
    "tensorrt_llm": ("NVIDIA",),
    "vllm": ("NVIDIA", "AMD"),
    "sglang": ("NVIDIA", "AMD"),
}
"""Whose GPUs an engine is offered on; llama.cpp runs on all."""
_MEASURED = ("weights_mib", "kv_pool_mib", "non_torch_mib", "activations_mib", "cuda_graphs_mib")
"""Scenario fields that hold for one deployment only, and are left out of the others."""


class Space(Record):
    """What to try: every combination."""

    gpus: tuple[str, ...]
    """GPU ids."""
    layouts: tuple[tuple[int, int], ...]
    """(tp, pp). [GPUs]"""
    weight_precisions: tuple[str, ...]
    """Weight format ids, the preferred first."""
    kv_precisions: tuple[str, ...]
    """KV format ids, the preferred first."""

    @property
    def size(self) -> int:
        """Combinations. [candidates]"""
        return len(self.gpus) * len(self.layouts) * len(self.weight_precisions) * len(self.kv_precisions)


class Deployment(Record):
    """One way to run the model that meets every target."""

    gpu: str
    """GPU id."""
    gpu_name: str
    """Its name."""
    gpus: int
    """All of them, over the replicas. [GPUs]"""
    tp: int
    """Tensor parallel ranks. [GPUs]"""
    pp: int
    """Pipeline stages. [stages]"""
    weight_precision: str
    """Weight format id."""
    kv_precision: str
    """KV format id."""
    requests: int
    """Requests at once it would take, over all replicas. [requests]"""
    tpot_s: float | None
    """Typical time per token at the requests asked for; None when the bandwidth is unknown. [s]"""
    cents_per_hour: int | None
    """At the price typed for this GPU; None without one. [US cents/h]"""
    scenario: Scenario
    """The same as a scenario."""


class SearchResult(Record):
    """What a search found."""

    considered: int
    """Combinations looked at. [candidates]"""
    met: int
    """Of them, those that meet every target. [candidates]"""
    rows: tuple[Deployment, ...]
    """The best of them, best first."""


def space_for(scenario: Scenario) -> Space:
    """Catalogue GPUs the engine runs on, usual layouts, and precisions below the checkpoint's."""
    spec = spec_of(scenario)
    vendors = _VENDORS.get(scenario.engine)
    quantized = [weight_format(rule.weight_format) for rule in spec.quantization.rules]
    bits = min((float(known.value_bits) for known in quantized), default=16.0)
    weights = ("checkpoint", *(name for name, least in (("fp8", 8), ("int4", 5)) if bits > least))
    known = kv_format("auto", declared=spec.quantization.kv_precision)
    fp8 = kv_format("fp8")
    smaller = scenario.engine in fp8.engines and known.row_bits(128) > fp8.row_bits(128)
    return Space(
        gpus=tuple(row.id for row in catalogue.gpus() if vendors is None or row.vendor in vendors),
        layouts=_LAYOUTS_OF.get(scenario.engine, _LAYOUTS),
        weight_precisions=weights,
        kv_precisions=("auto", "fp8") if smaller else ("auto",),
    )


def search(
    scenario: Scenario,
    *,
    space: Space | None = None,
    cents_per_gpu_hour: Mapping[str, int] | None = None,
    most: int = 50,
    per_gpu: int | None = None,
) -> SearchResult:
    """Deployments that run ``target_requests`` (else one) of the scenario's context within its targets, ranked.

    Ranked by cost where prices are given for GPUs; those without a price come after. Otherwise, and within equal
    cost, fewest GPUs first, then the least memory per GPU, then the precision that stands first in the space.

    Parameters
    ----------
    scenario : model, context, concurrency, targets and engine; figures measured on one deployment are left out.
    space : what to try; None is ``space_for(scenario)``.
    cents_per_gpu_hour : prices the user typed, by GPU id, name or alias. [US cents/h]
    most : rows to return. [rows]
    per_gpu : of these, at most so many with the same GPU; None is any number. [rows]

    Raises
    ------
    KvcalcError    a model, GPU or precision that does not exist, a context past the model's limit, a bad price.
    """
    tried = space_for(scenario) if space is None else space
    spec = spec_of(scenario)
    if spec.max_context_tokens is not None and scenario.context_tokens > spec.max_context_tokens:
        raise ScenarioError(
            "prompt_tokens",
            f"with output_tokens at most {spec.max_context_tokens:,}, the model's limit",
            scenario.context_tokens,
            hint="Shorten the prompt.",
        )
    prices = {catalogue.gpu(name).id: cents for name, cents in (cents_per_gpu_hour or {}).items()}
    for name, cents in prices.items():
        check_whole(f"price of {name}", cents, 0)
    bench = _Bench(scenario, spec)
    found = list(bench.candidates(tried))
    found.sort(key=lambda row: row.rank(prices, scenario.replicas))
    best = found if per_gpu is None else _first_of_each(found, per_gpu)
    rows = tuple(row.deployment(prices, bench.wanted) for row in best[:most])
    return SearchResult(considered=tried.size, met=len(found), rows=rows)


def _first_of_each(found: list[_Found], most: int) -> list[_Found]:
    """Of each GPU the ones that stand first, in the order given."""
    seen: Counter[str] = Counter()
    kept = []
    for row in found:
        seen[row.inputs.gpu.id] += 1
        if seen[row.inputs.gpu.id] <= most:
            kept.append(row)
    return kept


class _Found(NamedTuple):
    """A candidate that meets every target."""

    inputs: Inputs
    preference: tuple[int, int]

    def rank(self, prices: Mapping[str, int], replicas: int) -> tuple[Any, ...]:
        scenario, gpu = self.inputs.scenario, self.inputs.gpu
        count = scenario.tp * scenario.pp * replicas
        price = prices.get(gpu.id)
        cost = (0, price * count) if price is not None else (1, 0)
        return (*cost, count, gpu.memory_bytes, *self.preference, scenario.pp, gpu.id)

    def deployment(self, prices: Mapping[str, int], wanted: int) -> Deployment:
        inputs = self.inputs
        scenario = Scenario(**dict(inputs.scenario))
        count = scenario.tp * scenario.pp * scenario.replicas
        price = prices.get(inputs.gpu.id)
        steps = inputs.steps
        return Deployment(
            gpu=inputs.gpu.id,
            gpu_name=inputs.gpu.name,
            gpus=count,
            tp=scenario.tp,
            pp=scenario.pp,
            weight_precision=scenario.weight_precision,
            kv_precision=scenario.kv_precision,
            requests=answer(scenario).concurrency * scenario.replicas,
            tpot_s=None if steps is None else steps.at(batch=wanted, context_tokens=scenario.context_tokens).typical_s,
            cents_per_hour=None if price is None else price * count,
            scenario=scenario,
        )


class _Bench:
    """Candidates of one search, with what they share kept."""

    def __init__(self, scenario: Scenario, spec: ModelSpec) -> None:
        total = scenario.target_requests or 1
        self.wanted = ceil_div(total, scenario.replicas)
        self._base = scenario.model_copy(
            update={"target_requests": total, "custom_gpu": None, "ep": 1, "dcp": 1, **dict.fromkeys(_MEASURED)}
        )
        self._spec = spec
        self._plans: dict[tuple[object, ...], _PlanFacts | None] = {}

    def candidates(self, space: Space) -> Iterator[_Found]:
        """Those that meet every target."""
        layouts = [layout for layout in space.layouts if self._is_allowed(*layout)]
        for name in space.gpus:
            gpu = catalogue.gpu(name)
            for weights_at, weights in enumerate(space.weight_precisions):
                for tp, pp in layouts:
                    if tp > gpu.max_gpus_per_node or self._is_too_heavy(gpu, weights, tp, pp):
                        continue
                    budget: Budget | None = None
                    for kv_at, kv in enumerate(space.kv_precisions):
                        update = {"gpu": gpu.id, "weight_precision": weights, "kv_precision": kv, "tp": tp, "pp": pp}
                        candidate = self._base.model_copy(update=update)
                        budget = budget_of(candidate, self._spec, gpu) if budget is None else budget
                        if budget.shortfall_bytes:
                            break
                        inputs = self._meets(candidate, gpu, budget)
                        if inputs is not None:
                            yield _Found(inputs, (weights_at, kv_at))

    def _is_allowed(self, tp: int, pp: int) -> bool:
        try:
            check_layout(self._spec, Parallelism(tp=tp, pp=pp))
        except KvcalcError:
            return False
        return True

    def _is_too_heavy(self, gpu: GpuSpec, precision: str, tp: int, pp: int) -> bool:
        """Whether the weights alone are more than the card: the cheapest question, asked first."""
        draft = self._base.speculative_tokens > 0
        return weight_bytes(self._spec, precision=precision, tp=tp, pp=pp, draft=draft) >= gpu.memory_bytes

    def _meets(self, candidate: Scenario, gpu: GpuSpec, budget: Budget) -> Inputs | None:
        """The candidate looked up, when it meets every target: the conditions of ``verdict_of``'s 'target_met'."""
        context, pool = candidate.context_tokens, budget.kv_pool_bytes
        facts = self._plan(candidate, budget)
        if facts is None or facts.limit_bytes > pool or facts.request_bytes > budget.kv_pool_low_bytes:
            return None
        if budget.max_num_seqs < self.wanted or facts.plan.requests_at(pool, context) < self.wanted:
            return None
        steps = steps_of(candidate, self._spec, gpu, facts.plan)
        target = candidate.target_tpot_ms
        if (
            steps is not None
            and target is not None
            and not steps.meets(batch=self.wanted, context_tokens=context, target_s=target / 1000)
        ):
            return None
        inputs = Inputs(candidate, self._spec, gpu, budget, facts.plan, steps)
        if candidate.target_ttft_ms is not None and not in_time(inputs, prompt_alone(inputs), requests=self.wanted):
            return None
        return inputs

    def _plan(self, candidate: Scenario, budget: Budget) -> _PlanFacts | None:
        key = (candidate.kv_precision, candidate.tp, candidate.pp, budget.max_num_batched_tokens)
        if key not in self._plans:
            self._plans[key] = self._planned(candidate, budget)
        return self._plans[key]

    def _planned(self, candidate: Scenario, budget: Budget) -> _PlanFacts | None:
        if candidate.context_tokens > candidate.max_model_len:
            return None
        try:
            plan = plan_of(candidate, self._spec, max_num_batched_tokens=budget.max_num_batched_tokens)
        except KvcalcError:
            return None
        return _PlanFacts(
            plan, plan.reserved_bytes(candidate.context_tokens), plan.needed_bytes(candidate.max_model_len)
        )


class _PlanFacts(NamedTuple):
    """An engine plan with what every card asks of it."""

    plan: Plan
    request_bytes: int
    limit_bytes: int
