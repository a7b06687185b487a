"""The KV pool from a model, a GPU and a share alone, beside other rules: what METHODOLOGY's table claims."""

from __future__ import annotations

from scripts import pool_methods
from scripts.budget_errors import is_regular
from scripts.pool_methods import METHODS, Errors, Logged, errors, logs


def regular() -> list[Logged]:
    return [log for log in logs() if is_regular(log.row)]


def found(start: str) -> Errors:
    return errors(next(method for name, method in METHODS.items() if name.startswith(start)), regular())


def test_most_logs_have_a_preset_of_their_shape() -> None:
    assert len(regular()) >= 75


def test_presets_named_for_a_logged_model_have_its_shape() -> None:
    for log in logs():
        vocab, hidden, _, layers = log.row["dims"]
        assert (log.spec.vocab_size, log.spec.hidden_size, log.spec.num_layers) == (vocab, hidden, layers), log.row


def test_half_the_pools_are_within_a_fifth_of_a_gib_when_release_and_limits_are_known() -> None:
    ours = found("kvcalc, release and limits")
    assert ours.median_gib < 0.2
    assert ours.p90_gib < 1.0


def test_with_nothing_known_our_median_and_our_tail_are_below_every_other_rule_s() -> None:
    blind = found("kvcalc, nothing known")
    for other in ("share ×", "the same less llm-d", "the same less 2 GiB", "the same less 1.5 GiB"):
        assert blind.median_gib < found(other).median_gib
        assert blind.p90_gib < found(other).p90_gib


def test_the_table_has_a_row_for_every_method() -> None:
    assert [row[0] for row in pool_methods.table()] == list(METHODS)
