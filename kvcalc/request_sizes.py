"""One request's ideal KV: on the busiest GPU, over the replica, and per token."""

from __future__ import annotations

from typing import NamedTuple

from kvcalc.cache import kv_bytes_per_sequence
from kvcalc.model_spec import ModelSpec
from kvcalc.scenario import Scenario


class RequestSizes(NamedTuple):
    """One request's ideal KV, in bytes."""

    ideal_per_gpu: int
    """On the busiest GPU. [bytes/GPU]"""
    whole: int
    """Over the replica, repeats included. [bytes]"""
    distinct: int
    """Over the replica, without repeats. [bytes]"""
    per_token: int
    """One more token at this context, without repeats. [bytes]"""
    fixed: int
    """Whatever the length, without repeats. [bytes]"""


def request_sizes(scenario: Scenario, spec: ModelSpec) -> RequestSizes:
    """Sizes at the scenario's context."""

    def ideal(context_tokens: int, *, tp: int = 1, pp: int = 1, dcp: int = 1) -> int:
        return kv_bytes_per_sequence(
            spec,
            context_tokens=context_tokens,
            kv_precision=scenario.kv_precision,
            state_precision=scenario.state_precision,
            tp=tp,
            pp=pp,
            dcp=dcp,
        )

    context = scenario.context_tokens
    distinct = ideal(context)
    rank = ideal(context, tp=scenario.tp, dcp=scenario.dcp) if scenario.tp > 1 else distinct
    return RequestSizes(
        ideal_per_gpu=ideal(context, tp=scenario.tp, pp=scenario.pp, dcp=scenario.dcp) if scenario.pp > 1 else rank,
        # Stages hold different layers, ranks repeat heads: the whole is one stage-less rank times the ranks.
        whole=rank * scenario.tp,
        distinct=distinct,
        per_token=distinct - ideal(context - 1),
        fixed=ideal(0),
    )
