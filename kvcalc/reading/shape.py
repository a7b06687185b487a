"""The resolved plain facts of a model: what the cache reader and the weight reader both build on.

One entry per decoder layer wherever a fact may differ by layer, so that no reader of it needs the config's
dialect: aliases, patterns, class defaults and lists have all been settled.
"""

from __future__ import annotations

from typing import Literal

from kvcalc.errors import Record

Mixer = Literal[
    "full_attention",
    "sliding_attention",
    "chunked_attention",
    "latent_attention",
    "compressed_attention",
    "cross_attention",
    "mamba1",
    "mamba2",
    "gated_delta_net",
    "kda",
    "lightning",
    "rwkv",
    "short_conv",
    "linear_projection",
    "mlp_only",
    "none",
    "hybrid:mamba2",
]
"""What mixes tokens in a layer.

hybrid:mamba2      attention and a Mamba-2 state in the same layer (Falcon-H1, Zamba2's shared-attention layers)
linear_projection  attention replaced by one matrix (Nemotron-NAS ``replace_with_linear``)
mlp_only           a feed-forward layer by itself (Nemotron-H '-' and 'E'; ``moe_layers`` tells which are routed)
none               nothing: the block was removed (Nemotron-NAS ``no_op``); it may still have a feed-forward block
"""


class Shape(Record):
    """A language model's shape, dialect settled. 'Per layer' tuples have ``num_layers`` entries."""

    model_type: str
    """Model type of the language model; only readers may look at it."""
    num_layers: int
    """Decoder layers. [layers]"""
    hidden_size: int
    """Width of the residual stream. [values]"""
    vocab_size: int
    """Rows of the embedding. [tokens]"""
    layer_kinds: tuple[Mixer, ...]
    """What mixes tokens, per layer."""
    query_heads: tuple[int, ...]
    """Query heads, per layer; 0 without attention. [heads]"""
    kv_heads: tuple[int, ...]
    """Key/value heads, per layer; 0 without attention, 1 for latents. [heads]"""
    key_dim: tuple[int, ...]
    """Width of one key, per layer; 0 without attention. [values]"""
    value_dim: tuple[int, ...]
    """Width of one value, per layer; 0 without attention. [values]"""
    attention_per_layer: int = 1
    """Attention blocks in one decoder layer: 2 in LongCat-Flash. [blocks]"""
    shares_kv: tuple[int, ...] = ()
    """Layers that read another layer's keys and values and have no cache of their own."""
    tie_word_embeddings: bool = False
    """Whether the head is the embedding table."""

    intermediate_size: tuple[int, ...]
    """Width of the dense feed-forward block, per layer; 0 where there is none. [values]"""
    gated_ffn: bool = True
    """Whether a feed-forward block has a gate matrix (three matrices, not two)."""

    moe_layers: tuple[int, ...] = ()
    """Layers whose feed-forward block is routed."""
    num_experts: int = 0
    """Routed experts of one MoE layer; 0 when dense. [experts]"""
    experts_per_token: int = 0
    """Routed experts one token uses. [experts]"""
    expert_intermediate_size: int = 0
    """Width of one routed expert. [values]"""
    shared_intermediate_size: int = 0
    """Width of all shared experts of a MoE layer together; 0 when there are none. [values]"""

    kv_lora_rank: int = 0
    """Width of the MLA latent; 0 without MLA. [values]"""
    q_lora_rank: int = 0
    """Width of the compressed query; 0 for a plain query projection. [values]"""
    qk_nope_head_dim: int = 0
    """Query/key width without rotary part. [values]"""
    qk_rope_head_dim: int = 0
    """Rotary width of query and key. [values]"""
    v_head_dim: int = 0
    """Value width of an MLA head. [values]"""

    index_heads: int = 0
    """Heads of the sparse indexer. [heads]"""
    index_head_dim: int = 0
    """Width of an indexer key. [values]"""
    index_pool_tokens: int = 1
    """Tokens one indexer key stands for. [tokens]"""
    index_topk: int = 0
    """Tokens the indexer lets attention read. [tokens]"""
    indexer_layers: tuple[int, ...] = ()
    """Layers with an indexer of their own."""
    compress_ratios: tuple[int, ...] = ()
    """Tokens per compressed latent, per layer (DeepSeek-V4); 0 keeps the window only. [tokens]"""

    window_tokens: int = 0
    """Sliding window or chunk; 0 when no layer has one. [tokens]"""
    encoder_layers: int = 0
    """Encoder layers of an encoder-decoder model. [layers]"""
    source_tokens: int = 0
    """Encoder or image tokens one request holds in cross attention. [tokens]"""
    mtp_layers: int = 0
    """Multi-token-prediction layers beside the decoder. [layers]"""

    state_heads: int = 0
    """Heads (or channels) of the recurrent mixers. [heads]"""
    state_head_dim: int = 0
    """Width of one recurrent head's value. [values]"""
    state_key_heads: int = 0
    """Key heads of Gated DeltaNet, groups of Mamba-2. [heads]"""
    state_key_dim: int = 0
    """Width of a recurrent key: linear_key_head_dim, Mamba's state size N. [values]"""
    conv_kernel: int = 0
    """Taps of the short convolution. [tokens]"""
    state_inner: int = 0
    """Inner width of the recurrent mixer: heads x head_dim, Mamba's d_inner. [values]"""
