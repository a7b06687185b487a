"""A model's weights as a list of tensor classes: the census, the bytes and the sharding all read it.

A tensor class is one named matrix or vector that recurs in some layers (``self_attn.q_proj``), with its
shape, what it is part of, how tensor parallelism cuts it, and whether quantisers usually touch it.
"""

from __future__ import annotations

from typing import Literal

from kvcalc.errors import Record

Part = Literal[
    "embedding",
    "lm_head",
    "attention",
    "linear_attention",
    "dense_ffn",
    "routed_experts",
    "shared_experts",
    "router",
    "norms",
    "vision",
    "audio",
    "mtp",
    "other",
]

Shard = Literal["split", "kv_heads", "replicated", "experts", "vocab"]
"""How tensor parallelism cuts a tensor.

split       over all TP ranks (q, o, MLP: columns or rows)
kv_heads    over min(tp, kv_heads): repeated past the number of KV heads
replicated  whole on every rank (norms, router, MLA down-projections, indexer)
experts     over TP ranks, or whole experts over EP ranks
vocab       over TP ranks after padding the rows to a multiple of 64
"""


Role = Literal["", "embedding", "head", "query", "key", "value", "qkv", "output", "down"]
"""What a matrix does in its block, where a GGUF mix tells it apart."""


class TensorClass(Record):
    """One named tensor that recurs in some layers."""

    name: str
    """Module path without the layer prefix, as checkpoints name it: ``self_attn.q_proj``, ``mlp.experts.down_proj``."""
    part: Part
    """What it belongs to in the census."""
    rows: int
    """Output width; 1 for a vector. [values]"""
    columns: int
    """Input width. [values]"""
    layers: tuple[int, ...]
    """Decoder layers that have one; (-1,) before the first (embedding), (-2,) after the last (head, final norm)."""
    copies: int = 1
    """Tensors of this class in one layer: the number of experts, else 1."""
    shard: Shard = "split"
    """How TP cuts it."""
    shard_units: int = 0
    """KV heads for ``kv_heads``: past them the tensor repeats. [heads]"""
    quantizable: bool = True
    """False for what every quantiser leaves alone: embedding, head, norms, biases, router gates, convolutions."""
    role: Role = ""
    """What it does in its block, where a GGUF mix tells it apart."""
    tied_to: str | None = None
    """Name of the tensor that holds the values, when this one is only another use of it: counted once."""

    @property
    def values_per_layer(self) -> int:
        """Parameters in one layer. [parameters]"""
        return self.rows * self.columns * self.copies

    @property
    def values(self) -> int:
        """Parameters in the model; 0 for a tied use. [parameters]"""
        return 0 if self.tied_to else self.values_per_layer * len(self.layers)


class QuantRule(Record):
    """How one format stores the tensors whose module path matches. What is None is as the format has it."""

    weight_format: str
    """Weight precision id from the catalogue."""
    bits: int | None = None
    """Bits of one stored value. [bits]"""
    group_size: int | None = None
    """Values that share one scale; -1 per output channel, 0 per tensor. [values]"""
    block_shape: tuple[int, int] | None = None
    """Rows and columns that share one scale. [values]"""
    scale_bits: int | None = None
    """Bits of one scale. [bits]"""
    zero_bits: int | None = None
    """Bits of one zero point (or of MLX's group bias); 0 when scales are symmetric. [bits]"""
    act_order: bool = False
    """GPTQ desc_act: one int32 per input column."""
    double_quant: bool = True
    """bitsandbytes: whether the scales are themselves quantised, where the format knows that."""
    targets: tuple[str, ...] = ()
    """Patterns of module paths it applies to; empty: every quantisable linear."""


class Quantization(Record):
    """What the checkpoint declares about its storage."""

    method: str | None = None
    """quant_method as declared (fp8, awq, compressed-tensors, modelopt, mxfp4, …); None for plain weights."""
    base_precision: str = "bf16"
    """Storage of everything not quantised: bf16, fp16 or fp32."""
    rules: tuple[QuantRule, ...] = ()
    """Formats with their targets, first match wins."""
    kept: tuple[str, ...] = ()
    """Patterns of module paths left at ``base_precision`` (ignore, modules_to_not_convert)."""
    quantizes_tables: bool = False
    """Whether embedding and head are quantised too (MLX)."""
    kv_precision: str | None = None
    """KV scheme the checkpoint declares: 'fp8', 'nvfp4'; None when it declares none."""

    @property
    def is_quantized(self) -> bool:
        """Whether any weight is stored below its base precision."""
        return bool(self.rules)


class Parameters(Record):
    """Parameter census. ``total`` has the vision and audio towers, not the MTP layers."""

    total: int
    """All parameters, towers included, MTP excluded. [parameters]"""
    active: int
    """Parameters one token uses: total less towers less the experts not chosen. [parameters]"""
    embedding: int
    """Input embedding table. [parameters]"""
    lm_head: int
    """Output head; 0 when tied. [parameters]"""
    attention: int
    """Softmax-attention projections and their biases. [parameters]"""
    linear_attention: int
    """Mamba, DeltaNet, KDA, lightning and convolution mixers. [parameters]"""
    dense_ffn: int
    """Feed-forward blocks that every token uses. [parameters]"""
    routed_experts: int
    """Experts of which a token uses some. [parameters]"""
    shared_experts: int
    """Experts that every token uses. [parameters]"""
    router: int
    """Expert gates. [parameters]"""
    norms: int
    """Normalisation weights. [parameters]"""
    vision: int
    """Vision tower and projector. [parameters]"""
    audio: int
    """Audio tower and projector. [parameters]"""
    mtp: int
    """Multi-token-prediction layers, not in ``total``. [parameters]"""
    other: int
    """Anything else (learned positions, residual mixers). [parameters]"""


def census(tensors: tuple[TensorClass, ...], *, num_experts: int, experts_per_token: int) -> Parameters:
    """Parameters by part, from the tensor classes. [parameters]"""
    parts = dict.fromkeys(Part.__args__, 0)  # type: ignore[attr-defined]
    for tensor in tensors:
        parts[tensor.part] += tensor.values
    total = sum(parts.values()) - parts["mtp"]
    unused = parts["routed_experts"] * (num_experts - experts_per_token) // num_experts if num_experts else 0
    active = total - unused - parts["vision"] - parts["audio"]
    return Parameters(total=total, active=active, **parts)
