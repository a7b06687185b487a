"""Where KV traffic overtakes weight traffic, in context and in requests."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcalc import Scenario, evaluate
from kvcalc.catalogue import model_presets
from kvcalc.crossover import crossover, crossover_of
from kvcalc.inputs import resolve
from kvcalc.speed_curves import conversation_curve, throughput_curve
from tests.small_model import KV_BYTES, READ_BYTES, scenario

STEPS = resolve(scenario()).steps


@pytest.mark.parametrize(
    ("requests", "edge"),
    [(1, 2_811), (8, 351)],  # 11,514,880 / 4,096 = 2,811.25;  / (8 x 4,096) = 351.4
)
def test_the_edge_in_context_is_weights_over_requests_times_kv_of_a_token(requests, edge):
    assert edge == READ_BYTES // (requests * KV_BYTES)
    assert crossover_of(STEPS, requests=requests, context_tokens=1).edge_context_tokens == edge


@pytest.mark.parametrize(("context", "edge"), [(1_000, 2), (2_811, 1), (2_812, 0)])
def test_the_edge_in_requests_is_weights_over_kv_of_a_request(context, edge):
    assert edge == READ_BYTES // (context * KV_BYTES)
    assert crossover_of(STEPS, requests=1, context_tokens=context).edge_requests == edge


def test_the_sentence_names_both_edges():
    assert crossover_of(STEPS, requests=8, context_tokens=1_000).sentence == (
        "Past 351 tokens at 8 requests the cache costs more bandwidth than the weights; "
        "at 1,000 tokens each, past 2 requests."
    )


def test_an_edge_past_what_fits_is_not_offered():
    found = crossover_of(STEPS, requests=1, context_tokens=100, longest_tokens=2_811)
    assert found.sentence == "At 1 request the weights cost more bandwidth than the cache at every context that fits."


def test_the_share_of_kv_at_the_edge_is_half():
    found = crossover_of(STEPS, requests=1, context_tokens=2_811)
    assert found.kv_share == pytest.approx(2_811 * KV_BYTES / (2_811 * KV_BYTES + READ_BYTES))


@pytest.mark.parametrize("name", [row.id for row in model_presets()][::12])
def test_one_token_or_one_request_past_an_edge_kv_costs_more(name):
    report = evaluate(Scenario(model=name))
    found = crossover(report)
    if found is None:
        return
    steps = resolve(report.scenario).steps
    weights = steps.weight_bytes(found.requests)
    if found.edge_context_tokens is not None:
        assert found.requests * steps.kv_bytes(found.edge_context_tokens + 1) > weights
        if found.edge_context_tokens >= 0:
            assert found.requests * steps.kv_bytes(found.edge_context_tokens) <= weights
    if found.edge_requests is not None:
        each, edge = steps.kv_bytes(found.context_tokens), found.edge_requests
        assert (edge + 1) * each > steps.weight_bytes(edge + 1)
        assert edge < 1 or edge * each <= steps.weight_bytes(edge)


def test_nothing_that_runs_no_crossover():
    report = evaluate(Scenario(model="meta-llama/Llama-3.3-70B-Instruct", tp=1, pp=1))
    assert not report.fits
    assert crossover(report) is None
    assert conversation_curve(report) is None
    assert throughput_curve(report) is None


# Conversation length and throughput.


def test_a_thousand_more_tokens_add_their_bytes_over_the_bandwidth_reached():
    # 1,000 tokens x 4,096 B x requests / (1e12 B/s x efficiency)
    report = evaluate(scenario(target_requests=None, max_num_seqs=10))
    curve = conversation_curve(report)
    efficiency = report.tpot.bandwidth_efficiency
    assert curve.requests == 10
    assert curve.growth_s_per_1000_tokens == pytest.approx(10 * 1_000 * KV_BYTES / (1e12 * efficiency))


def test_time_per_token_never_falls_as_conversations_grow():
    report = evaluate(scenario())
    curve = conversation_curve(report)
    times = [point.typical_s for point in curve.points]
    assert times == sorted(times)
    assert [point.context_tokens for point in curve.points][:3] == [1_000, 2_000, 4_000]
    assert curve.points[-1].context_tokens == 65_536


def test_the_pool_decides_which_lengths_still_fit():
    report = evaluate(scenario())
    points = {point.context_tokens: point.fits for point in conversation_curve(report).points}
    assert points[8_000] is True
    assert points[65_536] is False


def test_a_curve_of_conversations_names_the_longest_length_all_of_them_fit_at():
    inputs = resolve(scenario(target_requests=200))
    curve = conversation_curve(evaluate(inputs.scenario))
    assert curve.requests == 200
    pool, longest = inputs.budget.kv_pool_bytes, curve.longest_tokens
    assert inputs.plan.requests_at(pool, longest) >= 200 > inputs.plan.requests_at(pool, longest + 1)
    assert [point.context_tokens for point in curve.points if point.fits][-1] == longest
    assert f"at {longest:,}; past that the KV pool is full" in curve.sentence


def test_a_batch_that_fits_at_the_context_limit_is_drawn_to_it():
    curve = conversation_curve(evaluate(scenario(target_requests=1)))
    assert (curve.requests, curve.longest_tokens) == (1, 65_536)
    assert "past that" not in curve.sentence


@pytest.mark.parametrize(("wanted", "replicas", "held"), [(10, 1, 10), (10, 3, 4), (10**6, 1, 12)])
def test_the_batch_held_still_is_the_one_wanted_of_a_replica_as_far_as_it_runs(wanted, replicas, held):
    # 10 requests over 3 replicas are 4 on the fullest; a million are no more than the cap of 12
    curve = conversation_curve(evaluate(scenario(target_requests=wanted, replicas=replicas, max_num_seqs=12)))
    assert curve.requests == held


def test_output_stops_growing_where_the_pool_is_full():
    report = evaluate(scenario(max_num_seqs=100_000))
    curve = throughput_curve(report)
    assert curve.stops_at_requests == report.capacities.reserved_requests
    assert curve.memory_stops_it
    rates = [point.tokens_per_s for point in curve.points]
    assert rates == sorted(rates)
    assert "where the KV pool is full" in curve.sentence


def test_an_engine_cap_below_the_pool_stops_it_first():
    curve = throughput_curve(evaluate(scenario(max_num_seqs=4)))
    assert (curve.stops_at_requests, curve.memory_stops_it) == (4, False)
    assert "where the engine's cap is reached" in curve.sentence


def test_the_compute_share_of_a_step_is_its_arithmetic_over_the_peak():
    # one token: 2 x (2 layers x 4 x 512 x 512 + 2 x 3 x 512 x 1,024 + norms) + head 2 x 512,000,
    # and 2 layers x 2 x 4 heads x 256 per token in cache
    report = evaluate(scenario(max_num_seqs=1))
    point = throughput_curve(report).points[0]
    norms = 2 * 2 * 512 + 512
    work = 2 * (2 * (4 * 512 * 512 + 3 * 512 * 1024) + norms) + 2 * 512_000 + 2 * 2 * 4 * 256 * 8_000
    assert point.compute_share == pytest.approx(work / (1e14 * report.tpot.typical_s))


@given(requests=st.integers(1, 500), context=st.integers(1, 60_000))
def test_kv_costs_more_exactly_past_the_edge(requests, context):
    found = crossover_of(STEPS, requests=requests, context_tokens=context)
    assert (context > found.edge_context_tokens) == (requests > found.edge_requests) == (found.kv_share > 0.5)
