"""The verdict names the state, the number and what binds, in one sentence."""

import pytest

from kvcalc.units import GIB
from kvcalc.verdict import BAD, FITS, Facts, verdict_of

PLENTY = Facts(
    context_tokens=8_000,
    model_limit=131_072,
    engine_limit=32_768,
    longest_that_fits=131_072,
    shortfall_bytes=0,
    request_bytes=GIB,
    limit_bytes=4 * GIB,
    pool_bytes=26 * GIB,
    pool_low_bytes=25 * GIB,
    weights_share=0.43,
    memory_requests=26,
    cap_requests=256,
    speed_requests=None,
    target_tpot_ms=None,
    single_tpot_s=None,
    target_requests=None,
    replicas=1,
    state_bound=False,
)


def says(**changes):
    verdict, binds, sentence = verdict_of(PLENTY._replace(**changes))
    return verdict, binds, sentence


def test_kv_memory_runs_out_first():
    assert says() == (
        "fits",
        "kv_memory",
        "Fits: 26 requests at once at 8,000 tokens each; KV memory runs out first.",
    )


def test_the_engines_cap_stops_it_first():
    verdict, binds, sentence = says(memory_requests=900)
    assert (verdict, binds) == ("fits", "engine_cap")
    assert sentence == "Fits: 256 requests at once at 8,000 tokens each; the engine's cap stops it first."


def test_a_cap_equal_to_the_memory_is_put_down_to_memory():
    assert says(memory_requests=256)[1] == "kv_memory"


def test_recurrent_state_runs_out_first():
    assert says(state_bound=True)[2].endswith("state memory runs out first.")


def test_replicas_multiply_the_requests():
    assert "52 requests at once on 2 replicas" in says(replicas=2)[2]


def test_a_met_target_says_how_much_of_the_memory_it_uses():
    # 20 of 26 is 76.9 %
    assert says(target_requests=20)[2] == "Fits: your 20 requests use 77% of the KV memory at 8,000 tokens each."


@pytest.mark.parametrize(("wanted", "state"), [(26, "target_met"), (27, "falls_short")])
def test_the_target_is_met_exactly_at_the_capacity(wanted, state):
    assert says(target_requests=wanted)[0] == state


def test_a_missed_target_says_how_many_replicas_would_do():
    # ceil(60 / 26) = 3
    verdict, _, sentence = says(target_requests=60)
    assert verdict == "falls_short"
    assert sentence == "Falls short: 26 of the 60 requests you want fit at 8,000 tokens each; 3 replicas would do."


def test_weights_that_leave_little_room_fit_barely():
    verdict, binds, sentence = says(weights_share=0.86, memory_requests=2)
    assert (verdict, binds) == ("barely", "weights")
    assert sentence == "Fits, barely: weights take 86% of each GPU and leave room for 2 requests at 8,000 tokens."


def test_one_request_is_not_plural():
    assert "room for 1 request at" in says(weights_share=0.86, memory_requests=1)[2]


def test_weights_over_the_budget_say_by_how_much():
    verdict, binds, sentence = says(shortfall_bytes=1_932_735_283, pool_bytes=0, memory_requests=0)
    assert (verdict, binds) == ("does_not_fit", "weights")
    # 1,932,735,283 / 2**30 = 1.80
    assert sentence == "Does not fit: weights and overhead exceed the budget by 1.8 GiB per GPU."


def test_one_request_that_is_too_big_says_what_it_needs():
    _, _, sentence = says(memory_requests=0, request_bytes=39 * GIB // 2, pool_bytes=17 * GIB)
    assert sentence == "Does not fit: one request of 8,000 tokens needs 19.5 GiB per GPU; the KV pool is 17.0 GiB."


def test_a_context_limit_that_does_not_fit_keeps_the_engine_from_starting():
    verdict, binds, sentence = says(limit_bytes=27 * GIB, longest_that_fits=31_552)
    assert (verdict, binds) == ("limit_too_long", "engine_limit")
    assert sentence.startswith("Does not start as set: one request of the context limit, 32,768 tokens")
    assert sentence.endswith("A limit of 31,552 would fit.")


@pytest.mark.parametrize(("context", "state"), [(131_072, "over_engine_limit"), (131_073, "over_model_limit")])
def test_the_models_limit_is_the_last_context_possible(context, state):
    assert says(context_tokens=context)[0] == state


@pytest.mark.parametrize(("context", "state"), [(32_768, "fits"), (32_769, "over_engine_limit")])
def test_the_engine_limit_is_the_last_context_admitted(context, state):
    assert says(context_tokens=context)[0] == state


def test_the_speed_target_binds_when_memory_holds_more():
    verdict, binds, sentence = says(speed_requests=12, target_tpot_ms=25)
    assert (verdict, binds) == ("too_slow", "speed_target")
    assert sentence == "Too slow: memory holds 26 requests, but only 12 meet 25 ms per token."


def test_a_target_that_one_request_misses_says_its_time():
    sentence = says(speed_requests=0, target_tpot_ms=5, single_tpot_s=0.0121)[2]
    assert sentence == "Too slow: memory holds 26 requests, but one alone takes 12 ms, not 5 ms per token."


def test_a_pool_that_the_high_overhead_would_eat_may_not_start():
    verdict, _, sentence = says(pool_low_bytes=GIB - 1)
    assert verdict == "may_not_start"
    assert sentence == "May not start: 26 requests fit at the typical overhead, none at the high one."


@pytest.mark.parametrize(("low", "verdict"), [(4 * GIB, "fits"), (4 * GIB - 1, "may_not_start")])
def test_the_high_overhead_must_leave_room_for_one_request_of_the_context_limit(low, verdict):
    assert says(pool_low_bytes=low)[0] == verdict


def test_what_the_context_limit_needs_at_the_high_overhead_is_said():
    assert says(pool_low_bytes=2 * GIB) == (
        "may_not_start",
        "engine_limit",
        "May not start: 26 requests fit at the typical overhead; at the high one, one of the context "
        "limit, 32,768 tokens, does not.",
    )


def test_what_may_not_start_is_not_called_slow():
    assert says(pool_low_bytes=GIB - 1, speed_requests=12, target_tpot_ms=25)[0] == "may_not_start"


def test_every_state_either_runs_or_is_bad():
    assert {"fits", "target_met", "barely"} == FITS - BAD
    assert "does_not_fit" in BAD - FITS
