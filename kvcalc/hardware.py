"""GPUs and other accelerators: what a card holds, how fast it reads, how cards are linked.

The figures live in ``model_presets/gpus.toml``; this file turns a row into bytes and operations per second.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Literal

from kvcalc.data import load_table
from kvcalc.errors import CatalogueError, Record, ScenarioError
from kvcalc.units import GB, GIB, MIB

_TFLOP = 10**12

Link = Literal["nvlink", "pcie", "infinity_fabric", "other", "none"]
"""What joins the GPUs of a node."""

Confidence = Literal["high", "medium", "low"]
"""How well a row's figures are attested."""


class GpuSpec(Record):
    """One accelerator as software sees it: a board with two devices is two of these."""

    id: str
    """Stable id used in links, kebab case."""
    name: str
    """Name on the page."""
    aliases: tuple[str, ...] = ()
    """Other spellings: nvidia-smi, PyTorch, everyday."""
    vendor: str
    """Who makes it."""
    family: str
    """Heading it stands under in a list."""
    form_factor: str
    """SXM, PCIe, OAM and so on."""
    memory_bytes: int
    """Memory the driver reports. [bytes]"""
    usable_bytes: int
    """Memory a process sees, PyTorch's total; the driver's figure where it was not found. [bytes]"""
    bandwidth_bytes_per_s: int | None
    """Peak memory bandwidth; None for a custom GPU that states none. [bytes/s]"""
    bf16_flops_per_s: int | None
    """Dense 16-bit matrix rate, FP16 where BF16 is not native; None when not stated. [FLOP/s]"""
    fp8_flops_per_s: int | None = None
    """Dense FP8 matrix rate; None where there is none. [FLOP/s]"""
    fp4_flops_per_s: int | None = None
    """Dense FP4 matrix rate; None where there is none. [FLOP/s]"""
    native_bf16: bool = True
    """Whether BF16 is computed natively; engines fall back to FP16 where it is not."""
    compute_capability: str | None = None
    """CUDA compute capability or gfx target."""
    link: Link
    """What joins the GPUs of a node."""
    link_text: str | None = None
    """The link with its rate, in words."""
    unified_memory: bool = False
    """Whether the operating system shares the memory."""
    max_gpus_per_node: int
    """Devices in the largest usual node. [GPUs]"""
    release_year: int | None = None
    """Year of release."""
    choice: str | None = None
    """Which figure was taken where sources disagree, and why."""
    note: str | None = None
    """What a user of this device must know about its memory."""
    confidence: Confidence
    """How well the figures are attested."""
    sources: tuple[str, ...]
    """Where the figures come from."""
    checked: str
    """Date the sources were read, ISO."""

    @property
    def stated_bandwidth_bytes_per_s(self) -> int:
        """Peak memory bandwidth. Raises ScenarioError for a custom GPU that states none. [bytes/s]"""
        if self.bandwidth_bytes_per_s is None:
            raise ScenarioError(
                "gpu.bandwidth_bytes_per_s", "a memory bandwidth", hint="State the bandwidth to get times."
            )
        return self.bandwidth_bytes_per_s

    @classmethod
    def custom(
        cls,
        *,
        memory_bytes: int,
        usable_bytes: int | None = None,
        bandwidth_bytes_per_s: int | None = None,
        name: str = "Custom GPU",
        bf16_flops_per_s: int | None = None,
        fp8_flops_per_s: int | None = None,
        fp4_flops_per_s: int | None = None,
        link: Link = "pcie",
        unified_memory: bool = False,
        max_gpus_per_node: int = 8,
    ) -> GpuSpec:
        """A GPU that the catalogue does not hold. Only its memory is needed; times need the bandwidth.

        memory_bytes           what the driver reports [bytes]
        usable_bytes           what a process sees; the same when left out [bytes]
        bandwidth_bytes_per_s  peak memory bandwidth [bytes/s]
        *_flops_per_s          dense matrix rates [FLOP/s]

        Raises ScenarioError for a figure that is not positive, or more usable memory than there is.
        """
        usable = memory_bytes if usable_bytes is None else usable_bytes
        _require_positive(
            memory_bytes=memory_bytes,
            usable_bytes=usable,
            bandwidth_bytes_per_s=bandwidth_bytes_per_s,
            bf16_flops_per_s=bf16_flops_per_s,
            fp8_flops_per_s=fp8_flops_per_s,
            fp4_flops_per_s=fp4_flops_per_s,
            max_gpus_per_node=max_gpus_per_node,
        )
        if usable > memory_bytes:
            raise ScenarioError(
                "gpu.usable_bytes",
                f"at most memory_bytes ({memory_bytes:,})",
                usable,
                hint="Leave it out if unsure.",
            )
        return cls(
            id="custom",
            name=name,
            vendor="custom",
            family="Custom",
            form_factor="custom",
            memory_bytes=memory_bytes,
            usable_bytes=usable,
            bandwidth_bytes_per_s=bandwidth_bytes_per_s,
            bf16_flops_per_s=bf16_flops_per_s,
            fp8_flops_per_s=fp8_flops_per_s,
            fp4_flops_per_s=fp4_flops_per_s,
            link=link,
            unified_memory=unified_memory,
            max_gpus_per_node=max_gpus_per_node,
            confidence="low",
            sources=("entered by the user",),
            checked="",
        )


