"""The deployment search as a report asks it: what else would do what this deployment does, or what was wished for."""

from __future__ import annotations

from kvcalc import deployment_search
from kvcalc.deployment_search import Deployment, space_for
from kvcalc.errors import Record
from kvcalc.report import Report
from kvcalc.scenario import CUSTOM, Scenario
from kvcalc.units import fmt_count, fmt_seconds, fmt_tokens


class OtherDeployments(Record):
    """The best deployment on each GPU that meets a wish."""

    considered: int
    """Combinations looked at. [candidates]"""
    met: int
    """Of them, those that meet the wish. [candidates]"""
    wish: str
    """The wish in words: requests, context and targets."""
    by_price: bool
    """Whether the ones with a price come first, cheapest first; else fewest GPUs come first."""
    rows: tuple[Deployment, ...]
    """One for each GPU, best first. Their scenarios keep what the user wished, and nothing they did not."""


def other_deployments(report: Report, *, same_precision: bool = False, most: int = 20) -> OtherDeployments:
    """What would run the requests the user wants, else those the report runs, else one, within the targets.

    Parameters
    ----------
    same_precision : keep the scenario's weight and KV formats; else smaller ones are tried too.
    most : rows to return. [rows]

    Raises
    ------
    KvcalcError    a context past the model's limit.
    """
    scenario = report.scenario
    wanted = scenario.target_requests or max(report.total_concurrency, 1)
    space = space_for(scenario)
    if same_precision:
        formats = {"weight_precisions": (scenario.weight_precision,), "kv_precisions": (scenario.kv_precision,)}
        space = space.model_copy(update=formats)
    price = scenario.price_cents_per_gpu_hour
    priced = {} if price is None or scenario.gpu == CUSTOM else {report.gpu.id: price}
    found = deployment_search.search(
        scenario.model_copy(update={"target_requests": wanted}),
        space=space,
        cents_per_gpu_hour=priced,
        most=most,
        per_gpu=1,
    )
    return OtherDeployments(
        considered=found.considered,
        met=found.met,
        wish=_wish(scenario, wanted),
        by_price=bool(priced),
        rows=tuple(_with_own_target(row, scenario) for row in found.rows),
    )


def _with_own_target(row: Deployment, scenario: Scenario) -> Deployment:
    kept = row.scenario.model_copy(update={"target_requests": scenario.target_requests})
    return row.model_copy(update={"scenario": kept})


def _wish(scenario: Scenario, wanted: int) -> str:
    count = "1 request" if wanted == 1 else f"{fmt_count(wanted)} requests at once"
    text = f"{count} of {fmt_tokens(scenario.context_tokens)} tokens"
    limits = []
    if scenario.target_tpot_ms is not None:
        limits.append(f"{fmt_count(scenario.target_tpot_ms)} ms per token")
    if scenario.target_ttft_ms is not None:
        limits.append(f"{fmt_seconds(scenario.target_ttft_ms / 1000)} to the first token")
    return f"{text} within {' and '.join(limits)}" if limits else text
