"""The smallest layout that gives a useful answer, for a scenario that names none."""

from __future__ import annotations

from kvcalc.budget import memory_budget
from kvcalc.cache import check_layout, kv_bytes_per_sequence
from kvcalc.errors import ScenarioError
from kvcalc.hardware import GpuSpec
from kvcalc.model_spec import ModelSpec
from kvcalc.parallelism import Parallelism

_LAYOUTS = ((1, 1), (2, 1), (4, 1), (8, 1), (8, 2), (8, 4))
"""(tp, pp) as people deploy them: one node by tensor parallelism, then whole nodes as pipeline stages."""
_USEFUL_REQUESTS = 8
"""Requests a filled-in layout should hold, so that the first answer is not 'barely'."""


def choose_layout(
    spec: ModelSpec,
    *,
    gpu: GpuSpec,
    engine: str,
    engine_version: str | None,
    weight_precision: str,
    kv_precision: str,
    utilization_pct: int | None,
    context_tokens: int,
) -> tuple[int, int]:
    """(tp, pp): the fewest GPUs that hold the weights and eight requests of this context.

    When none does, the largest layout this model allows: the report then says that it does not fit.
    """
    allowed = (1, 1)
    for tp, pp in _LAYOUTS:
        try:
            check_layout(spec, Parallelism(tp=tp, pp=pp))
        except ScenarioError:
            continue
        allowed = (tp, pp)
        pool = memory_budget(
            spec,
            gpu=gpu,
            engine=engine,
            engine_version=engine_version,
            weight_precision=weight_precision,
            tp=tp,
            pp=pp,
            utilization_pct=utilization_pct,
        ).kv_pool_bytes
        each = kv_bytes_per_sequence(spec, context_tokens=context_tokens, kv_precision=kv_precision, tp=tp, pp=pp)
        if pool >= _USEFUL_REQUESTS * each and pool:
            return tp, pp
    return allowed
