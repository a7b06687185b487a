"""How fast: a decode step's time per token, and the prefill of a prompt."""

from __future__ import annotations

from kvcalc.latency.decode import StepPlan, StepTime, decode_step, step_plan
from kvcalc.latency.flops import decode_flops, matrix_rate
from kvcalc.latency.prefill import Band, prefill_time

__all__ = ["Band", "StepPlan", "StepTime", "decode_flops", "decode_step", "matrix_rate", "prefill_time", "step_plan"]
