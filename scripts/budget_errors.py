"""How far the KV pool of `memory_budget` is from vLLM start-up logs: `python -m scripts.budget_errors`.

The logs are in tests/measurements/vllm_start_up.jsonl. Weights are the log's own, so that only the overhead is
judged; ``scripts.pool_methods`` computes the weights too, and compares other rules. Errors are predicted less logged;
the baseline is share x memory less weights.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

from kvcalc.budget import Budget, memory_budget
from kvcalc.hardware import GpuSpec
from kvcalc.layers import FullAttention, IndexerKeys, LayerGroup, RecurrentState
from kvcalc.model_spec import ImageTokens, ModelSpec
from kvcalc.tensors import Quantization, QuantRule
from kvcalc.units import GIB, MIB

ROWS = Path(__file__).resolve().parent.parent / "tests" / "measurements" / "vllm_start_up.jsonl"


class Judged(NamedTuple):
    """One log beside its prediction."""

    row: dict[str, Any]
    budget: Budget

    @property
    def error_gib(self) -> float:
        """Predicted less logged KV pool, where what is missing counts as a negative pool. [GiB]"""
        predicted = self.budget.kv_pool_bytes - self.budget.shortfall_bytes
        return predicted / GIB - float(self.row["kv_gib"])

    @property
    def baseline_gib(self) -> float:
        """Error of share x memory less weights. [GiB]"""
        return float(self.row["usable_gib"] * self.row["share"] - self.row["weights_gib"] - self.row["kv_gib"])

    @property
    def inside(self) -> bool:
        """Whether the log lies in the band, to the 0.01 GiB it prints."""
        slack = GIB // 100
        logged = max(0.0, self.row["kv_gib"]) * GIB
        return bool(self.budget.kv_pool_low_bytes - slack <= logged <= self.budget.kv_pool_high_bytes + slack)


def spec_of(row: dict[str, Any]) -> ModelSpec:
    """A model as far as an overhead depends on it."""
    vocab, hidden, ffn, layers = row["dims"]
    experts = row.get("experts", [0, 0, 0])
    side, fixed, largest = [*row["image"], None, None][:3] if row.get("image") else (None, None, None)
    return ModelSpec(
        label=row["model"],
        num_layers=layers,
        hidden_size=hidden,
        vocab_size=vocab,
        intermediate_size=ffn,
        gated_ffn=not row.get("plain_ffn", False),
        max_context_tokens=None,
        layer_groups=_groups(row.get("kind"), tuple(range(layers))),
        tensors=(),
        quantization=Quantization(rules=(QuantRule(weight_format="mxfp4"),) if row.get("mxfp4") else ()),
        num_experts=experts[0],
        experts_per_token=experts[1],
        expert_intermediate_size=experts[2],
        image_tokens=ImageTokens(pixels_per_token_side=side, tokens_per_image=fixed, largest_image_tokens=largest)
        if row.get("image")
        else None,
    )


def _groups(kind: str | None, layers: tuple[int, ...]) -> tuple[LayerGroup, ...]:
    attention = FullAttention(layers=layers, query_heads=64, kv_heads=64, key_dim=64, value_dim=64)
    if kind == "delta_net":
        state = RecurrentState(layers=layers, family="gated_delta_net", heads=64, conv_tokens=3, conv_channels=64)
        return (attention, state)
    if kind == "sparse":
        return (attention, IndexerKeys(layers=layers, key_dim=128))
    return (attention,)


def gpu_of(row: dict[str, Any]) -> GpuSpec:
    """The card of a log: the memory it printed, and what decides its defaults."""
    capability = {"A100": "8.0", "H100": "9.0", "H200": "9.0"}
    vendor = "AMD" if row["gpu"].startswith(("AMD", "MI", "RX")) else "NVIDIA"
    plain = GpuSpec.custom(memory_bytes=int(row["usable_gib"] * GIB) // MIB * MIB, link=row["link"])
    return plain.model_copy(
        update={
            "vendor": vendor,
            "unified_memory": any(word in row["gpu"] for word in ("unified", "GB10", "Jetson", "gfx1151")),
            "compute_capability": next((code for name, code in capability.items() if name in row["gpu"]), None),
        }
    )


def rows() -> list[dict[str, Any]]:
    """Every log."""
    return [json.loads(text) for text in ROWS.read_text(encoding="utf-8").splitlines()]


def judged() -> list[Judged]:
    """Every log with its prediction."""
    return [Judged(row, _budget(row)) for row in rows()]


def _budget(row: dict[str, Any]) -> Budget:
    return memory_budget(
        spec_of(row),
        gpu=gpu_of(row),
        engine_version=row["version"],
        tp=row["tp"],
        pp=row["pp"],
        utilization_pct=Fraction(str(row["share"])) * 100,
        max_num_batched_tokens=row["tokens"],
        max_num_seqs=row["requests"],
        enforce_eager=row["eager"],
        weights_bytes=round(row["weights_gib"] * GIB),
    )


def is_regular(row: dict[str, Any]) -> bool:
    """Whether the log is of a kind the rules are meant for."""
    return "kind" not in row and not gpu_of(row).unified_memory


def regular(item: Judged) -> bool:
    """The same of a judged log."""
    return is_regular(item.row)


def summary(name: str, items: Iterable[Judged]) -> str:
    """One line of the table."""
    found = list(items)
    ours = [abs(item.error_gib) for item in found]
    naive = [abs(item.baseline_gib) for item in found]
    share = [abs(item.error_gib) / item.row["kv_gib"] for item in found if item.row["kv_gib"] > 0]
    inside = mean(item.inside for item in found)
    return (
        f"{name:34} {len(found):4}  {mean(ours):5.2f} {median(ours):5.2f} {median(share):6.1%} {inside:5.0%}   "
        f"{mean(naive):5.2f} {median(naive):5.2f}"
    )


def main() -> None:
    """Print the table."""
    items = judged()
    print(f"{'logs':34} {'n':>4}  {'mean':>5} {'med':>5} {'of KV':>6} {'band':>5}   naive mean and median [GiB]")
    print(summary("all", items))
    print(summary("regular", filter(regular, items)))
    print(summary("recurrent, sparse, shared memory", (item for item in items if not regular(item))))
    print(summary("TP 1", (item for item in items if regular(item) and item.row["tp"] == 1)))
    print(summary("TP 2 and more", (item for item in items if regular(item) and item.row["tp"] > 1)))
    print(summary("routed", (item for item in items if regular(item) and "experts" in item.row)))
    print(summary("vision", (item for item in items if regular(item) and "image" in item.row)))
    print("farthest:")
    for item in sorted(items, key=lambda item: -abs(item.error_gib))[:10]:
        print(f"  {item.error_gib:+5.2f} GiB  {item.row['model']} on {item.row['gpu']}, vLLM {item.row['version']}")


if __name__ == "__main__":
    main()
