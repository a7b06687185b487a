"""A model small enough for arithmetic by hand, and scenarios of it, for the tests of speed and fleet.

Two layers of 4 heads x 128, all of them KV heads; hidden 512, feed-forward 1,024, vocabulary 1,000, bf16.
"""

from __future__ import annotations

from typing import Any

import kvcalc
from kvcalc.scenario import CustomGpu

CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "hidden_size": 512,
    "intermediate_size": 1024,
    "vocab_size": 1000,
    "max_position_embeddings": 65_536,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
PER_LAYER = 4 * 512 * 512 + 3 * 512 * 1024 + 2 * 512
READ_BYTES = 2 * (2 * PER_LAYER + 512 + 1000 * 512)
"""What a decode step reads: layers, last norm and head; the embedding is looked up."""
KV_BYTES = 2 * 2 * 4 * 128 * 2
"""KV of a token: keys and values x 2 layers x 4 heads x 128 x 2 B."""

assert READ_BYTES == 11_514_880
assert KV_BYTES == 4_096

CARD = {"memory_mib": 24_576, "bandwidth_gb_per_s": 1_000, "bf16_tflops": 100}


def scenario(**fields: Any) -> kvcalc.Scenario:
    """The small model on one 24 GiB card that reads 1 TB/s and computes 100 TFLOP/s."""
    facts = kvcalc.read_model(CONFIG).sizing_facts
    chosen: dict[str, Any] = {
        "model": "pasted",
        "model_facts": facts,
        "gpu": "custom",
        "custom_gpu": CustomGpu(**CARD),
        "tp": 1,
        "pp": 1,
        "max_model_len": 65_536,
        "prompt_tokens": 7_000,
        "output_tokens": 1_000,
        "target_tpot_ms": None,
    }
    return kvcalc.Scenario(**{**chosen, **fields})