def _require_positive(**figures: object) -> None:
    for name, value in figures.items():
        if value is None and name not in ("memory_bytes", "usable_bytes", "max_gpus_per_node"):
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ScenarioError(f"gpu.{name}", "a whole number from 1", value, hint="Give it in the unit of its name.")


class _Row(Record):
    """A row of gpus.toml, in the units its sources use."""

    id: str
    name: str
    aliases: tuple[str, ...]
    vendor: str
    family: str
    form_factor: str
    memory_mib: int | None = None
    usable_gib: str | None = None
    bandwidth_gb_s: float
    bf16_tflops: float
    fp8_tflops: float | None = None
    fp4_tflops: float | None = None
    native_bf16: bool = True
    compute_capability: str | None = None
    link: Link
    link_text: str | None = None
    unified_memory: bool = False
    max_gpus_per_node: int
    release_year: int
    choice: str | None = None
    note: str | None = None
    confidence: Confidence
    sources: tuple[str, ...]
    checked: str

    def spec(self) -> GpuSpec:
        """The row in bytes and operations per second; capacity rounds down. Raises CatalogueError."""
        usable = None if self.usable_gib is None else int(Fraction(self.usable_gib) * GIB)
        memory = usable if self.memory_mib is None else self.memory_mib * MIB
        if memory is None:
            raise CatalogueError(
                f"model_presets/gpus.toml [{self.id}]",
                "memory_mib or usable_gib",
                hint="Add one of the two keys.",
            )
        rates = {
            f"{name}_flops_per_s": None if rate is None else round(rate * _TFLOP)
            for name, rate in (("bf16", self.bf16_tflops), ("fp8", self.fp8_tflops), ("fp4", self.fp4_tflops))
        }
        same = self.model_dump(
            exclude={"memory_mib", "usable_gib", "bandwidth_gb_s", "bf16_tflops", "fp8_tflops", "fp4_tflops"}
        )
        figures = {
            "memory_bytes": memory,
            "usable_bytes": memory if usable is None else usable,
            "bandwidth_bytes_per_s": round(self.bandwidth_gb_s * GB),
        }
        return GpuSpec.model_validate({**same, **rates, **figures})


class _Table(Record):
    gpus: tuple[_Row, ...]


@lru_cache(maxsize=1)
def load_gpus() -> tuple[GpuSpec, ...]:
    """Every accelerator of the data file, by family, common ones first. Raises CatalogueError."""
    return tuple(row.spec() for row in load_table("gpus.toml", _Table).gpus)
