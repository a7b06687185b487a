"""What a person measured in a scenario, and which change of another field makes it untrue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvcalc.scenario import Scenario

_MODEL = frozenset(("model", "model_facts", "attention"))
_SHAPE = _MODEL | {"weight_precision", "tp", "pp", "ep"}
_ENGINE = frozenset(("engine", "engine_version"))
_STEP = frozenset(("max_num_seqs", "max_num_batched_tokens", "chunked_prefill", "images"))
_CARD = frozenset(("gpu", "custom_gpu"))

DECIDED_BY: Mapping[str, frozenset[str]] = {
    "weights_mib": _SHAPE,
    "non_torch_mib": _CARD | _ENGINE | {"tp", "pp", "ep"},
    "activations_mib": _SHAPE | _ENGINE | _STEP,
    "cuda_graphs_mib": _SHAPE | _ENGINE | {"max_num_seqs", "enforce_eager", "speculative_tokens"},
    "kv_pool_mib": _CARD | _SHAPE | _ENGINE | _STEP | {"utilization_pct", "enforce_eager", "speculative_tokens"},
}
"""Each measured figure, with the fields it was measured under."""


def changed(scenario: Scenario, update: Mapping[str, Any]) -> Scenario:
    """The scenario with fields replaced. A measured figure that the change makes untrue is estimated again.

    Raises KvcalcError when the fields do not go together.
    """
    fields = dict(scenario)
    moved = {name for name, value in update.items() if fields.get(name) != value}
    stale = {name: None for name, decides in DECIDED_BY.items() if moved & decides}
    return Scenario(**{**fields, **stale, **update})
