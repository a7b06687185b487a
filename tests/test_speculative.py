"""Speculative decoding: a measured range with its sources, and the memory of draft layers."""

import pytest

from kvcalc import evaluate, read_model
from kvcalc.speculative import speculative_tables
from tests.small_model import CONFIG, KV_BYTES, scenario

DRAFTING = {**CONFIG, "num_nextn_predict_layers": 1}
DRAFT_LAYER = 4 * 512 * 512 + 3 * 512 * 1024 + 2 * 512 + 2 * 512 * 512 + 3 * 512


def drafting(**fields):
    return scenario(model_facts=read_model(DRAFTING).sizing_facts, speculative_tokens=1, **fields)


@pytest.mark.parametrize(
    ("requests", "least", "most"),
    [
        (1, 1.8, 2.7),  # MTP on 8 H200, EAGLE-3 on H100
        (2, 1.5, 2.4),
        (32, 1.5, 2.4),
        (33, 0.79, 1.5),
        (5_000, 0.79, 1.5),
    ],
)
def test_the_range_is_what_was_published_for_about_as_many_requests(requests, least, most):
    _, rows = speculative_tables().at(requests)
    assert (min(row.speedup for row in rows), max(row.speedup for row in rows)) == (least, most)


def test_every_measurement_names_its_source_and_speaks_for_some_range():
    tables = speculative_tables()
    used = {row for found in tables.ranges for row in tables.measurements if _speaks(found, row)}
    assert used == set(tables.measurements)
    assert all(row.source and row.checked for row in tables.measurements)


def _speaks(found, row):
    return found.measured_from <= row.batch <= found.measured_to


def test_the_band_is_divided_by_the_range_and_the_step_itself_stays():
    plain, drafted = evaluate(scenario(max_num_seqs=1)), evaluate(scenario(max_num_seqs=1, speculative_tokens=3))
    assert drafted.tpot == plain.tpot
    assert drafted.drafted.low_s == pytest.approx(drafted.tpot.low_s / 2.7)
    assert drafted.drafted.high_s == pytest.approx(drafted.tpot.high_s / 1.8)
    assert drafted.drafted.sentence.startswith("Measured range, not a floor: 3 published runs for one request")
    assert plain.drafted is None


def test_many_requests_may_be_slower_with_drafts_than_without():
    found = evaluate(scenario(max_num_seqs=100, speculative_tokens=3))
    assert found.drafted.high_s > found.tpot.high_s


def test_a_draft_layer_takes_weights_and_a_layer_of_kv():
    """One layer of two more: half as much KV again; weights of the layer, its projection and norms in bf16."""
    found = evaluate(drafting()).drafted
    assert found.weights_bytes == 2 * DRAFT_LAYER
    assert found.kv_bytes_per_request == 8_000 * KV_BYTES // 2
    assert "on the busiest GPU" in found.sentence


def test_the_budget_and_the_parts_count_the_draft_layer_only_when_it_drafts():
    on, off = evaluate(drafting()), evaluate(scenario(model_facts=read_model(DRAFTING).sizing_facts))
    assert on.budget.weights_bytes - off.budget.weights_bytes == 2 * DRAFT_LAYER
    for report in (on, off):
        assert sum(line.bytes for line in report.weight_lines) == report.budget.weights_bytes
        assert sum(line.bytes for line in report.budget.lines) == report.budget.memory_bytes
    parts = {line.part: line.bytes for line in on.weight_lines}
    assert parts["mtp"] == 2 * DRAFT_LAYER


def test_a_model_without_draft_layers_says_that_their_memory_is_not_counted():
    found = evaluate(scenario(speculative_tokens=3)).drafted
    assert found.weights_bytes == 0
    assert found.sentence.endswith("The config names no draft layers, so their memory is not counted.")
