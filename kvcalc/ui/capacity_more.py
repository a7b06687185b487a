"""Further answers of the Capacity page: output per second, long conversations, traffic and cost, other deployments.

Each is folded and made when it is opened; traffic stands open once there is some.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import streamlit as st

from kvcalc.errors import KvcalcError
from kvcalc.fleet import Cost, Fleet
from kvcalc.other_deployments import OtherDeployments
from kvcalc.report import Report
from kvcalc.scenario import Scenario
from kvcalc.speed_curves import ConversationCurve, ThroughputCurve
from kvcalc.ui import capacity_tables, frame, inputs, options, results, state, tables, text, wording
from kvcalc.ui.tables import Cell, table
from kvcalc.units import fmt_cents, fmt_count, fmt_ms, fmt_percent, fmt_seconds, fmt_tokens

_THOUSAND = 1_000


def draw(report: Report, problem: KvcalcError | None) -> None:
    """Traffic and cost where traffic was typed, then everything that opens."""
    shows_traffic = report.scenario.requests_per_hour is not None
    if shows_traffic and not (problem is not None and problem.field in inputs.TRAFFIC):
        st.subheader("Traffic and cost" if report.scenario.price_cents_per_gpu_hour else "Traffic", anchor=False)
        _traffic(report)
    st.subheader("Further answers", anchor=False)
    with st.container(gap="xsmall"):
        if report.tpot is not None:
            _fold("Output per second, as requests are added", "output", lambda: _output(report))
            _fold("Time per token, as conversations grow", "conversations", lambda: _conversations(report))
        if not shows_traffic:
            _fold("Replicas for your traffic", "fleet", lambda: _no_traffic(report.scenario))
        _fold("Other deployments that would do", "deployments", lambda: _deployments(report))


def _fold(title: str, name: str, show: Callable[[], None]) -> None:
    box = st.expander(title, key=f"fold_{name}", on_change="rerun")
    if box.open:
        with box:
            show()


def _small(words: str) -> None:
    st.markdown(f":small[:gray[{text.markdown(words)}]]")


def _output(report: Report) -> None:
    from kvcalc.ui import chart_output

    curve = results.throughput_curve(report.scenario)
    if curve is None:
        _small("Nothing runs, so there is no output.")
        return
    with st.container(gap="xxsmall"):
        st.vega_lite_chart(spec=chart_output.spec(curve, report), width="stretch", alt=_output_alt(curve))
        _small(curve.sentence)
        capacity_tables.numbers("output", lambda: _output_table(curve))


def _output_alt(curve: ThroughputCurve) -> str:
    first, last = curve.points[0], curve.points[-1]
    return (
        f"Typical output grows from {fmt_count(round(first.tokens_per_s))} tokens per second at "
        f"{fmt_count(first.requests)} to {fmt_count(round(last.tokens_per_s))} at {fmt_count(last.requests)} requests "
        f"at once. {curve.sentence}"
    )


def _output_table(curve: ThroughputCurve) -> None:
    rows = [
        (
            fmt_count(point.requests),
            fmt_count(round(point.tokens_per_s)),
            fmt_count(round(point.floor_tokens_per_s)),
            wording.NONE if point.compute_share is None else fmt_percent(point.compute_share),
        )
        for point in curve.points
    ]
    header = ("Requests", "Typical tokens/s", "At the floor", "Compute used")
    table("Output per second", header, rows, right=(0, 1, 2, 3))


def _conversations(report: Report) -> None:
    from kvcalc.ui import chart_tpot

    curve = results.conversation_curve(report.scenario)
    if curve is None or not any(point.fits for point in curve.points):
        _small("Nothing runs, so no token is timed.")
        return
    spec = chart_tpot.by_length(curve, report, results.crossover(report.scenario))
    with st.container(gap="xxsmall"):
        st.vega_lite_chart(spec=spec, width="stretch", alt=curve.sentence)
        grows = fmt_ms(curve.growth_s_per_1000_tokens, 1)
        _small(f"{curve.sentence} Around your context, 1,000 more tokens in each add {grows} to every token.")
        capacity_tables.numbers("conversations", lambda: _conversation_table(curve))


def _conversation_table(curve: ConversationCurve) -> None:
    rows = [
        (
            fmt_tokens(point.context_tokens),
            fmt_ms(point.weights_s, 1),
            fmt_ms(point.kv_s, 1),
            *(fmt_ms(seconds, 1) for seconds in (point.low_s, point.typical_s, point.high_s)),
        )
        for point in curve.points
        if point.fits
    ]
    header = ("Tokens", "Weights", "KV", "Fast end", "Typical", "Slow end")
    table("Time per token as conversations grow", header, rows, right=(0, 1, 2, 3, 4, 5))


def _no_traffic(scenario: Scenario) -> None:
    one = results.fleet_of_one(scenario)
    use = fmt_percent(scenario.fleet_utilization_pct / 100)
    if one is None or not one.fits:
        _small(_NO_BANDWIDTH if one is None else one.sentence)
        return
    finishes = fmt_count(int(one.replica_requests_per_hour))
    _small(
        f"One replica finishes about {finishes} requests per hour at a planned use of {use}. "
        "Type your requests per hour in the sidebar, under Traffic and price."
    )


_NO_BANDWIDTH = "How long a request stays is not known without the bandwidth of the GPU."


def _traffic(report: Report) -> None:
    found = results.fleet(report.scenario)
    if found is None or not found.fits:
        _small(_NO_BANDWIDTH if found is None else found.sentence)
        return
    _small(found.sentence)
    with frame.figures(3):
        _fleet_figures(report.scenario, found)
        if found.cost is not None:
            _cost_figures(found.cost, found)
    tables.remarks((), found.assumptions)


def _fleet_figures(scenario: Scenario, found: Fleet) -> None:
    each, stays = fmt_count(found.in_flight_per_replica), fmt_seconds(found.time_in_system_s)
    note = f"{each} on a replica, each for {stays}"
    frame.figure("Requests in flight", "requests_in_flight", fmt_count(math.ceil(found.requests_in_flight)), note)
    note = f"{fmt_count(found.serving_replicas)} serve, 1 spare; {fmt_count(found.gpus)} GPUs"
    frame.figure("Replicas", "replicas", fmt_count(found.replicas), note)
    note = f"of {fmt_count(found.most_per_replica)} on a replica; {scenario.fleet_utilization_pct}% planned"
    frame.figure("In use", "fleet_utilization_pct", fmt_percent(found.utilization), note)


def _cost_figures(cost: Cost, found: Fleet) -> None:
    hour = fmt_cents(cost.cents_per_hour)
    note = f"{fmt_cents(cost.cents_per_request)} each; {hour} per hour"
    frame.figure("1,000 requests", "price_cents_per_gpu_hour", fmt_cents(cost.cents_per_request * _THOUSAND), note)
    for label, tokens, cents in (
        ("Million input tokens", found.lengths.prompt_mean, cost.cents_per_million_input),
        ("Million output tokens", found.lengths.output_mean, cost.cents_per_million_output),
    ):
        value = wording.NONE if cents is None else fmt_cents(cents)
        frame.figure(label, None, value, f"{fmt_tokens(tokens)} in a mean request")


def _deployments(report: Report) -> None:
    same = st.checkbox("Keep weights and KV cache as they are stored now", key="deployments_same_precision")
    try:
        found = results.other_deployments(report.scenario, same_precision=same)
    except KvcalcError as problem:
        _small(str(problem))
        return
    tried = f"{fmt_count(found.considered)} combinations of GPU, layout, weights and KV format"
    if not found.rows:
        _small(f"None of {tried} runs {found.wish}. Ask for fewer requests, a shorter context or a slower target.")
        return
    _small(_searched(report, found, tried))
    _deployment_table(report.scenario, found)


def _searched(report: Report, found: OtherDeployments, tried: str) -> str:
    own = report.scenario.target_requests is None and report.total_concurrency
    asked = ", which is what this deployment runs" if own else ""
    order = "the GPU you priced first, then fewest GPUs" if found.by_price else "fewest GPUs first"
    return (
        f"Of {tried}, {fmt_count(found.met)} run {found.wish}{asked}. "
        f"Shown is the smallest on each GPU, {order}. Each opens as a scenario."
    )


def _deployment_table(scenario: Scenario, found: OtherDeployments) -> None:
    weights, kv = options.weight_labels(), options.kv_labels()
    rows = []
    for row in found.rows:
        now = row.scenario == scenario
        name = f"{fmt_count(row.gpus)} × {row.gpu_name}" + (f", TP {row.tp}, PP {row.pp}" if row.pp > 1 else "")
        cells: list[str | Cell] = [
            Cell(f"{name} (as now)" if now else name, href=state.href(row.scenario), bold=now),
            f"{weights[row.weight_precision]}, {kv[row.kv_precision]}",
            fmt_count(row.requests),
            wording.NONE if row.tpot_s is None else fmt_ms(row.tpot_s),
        ]
        if found.by_price:
            cells.append(wording.NONE if row.cents_per_hour is None else fmt_cents(row.cents_per_hour))
        rows.append(cells)
    header = ("Deployment", "Weights, KV", "Requests", "Per token", "Per hour")
    shown = header if found.by_price else header[:-1]
    table("Other deployments that would do", shown, rows, right=(2, 3, 4))
