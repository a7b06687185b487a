"""The fitted constants of ``model_presets/latency.toml`` as strict records. Units are in the keys."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from kvcalc.data import load_table
from kvcalc.errors import Record
from kvcalc.hardware import GpuSpec

MemoryKind = Literal["hbm", "gddr", "lpddr"]
"""What the weights are read from; each comes near its data sheet to a different degree."""


class StepConstants(Record):
    """Where a decode step's time goes. What each costs is the mechanism; how much was fitted on measurements."""

    hbm_efficiency: float
    """Share of the data sheet's bandwidth that kernels reach on stacked memory. [ratio]"""
    gddr_efficiency: float
    """The same on graphics memory. [ratio]"""
    lpddr_efficiency: float
    """The same on memory shared with the host. [ratio]"""
    step_us: float
    """Scheduling, sampling and the answer's way back, once per step. [µs]"""
    per_layer_us: float
    """Kernel launches and their ramps, per layer. [µs]"""
    tp_per_layer_us: float
    """Latency of the two all-reduces of a layer, over NVLink and its like. [µs]"""
    tp_pcie_per_layer_us: float
    """The same over PCIe. [µs]"""
    node_per_layer_us: float
    """More of it when the ranks do not fit one node. [µs]"""
    all_reduce_gb_s: float
    """Rate at which activations are all-reduced over NVLink and its like. [GB/s]"""
    all_reduce_pcie_gb_s: float
    """The same over PCIe. [GB/s]"""
    compute_factor: float
    """How much longer than at the dense rate the matrix work of a step's tokens takes. [ratio]"""
    source: str
    """Measurements they were fitted on, and what was not fitted."""
    checked: str
    """Date they were read, ISO."""


class StepBand(Record):
    """How far measurements lie from the typical time, for a class of models."""

    low_factor: float
    """Fast end of the band, as a share of the typical time. [ratio]"""
    high_factor: float
    """Slow end of the band, as a multiple of the typical time. [ratio]"""
    text: str
    """How good the fit is, in words."""
    source: str
    """Where the words come from."""
    checked: str
    """Date they were read, ISO."""


class LatencyException(Record):
    """Hardware or an engine that differs from the rest. Every row that matches applies."""

    gpus: tuple[str, ...] = ()
    """Catalogue ids it holds for; none for any."""
    engine: str | None = None
    """Engine it holds for; None for any."""
    memory: MemoryKind | None = None
    """Memory it holds for; None for any."""
    routed: bool | None = None
    """Whether it holds for mixtures of experts or for dense models; None for both."""
    slowdown: float = 1.0
    """How much longer reading takes. [ratio]"""
    step_us: float | None = None
    """Fixed time of a step, where it differs. [µs]"""
    per_layer_us: float | None = None
    """Launches of one layer, where they differ. [µs]"""
    splits_layers: bool = False
    """Whether several GPUs hold different layers and work one after the other, whatever the layout says."""
    text: str
    """What differs, in words."""
    source: str
    """Measurements that show it."""
    checked: str
    """Date they were read, ISO."""

    def holds(self, *, gpu_id: str, engine: str | None, memory: MemoryKind, routed: bool) -> bool:
        """Whether it applies to this GPU, engine and model."""
        return (
            (not self.gpus or gpu_id in self.gpus)
            and self.engine in (None, engine)
            and self.memory in (None, memory)
            and self.routed in (None, routed)
        )


class Memories(Record):
    """Catalogue ids by kind of memory."""

    hbm: tuple[str, ...]
    """Stacked memory."""
    gddr: tuple[str, ...]
    """Graphics memory."""
    lpddr: tuple[str, ...]
    """Memory shared with the host."""
    source: str
    """Where the kinds come from."""
    checked: str
    """Date they were read, ISO."""

    def kind(self, card: GpuSpec) -> MemoryKind:
        """A GPU's kind of memory; one that is not listed is taken by whether the host shares it."""
        if card.id in self.gddr:
            return "gddr"
        return "lpddr" if card.id in self.lpddr or (card.unified_memory and card.id not in self.hbm) else "hbm"


class PrefillConstants(Record):
    """How much of the dense matrix rate a prefill reaches."""

    dense_efficiency: float
    """Typical share, dense models. [ratio]"""
    dense_efficiency_low: float
    """Least share seen. [ratio]"""
    dense_efficiency_high: float
    """Most seen. [ratio]"""
    routed_efficiency: float
    """Typical share, routed models. [ratio]"""
    routed_efficiency_low: float
    """Least share seen. [ratio]"""
    routed_efficiency_high: float
    """Most seen. [ratio]"""
    source: str
    """Measurements it rests on."""
    checked: str
    """Date they were read, ISO."""


class LatencyTables(Record):
    """Everything in latency.toml."""

    step: StepConstants
    """Where the time of a step goes."""
    dense: StepBand
    """Models whose every token uses all weights."""
    routed: StepBand
    """Mixture-of-experts models."""
    memory: Memories
    """Kinds of memory."""
    exceptions: tuple[LatencyException, ...]
    """Hardware and engines apart."""
    prefill: PrefillConstants
    """Prefill."""


@lru_cache(maxsize=1)
def latency_tables() -> LatencyTables:
    """The constants, read once."""
    return load_table("latency.toml", LatencyTables)
