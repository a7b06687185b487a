"""A model as everything above the reader knows it: layer groups, tensors, storage, and what was assumed."""

from __future__ import annotations

from functools import cached_property

from kvcalc.errors import Assumption, Record
from kvcalc.layers import LayerGroup
from kvcalc.tensors import Parameters, Quantization, TensorClass, census


class ImageTokens(Record):
    """How a vision model turns a picture into tokens."""

    pixels_per_token_side: int | None = None
    """Side of the square one token stands for (patch x merge); None when the count is fixed. [pixels]"""
    tokens_per_image: int | None = None
    """Fixed tokens per image; None when it depends on the size. [tokens]"""
    largest_image_tokens: int | None = None
    """Cap per image where the model states one. [tokens]"""


class ModelSpec(Record):
    """A model as the calculator knows it: what it caches, what it weighs, and what was assumed."""

    label: str
    """A short name for headings."""
    num_layers: int
    """Decoder layers. [layers]"""
    hidden_size: int
    """Width of the residual stream. [values]"""
    vocab_size: int
    """Rows of the embedding. [tokens]"""
    intermediate_size: int
    """Width of the (dense) feed-forward block; 0 where there is none. [values]"""
    gated_ffn: bool = True
    """Whether the feed-forward block has a gate matrix."""
    max_context_tokens: int | None
    """Longest context the model states; None when it states none. [tokens]"""
    layer_groups: tuple[LayerGroup, ...]
    """What each layer caches."""
    tensors: tuple[TensorClass, ...]
    """Every weight tensor, by class."""
    quantization: Quantization
    """How the checkpoint stores them."""
    num_experts: int = 0
    """Routed experts per MoE layer; 0 when dense. [experts]"""
    experts_per_token: int = 0
    """Routed experts one token uses. [experts]"""
    expert_intermediate_size: int = 0
    """Width of one routed expert. [values]"""
    mtp_layers: int = 0
    """Multi-token-prediction layers in the checkpoint, not counted in ``num_layers``. [layers]"""
    image_tokens: ImageTokens | None = None
    """How pictures become tokens; None for text models."""
    assumptions: tuple[Assumption, ...] = ()
    """What the reader had to assume."""
    sizing_facts: str = "{}"
    """The config keys that decided all this, as compact JSON: reading them again gives this spec."""

    def __hash__(self) -> int:
        # Caches look specs up often; these two strings tell models apart and keep their own hash.
        return hash((self.label, self.sizing_facts))

    @cached_property
    def parameters(self) -> Parameters:
        """Parameter census by part. [parameters]"""
        return census(self.tensors, num_experts=self.num_experts, experts_per_token=self.experts_per_token)

    @property
    def is_moe(self) -> bool:
        """Whether some feed-forward layers are routed."""
        return self.num_experts > 1

    @property
    def has_recurrent_state(self) -> bool:
        """Whether some layers keep a state instead of tokens."""
        return any(group.kind == "recurrent_state" for group in self.layer_groups)
