"""Time to the first token, alone and on a busy replica, and the limits that targets set."""

import pytest

from kvcalc import evaluate
from kvcalc.first_token import prompt_alone
from kvcalc.inputs import resolve
from kvcalc.latency import prefill_time
from tests.small_model import READ_BYTES, scenario


def limits(report):
    return {limit.name: limit.requests for limit in report.limits}


def test_a_prompt_in_chunks_reads_the_weights_once_per_step():
    """10 tokens in chunks of 4 are 3 steps; so few tokens are bound by reading, so the fast end is 3 reads."""
    inputs = resolve(scenario())
    found = prefill_time(inputs.spec, gpu=inputs.gpu, prompt_tokens=10, chunk_tokens=4)
    assert found.low_s == pytest.approx(3 * READ_BYTES / 1e12)
    assert prefill_time(inputs.spec, gpu=inputs.gpu, prompt_tokens=10).low_s == pytest.approx(READ_BYTES / 1e12)


@pytest.mark.parametrize(("chunk", "steps"), [(3_500, 2), (3_499, 3), (7_000, 1)])
def test_each_step_of_a_chunked_prompt_pays_its_launches(chunk, steps):
    inputs = resolve(scenario(max_num_batched_tokens=chunk))
    whole = resolve(scenario(max_num_batched_tokens=chunk, chunked_prefill=False))
    launches = inputs.steps.overhead_s
    assert prompt_alone(inputs).typical_s - prompt_alone(whole).typical_s == pytest.approx((steps - 1) * launches)


def test_on_an_idle_replica_a_met_target_is_no_limit_and_a_missed_one_admits_none():
    alone = evaluate(scenario()).ttft.typical_s
    over, under = int(alone * 1000) + 1, int(alone * 1000)
    assert under >= 1
    assert "first_token_target" not in limits(evaluate(scenario(target_ttft_ms=over)))
    missed = evaluate(scenario(target_ttft_ms=under))
    assert limits(missed)["first_token_target"] == 0
    assert (missed.verdict, missed.binding_limit, missed.concurrency) == ("too_slow", "first_token_target", 0)
    assert missed.sentence.startswith("Too slow: the first token alone takes ")


def test_a_busy_replica_adds_decoding_and_a_queue_to_the_prefill():
    report = evaluate(scenario(busy=True, max_num_seqs=10))
    found = report.first_token
    assert found.requests == report.concurrency == 10
    assert found.prefill_s == report.ttft.typical_s
    assert found.typical_s == pytest.approx(found.prefill_s + found.decode_s + found.queue_s)
    # 7,000 tokens beside 9 that decode: ceil(7,000 / (batch - 9)) steps of the nine others without their prompts
    room = report.budget.max_num_batched_tokens - 9
    nine = resolve(scenario(busy=True)).steps.at(batch=9, context_tokens=8_000)
    assert found.decode_s == pytest.approx(-(-7_000 // room) * (nine.typical_s - nine.prefill_mix_s))
    # M/D/1: rho x service / 2 (1 - rho)
    rho = nine.prefill_mix_s / nine.typical_s
    assert found.queue_s == pytest.approx(rho * found.prefill_s / (2 * (1 - rho)))


def test_one_request_alone_waits_for_nobody():
    found = evaluate(scenario(busy=True, max_num_seqs=1)).first_token
    assert found.decode_s == found.queue_s == 0


def test_idle_replicas_report_the_prompt_alone_and_say_so():
    report = evaluate(scenario())
    assert report.first_token is None
    assert "first token" in {row.field for row in report.assumptions}
    assert "first token" not in {row.field for row in evaluate(scenario(busy=True)).assumptions}


def test_the_first_token_limit_is_the_edge_of_the_target():
    free = evaluate(scenario(busy=True, max_num_seqs=200))
    target = int(free.first_token.typical_s * 1000)  # just missed by all of them together
    report = evaluate(scenario(busy=True, max_num_seqs=200, target_ttft_ms=target))
    edge = limits(report)["first_token_target"]
    assert (report.verdict, report.binding_limit) == ("too_slow", "first_token_target")
    assert report.concurrency == edge < 200
    assert report.first_token.typical_s * 1000 <= target
    one_more = evaluate(scenario(busy=True, max_num_seqs=edge + 1))
    assert one_more.first_token.typical_s * 1000 > target
    assert f"only {edge} get a first token within" in report.sentence


def test_busy_decode_steps_are_slower_and_admit_fewer():
    idle = evaluate(scenario(max_num_seqs=200, target_tpot_ms=5))
    busy = evaluate(scenario(max_num_seqs=200, target_tpot_ms=5, busy=True))
    assert busy.tpot.prefill_mix_s > 0 == idle.tpot.prefill_mix_s
    assert limits(busy)["speed_target"] < limits(idle)["speed_target"]


def test_a_cached_prefix_is_not_mixed_into_the_steps_of_others():
    # 6,992 of 7,000 tokens are spared, so 8 are mixed in: 1/875 of the time
    cold = evaluate(scenario(busy=True, max_num_seqs=10)).tpot.prefill_mix_s
    warm = evaluate(scenario(busy=True, max_num_seqs=10, cached_prompt_tokens=7_000)).tpot.prefill_mix_s
    assert warm == pytest.approx(cold * 8 / 7_000)


# Wanted requests.


def test_a_time_target_that_still_admits_what_is_wanted_is_no_fault():
    free = evaluate(scenario(target_tpot_ms=5))
    admits = limits(free)["speed_target"]
    assert free.verdict == "too_slow"
    met = evaluate(scenario(target_tpot_ms=5, target_requests=admits))
    missed = evaluate(scenario(target_tpot_ms=5, target_requests=admits + 1))
    assert (met.verdict, met.binding_limit) == ("target_met", "speed_target")
    assert missed.verdict == "too_slow"


def test_requests_past_capacity_wait_and_the_ratio_is_said():
    report = evaluate(scenario(max_num_seqs=100, target_requests=250))
    assert report.oversubscription == 2.5
    note = next(note.text for note in report.notes if note.field == "target_requests")
    assert note.startswith("250 requests are 2.5 times what runs at once: the rest has no time per token yet.")
    assert "preempts" in note


@pytest.mark.parametrize(("wanted", "ratio"), [(100, 1.0), (50, 0.5)])
def test_requests_within_capacity_do_not_wait(wanted, ratio):
    report = evaluate(scenario(max_num_seqs=100, target_requests=wanted))
    assert report.oversubscription == ratio
    assert "target_requests" not in {note.field for note in report.notes}


def test_without_a_wanted_number_there_is_no_ratio():
    assert evaluate(scenario()).oversubscription is None
