"""The inputs for figures of the user's own log: typed in GiB, empty for the estimate, which shows in the field."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from kvcalc.report import Report
from kvcalc.units import fmt_gib

_FIELDS = (
    ("weights_mib", "weight_bytes", "weights"),
    ("kv_pool_mib", "kv_pool_bytes", "kv_pool"),
    ("activations_mib", "overhead", "activations"),
    ("non_torch_mib", "overhead", "non_torch"),
    ("cuda_graphs_mib", "overhead", "cuda_graphs"),
)
"""Field, its term in the glossary, its line of the budget."""


def draw(report: Report | None, pair: Callable[[], Any], number: Callable[..., None]) -> None:
    """The fields, in the sidebar's own pairs and numbers."""
    st.markdown(":small[Figures from a log, each GPU]")
    sizes = {} if report is None else {line.name: line.bytes for line in report.budget.lines}
    with pair():
        for field, term, line in _FIELDS:
            estimate = fmt_gib(sizes[line], 2).removesuffix(" GiB") if line in sizes else "estimated"
            number(field, term=term, empty=estimate)
