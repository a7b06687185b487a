"""kvcalc: how many requests a model can serve at a given context on given GPUs, how fast, what binds.

    >>> import kvcalc
    >>> report = kvcalc.evaluate(kvcalc.Scenario.default())
    >>> report.kv_bytes_per_token  # 2 x 80 layers x 8 KV heads x 128 x 2 bytes
    327680

These names are the public surface; other programs call them, so their meaning does not change.
"""

from kvcalc.budget import Budget, memory_budget
from kvcalc.cache import kv_bytes_per_sequence
from kvcalc.catalogue import read_model
from kvcalc.engines import Capacity, capacity
from kvcalc.errors import (
    Assumption,
    CatalogueError,
    ConfigError,
    HubError,
    KvcalcError,
    LinkError,
    Note,
    ScenarioError,
)
from kvcalc.evaluation import evaluate
from kvcalc.hardware import GpuSpec
from kvcalc.latency import StepTime, decode_step
from kvcalc.model_spec import ModelSpec
from kvcalc.report import Report
from kvcalc.scenario import Scenario
from kvcalc.share import LinkResult, from_link, to_link
from kvcalc.weights import weight_bytes

__version__ = "0.1.0"

__all__ = [
    "Assumption",
    "Budget",
    "Capacity",
    "CatalogueError",
    "ConfigError",
    "GpuSpec",
    "HubError",
    "KvcalcError",
    "LinkError",
    "LinkResult",
    "ModelSpec",
    "Note",
    "Report",
    "Scenario",
    "ScenarioError",
    "StepTime",
    "capacity",
    "decode_step",
    "evaluate",
    "from_link",
    "kv_bytes_per_sequence",
    "memory_budget",
    "read_model",
    "to_link",
    "weight_bytes",
]
