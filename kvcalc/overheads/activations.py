"""What one step computes with: activations that all engines need, whoever pays for them.

    forward   = T x value bytes x (3 x intermediate / tp + 3 x hidden)       2 x intermediate without a gate
    workspace = T x experts per token x value bytes x (max(2 I, hidden) + max(I, hidden))

with T tokens in the step and I the expert width on this GPU. Constants: overheads.toml, [vllm.activation].
"""

from __future__ import annotations

from kvcalc.overheads.base import Inputs
from kvcalc.overheads.tables import tables
from kvcalc.units import ceil_div


def value_bytes(inputs: Inputs) -> int:
    """Bytes of one activation. [bytes]"""
    return 4 if inputs.runs_in_fp32 else 2


def forward_bytes(inputs: Inputs, tokens: int) -> int:
    """The widest moment of a forward pass over this many tokens. [bytes/GPU]"""
    spec, constants = inputs.spec, tables().vllm.activation
    copies = constants.gated_ffn_copies if spec.gated_ffn else constants.plain_ffn_copies
    wide = tokens * value_bytes(inputs) * copies * spec.intermediate_size
    return ceil_div(wide, inputs.tp) + tokens * value_bytes(inputs) * constants.residual_copies * spec.hidden_size


def expert_workspace_bytes(inputs: Inputs, tokens: int) -> int:
    """Two scratch tensors over every (token, expert) pair; none in the fused MXFP4 kernels. [bytes/GPU]"""
    spec = inputs.spec
    if not spec.is_moe or inputs.mxfp4_experts:
        return 0
    ranks = max(1, inputs.tp // inputs.ep)
    pairs = tokens * spec.experts_per_token * value_bytes(inputs)
    width, hidden = spec.expert_intermediate_size, spec.hidden_size * ranks
    return ceil_div(pairs * (max(2 * width, hidden) + max(width, hidden)), ranks)
