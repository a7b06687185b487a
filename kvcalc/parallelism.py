"""How a model is laid over GPUs: tensor, pipeline, expert and decode-context parallelism."""

from __future__ import annotations

from collections.abc import Iterable

from kvcalc.errors import Record, ScenarioError


class Parallelism(Record):
    """Sizes of one replica's groups; a replica uses tp x pp GPUs."""

    tp: int = 1
    """Tensor parallel ranks: every layer is cut over them. [GPUs]"""
    pp: int = 1
    """Pipeline stages: layers are dealt over them. [stages]"""
    ep: int = 1
    """Expert parallel ranks: whole experts are dealt over them. [GPUs]"""
    dcp: int = 1
    """Decode context parallel ranks, inside the TP group: tokens are dealt over them. [GPUs]"""

    def __init__(self, **sizes: int) -> None:
        """Raises ScenarioError naming a size that is no whole number."""
        for name, size in sizes.items():
            if isinstance(size, bool) or not isinstance(size, int):
                raise ScenarioError(name, "a whole number from 1", size, hint="Use 1 for no split.")
        super().__init__(**sizes)

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return self.tp * self.pp


def check(
    layout: Parallelism,
    *,
    num_layers: int,
    heads: Iterable[tuple[str, int]],
    repeated_heads: Iterable[tuple[str, int]] = (),
    num_experts: int = 0,
) -> None:
    """Refuse a layout that no engine would start, with the rule it breaks. Raises ScenarioError.

    heads           (field, count) that TP must divide
    repeated_heads  (field, count) that TP must divide or be a multiple of: past their number they repeat
    """
    for name in ("tp", "pp", "ep", "dcp"):
        if getattr(layout, name) < 1:
            raise ScenarioError(name, "a whole number from 1", getattr(layout, name), hint="Use 1 for no split.")
    for field, count in heads:
        if count % layout.tp:
            raise ScenarioError(
                "tp",
                f"tensor parallel size to divide {field} ({count})",
                layout.tp,
                hint=f"Heads are not split; try {_nearest_divisor(count, layout.tp)}.",
            )
    for field, count in repeated_heads:
        if count % layout.tp and layout.tp % count:
            raise ScenarioError(
                "tp",
                f"tensor parallel size to divide {field} ({count}) or be a multiple of it",
                layout.tp,
                hint=f"Heads are repeated whole, never split; try {_nearest_divisor(count, layout.tp)}.",
            )
    if layout.pp > num_layers:
        raise ScenarioError("pp", f"at most one stage per layer ({num_layers})", layout.pp, hint="Use fewer stages.")
    if layout.tp % layout.dcp:
        raise ScenarioError(
            "dcp",
            f"a divisor of tp ({layout.tp})",
            layout.dcp,
            hint="Decode context parallel ranks are taken from the tensor parallel group.",
        )
    if layout.ep > 1 and not num_experts:
        raise ScenarioError("ep", "1 for a dense model", layout.ep, hint="Expert parallelism needs routed experts.")
    if layout.ep > 1 and num_experts % layout.ep:
        raise ScenarioError("ep", f"a divisor of the {num_experts} experts", layout.ep, hint="Use a divisor.")


def _nearest_divisor(count: int, wanted: int) -> int:
    return max(size for size in range(1, min(wanted, count) + 1) if count % size == 0)


def stages(num_layers: int, pp: int) -> tuple[range, ...]:
    """Layers of each pipeline stage.

    Each stage gets num_layers // pp; the remainder goes one each to stages counted back from the second
    to last, since the last stage also holds the head.
    Source: vLLM 0.32 ``vllm/distributed/utils.py`` get_pp_indices.

    >>> [len(stage) for stage in stages(80, 3)], [len(stage) for stage in stages(61, 4)]
    ([27, 27, 26], [15, 15, 16, 15])
    """
    sizes = [num_layers // pp] * pp
    for extra in range(num_layers % pp):
        sizes[pp - 2 - extra] += 1
    bounds = [0]
    for size in sizes:
        bounds.append(bounds[-1] + size)
    return tuple(range(bounds[i], bounds[i + 1]) for i in range(pp))
