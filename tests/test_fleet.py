"""Traffic to requests in flight to replicas to money."""

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcalc import evaluate
from kvcalc.fleet import fleet
from kvcalc.inputs import resolve
from tests.small_model import scenario


def traffic(per_hour, **fields):
    return fleet(scenario(requests_per_hour=per_hour, **fields))


def test_without_traffic_there_is_no_fleet():
    assert fleet(scenario()) is None


def test_requests_in_flight_are_arrivals_times_time_in_the_system():
    """Little's law, with the time in the system made of its parts."""
    found = traffic(36_000)
    assert found.time_in_system_s == pytest.approx(found.ttft_s + 1_000 * found.tpot_s)
    assert found.requests_in_flight == pytest.approx(36_000 / 3_600 * found.time_in_system_s)


def test_times_are_those_of_the_requests_in_flight():
    found = traffic(360_000, max_num_seqs=60)
    # a request holds its prompt and on average half its output: 7,000 + 500
    steps = resolve(scenario(busy=True)).steps
    step = steps.at(batch=found.in_flight_per_replica, context_tokens=7_500)
    assert found.tpot_s == step.typical_s
    each = found.requests_in_flight / found.serving_replicas
    assert each <= found.in_flight_per_replica
    # one fewer at once would not keep up: n < arrivals x stay(n)
    fewer = found.in_flight_per_replica - 1
    slower = steps.at(batch=fewer, context_tokens=7_500)
    assert fewer < 100 / found.serving_replicas * (found.ttft_s + 1_000 * slower.typical_s)


def test_a_replica_is_planned_for_its_share_of_what_fits():
    # floor(40 x 70 / 100) = 28
    found = traffic(3_600, max_num_seqs=40)
    assert (found.most_per_replica, found.planned_per_replica) == (40, 28)
    assert traffic(3_600, max_num_seqs=40, fleet_utilization_pct=100).planned_per_replica == 40
    assert traffic(3_600, max_num_seqs=1, fleet_utilization_pct=1).planned_per_replica == 1


def test_replicas_are_arrivals_over_what_one_finishes_and_a_spare():
    found = traffic(500_000, max_num_seqs=40)
    assert found.serving_replicas == math.ceil(500_000 / found.replica_requests_per_hour)
    assert found.replicas == found.gpus == found.serving_replicas + 1
    assert found.served_by(found.serving_replicas) >= 500_000 > found.served_by(found.serving_replicas - 1)
    assert found.utilization <= 0.70 + 1e-9


def test_a_replica_of_two_gpus_doubles_the_gpus():
    found = traffic(3_600, tp=2, max_num_seqs=40)
    assert found.gpus == 2 * found.replicas


def test_the_longest_requests_decide_how_many_fit():
    plain, tailed = traffic(3_600), traffic(3_600, prompt_tokens_p95=28_000, output_tokens_p95=4_000)
    assert tailed.lengths.context_p95 == 32_000
    assert plain.most_per_replica == evaluate(scenario(busy=True)).concurrency
    tail = evaluate(scenario(busy=True, prompt_tokens=28_000, output_tokens=4_000))
    assert tailed.most_per_replica == tail.concurrency < plain.most_per_replica


def test_a_tail_past_the_context_limit_is_an_answer():
    found = traffic(3_600, prompt_tokens_p95=100_000)
    assert (found.fits, found.replicas, found.cost) == (False, 0, None)
    assert found.sentence.startswith("No fleet: a request of the 95th percentile does not run. Not possible")


def test_targets_bound_a_replica():
    assert traffic(3_600, target_tpot_ms=5).most_per_replica < traffic(3_600).most_per_replica


@given(low=st.integers(1, 10**6), high=st.integers(1, 10**6))
@settings(max_examples=25, deadline=None)
def test_more_traffic_never_needs_fewer_replicas(low, high):
    low, high = sorted((low, high))
    assert traffic(low, max_num_seqs=20).replicas <= traffic(high, max_num_seqs=20).replicas


# Money.


def test_no_price_no_cost():
    found = traffic(3_600)
    assert found.cost is None
    assert "$" not in found.sentence


def test_money_is_price_times_gpus_over_requests_and_tokens():
    """2 GPUs at $2.50: 500 cents an hour; 3,600 requests of 8,000 tokens are 28,800,000 tokens."""
    found = traffic(3_600, price_cents_per_gpu_hour=250)
    assert found.gpus == 2
    assert found.cost.cents_per_hour == 500
    assert found.cost.cents_per_request == Fraction(500, 3_600)
    assert found.cost.cents_per_million_tokens == Fraction(500 * 10**6, 28_800_000)
    assert found.sentence.endswith("At the price you typed that is $5.00 per hour and $0.00139 per request.")


def test_input_and_output_together_cost_what_the_fleet_costs():
    cost = traffic(36_000, price_cents_per_gpu_hour=200).cost
    millions_in, millions_out = Fraction(36_000 * 7_000, 10**6), Fraction(36_000 * 1_000, 10**6)
    total = cost.cents_per_million_input * millions_in + cost.cents_per_million_output * millions_out
    assert total == cost.cents_per_hour
    assert cost.cents_per_million_output > cost.cents_per_million_input


def test_twice_the_price_is_twice_the_cost():
    once, twice = (traffic(9_999, price_cents_per_gpu_hour=price).cost for price in (199, 398))
    assert twice.cents_per_request == 2 * once.cents_per_request
    assert twice.cents_per_million_input == 2 * once.cents_per_million_input


def test_requests_without_output_cost_their_input():
    cost = traffic(3_600, output_tokens=0, price_cents_per_gpu_hour=100).cost
    assert cost.cents_per_million_output is None
    assert cost.cents_per_million_input == cost.cents_per_million_tokens


def test_a_tail_pulls_up_the_mean_and_the_cost_of_a_request():
    plain = traffic(36_000, price_cents_per_gpu_hour=100)
    tailed = traffic(36_000, price_cents_per_gpu_hour=100, prompt_tokens_p95=28_000)
    assert tailed.lengths.prompt_mean > plain.lengths.prompt_mean == 7_000
    assert tailed.cost.cents_per_request >= plain.cost.cents_per_request
    assert {"mean length"} <= {row.field for row in tailed.assumptions}
