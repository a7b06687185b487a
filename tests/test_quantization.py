"""Ignore and target lists against module paths, in every spelling checkpoints use."""

from __future__ import annotations

import pytest

from kvcalc.module_patterns import ModulePatterns

QUERY, EXPERT, ROUTER, SHARED = (
    "self_attn.q_proj",
    "mlp.experts.up_proj",
    "mlp.gate",
    "mlp.shared_experts.up_proj",
)


@pytest.mark.parametrize(
    ("pattern", "name", "layer"),
    [
        ("lm_head", "lm_head", -2),
        ("language_model.lm_head", "lm_head", -2),
        ("re:.*lm_head.*", "lm_head", -2),
        ("model.embed_tokens", "model.embed_tokens", -1),
        ("model.layers.3.self_attn.q_proj", QUERY, 3),
        ("model.language_model.layers.3.self_attn", QUERY, 3),
        ("language_model.model.layers.3*", QUERY, 3),
        ("layers.3.", QUERY, 3),
        ("transformer.h.3.attn", "attn.c_attn", 3),
        ("model.layers.*.self_attn", QUERY, 3),
        ("*.self_attn.*", QUERY, 3),
        ("self_attn", QUERY, 3),
        ("re:.*self_attn.*", QUERY, 3),
        (r"re:model\.layers\.3\..*", QUERY, 3),
        (r"re:.*mlp\.experts\.\d+\.up_proj", EXPERT, 3),
        ("gate", ROUTER, 3),
        ("mlp.gate", ROUTER, 3),
        ("re:.*shared_experts.*", SHARED, 3),
        ("Linear", QUERY, 3),
    ],
)
def test_a_pattern_covers(pattern: str, name: str, layer: int) -> None:
    assert ModulePatterns([pattern]).match(name, layer)


@pytest.mark.parametrize(
    ("pattern", "name", "layer"),
    [
        ("lm_head", QUERY, 3),
        ("model.layers.3.self_attn.q_proj", QUERY, 30),
        ("model.layers.3.self_attn.q_proj", "self_attn.q_proj_other", 3),
        ("model.layers.1*", QUERY, 10),
        ("layers.0.", QUERY, 10),
        ("gate", "mlp.gate_proj", 3),
        ("mlp.gate", "mlp.gate_up_proj", 3),
        (r"re:.*mlp\.(gate|up|gate_up|down)_proj.*", EXPERT, 3),
        ("re:vision_tower.*", QUERY, 3),
        ("vision_model.model.layers.3.self_attn.q_proj", QUERY, 3),
        ("model.transformer.ff_out", "ff_out", 3),
        ("re:(", QUERY, 3),
        ("", QUERY, 3),
    ],
)
def test_a_pattern_leaves_alone(pattern: str, name: str, layer: int) -> None:
    assert not ModulePatterns([pattern]).match(name, layer)


@pytest.mark.parametrize(
    ("patterns", "differs"),
    [
        (["lm_head", "re:.*self_attn.*", "*.mlp.gate.*"], False),
        (["lm_head", "model.layers.0.mlp"], True),
        ([r"re:.*layers\.[0-3]\..*"], True),
    ],
)
def test_only_patterns_with_numbers_can_differ_by_layer(patterns: list[str], differs: bool) -> None:
    assert ModulePatterns(patterns).by_layer is differs
