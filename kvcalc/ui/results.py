"""Reports and curves for the page, kept a while: a rerun that only opens a box computes nothing.

All of these records are frozen, so that sessions may share them.
"""

from __future__ import annotations

from functools import lru_cache

from kvcalc import curves, explain, levers
from kvcalc.curves import ContextCurve, TpotCurve
from kvcalc.evaluation import evaluate
from kvcalc.explain import Section
from kvcalc.levers import Move
from kvcalc.report import Report
from kvcalc.scenario import Scenario

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
