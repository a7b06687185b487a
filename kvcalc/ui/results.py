"""Reports and curves for the page, kept a while: a rerun that only opens a box computes nothing.

All of these records are frozen, so that sessions may share them.
"""

from __future__ import annotations

from functools import lru_cache

from kvcalc import crossover as edges
from kvcalc import curves, explain, levers, speed_curves
from kvcalc import fleet as fleets
from kvcalc import mistakes as slips
from kvcalc import other_deployments as search
from kvcalc.alternatives import DocumentPage, document_page
from kvcalc.crossover import Crossover
from kvcalc.curves import ContextCurve, TpotCurve
from kvcalc.document_size import DocumentQuestion
from kvcalc.evaluation import evaluate
from kvcalc.explain import Section
from kvcalc.fleet import Fleet
from kvcalc.levers import Move
from kvcalc.mistakes import Mistake
from kvcalc.other_deployments import OtherDeployments
from kvcalc.report import Report
from kvcalc.scenario import Scenario
from kvcalc.speed_curves import ConversationCurve, ThroughputCurve

_KEPT = 64


@lru_cache(maxsize=_KEPT)
def report(scenario: Scenario) -> Report:
    """The scenario's report. Raises KvcalcError."""
    return evaluate(scenario)


@lru_cache(maxsize=_KEPT)
def context_curve(scenario: Scenario) -> ContextCurve:
    """Requests against context. Raises KvcalcError."""
    return curves.context_curve(report(scenario))


@lru_cache(maxsize=_KEPT)
def tpot_curve(scenario: Scenario) -> TpotCurve:
    """Time per token against requests. Raises KvcalcError."""
    return curves.tpot_curve(report(scenario))


@lru_cache(maxsize=_KEPT)
def best_moves(scenario: Scenario) -> tuple[Move, ...]:
    """The three moves that bring most. Raises KvcalcError."""
    return levers.best_moves(report(scenario))


@lru_cache(maxsize=_KEPT)
def arithmetic(scenario: Scenario) -> tuple[Section, ...]:
    """The steps behind each figure. Raises KvcalcError."""
    return explain.steps(report(scenario))


@lru_cache(maxsize=_KEPT)
def crossover(scenario: Scenario) -> Crossover | None:
    """Where KV traffic overtakes weight traffic. Raises KvcalcError."""
    return edges.crossover(report(scenario))


def without_prefix(scenario: Scenario) -> Report | None:
    """The report of the scenario without its shared prefix; None when it has none. Raises KvcalcError."""
    if not scenario.cached_prompt_tokens:
        return None
    return report(scenario.model_copy(update={"cached_prompt_tokens": 0}))


@lru_cache(maxsize=_KEPT)
def throughput_curve(scenario: Scenario) -> ThroughputCurve | None:
    """Output against requests. Raises KvcalcError."""
    return speed_curves.throughput_curve(report(scenario))


@lru_cache(maxsize=_KEPT)
def conversation_curve(scenario: Scenario) -> ConversationCurve | None:
    """Time per token against the length of every conversation. Raises KvcalcError."""
    return speed_curves.conversation_curve(report(scenario))


@lru_cache(maxsize=_KEPT)
def fleet(scenario: Scenario) -> Fleet | None:
    """Replicas and cost for the scenario's traffic. Raises KvcalcError."""
    return fleets.fleet(scenario)


def fleet_of_one(scenario: Scenario) -> Fleet | None:
    """The fleet for next to no traffic: it says what one replica finishes. Raises KvcalcError."""
    return fleet(scenario.model_copy(update={"requests_per_hour": 1}))


@lru_cache(maxsize=_KEPT)
def other_deployments(scenario: Scenario, *, same_precision: bool) -> OtherDeployments:
    """What else would do. Raises KvcalcError."""
    return search.other_deployments(report(scenario), same_precision=same_precision)


@lru_cache(maxsize=_KEPT)
def document(scenario: Scenario, question: DocumentQuestion) -> DocumentPage:
    """The document question answered. Raises KvcalcError."""
    return document_page(scenario, question)


@lru_cache(maxsize=_KEPT)
def mistakes(scenario: Scenario) -> tuple[Mistake, ...]:
    """Likely mistakes of the scenario. Raises KvcalcError."""
    return slips.mistakes(report(scenario))
