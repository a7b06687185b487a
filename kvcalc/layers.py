"""What a layer keeps for a sequence: the layer groups.

A group is a set of decoder layers with the same cache behaviour. Above this file nobody knows a model's
name: a group answers how many values it caches per token, how many tokens it keeps at a context, what a
sequence costs however short it is, and over how many GPUs that truly splits.

Adding a cache kind: one class here (in ``LayerGroup``), its reader in ``reading/``, its cases.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from kvcalc.errors import Record
from kvcalc.precision import KvFormat, StateFormat, rational
from kvcalc.units import ceil_div


class _Group(Record):
    """What every group shares. Subclasses override what differs from 'nothing'."""

    layers: tuple[int, ...]
    """Zero-based indices of the decoder layers in this group, ascending."""

    grows: ClassVar[bool] = True
    """Whether a longer context costs more, up to ``knee_tokens``."""
    title: ClassVar[str]
    """The kind as a person calls it."""

    def heads_on_rank(self, tp: int) -> int:
        """KV heads one GPU stores: heads are never split, so past their number they repeat. [heads]"""
        raise NotImplementedError

    def bits_per_token(self, kv: KvFormat, *, tp: int) -> Fraction:
        """Bits one layer caches for one token on one GPU."""
        return Fraction(0)

    def kept_tokens(self, context_tokens: int) -> int:
        """Tokens one layer keeps of a sequence of this length. [tokens]"""
        return context_tokens

    def fixed_bytes(self, kv: KvFormat, state: StateFormat, *, tp: int) -> int:
        """Bytes one layer holds for a sequence whatever its length. [bytes/GPU]"""
        return 0

    def splits_over_dcp(self) -> bool:
        """Whether decode context parallelism spreads this group's tokens over its ranks."""
        return False

    @property
    def knee_tokens(self) -> int | None:
        """Context from which the group stops growing; None when it never does. [tokens]"""
        return None

    @property
    def heads_that_split(self) -> tuple[tuple[str, int], ...]:
        """(config field, heads) pairs of what is cached, that tensor parallelism must divide."""
        return ()

    @property
    def query_heads_that_split(self) -> tuple[tuple[str, int], ...]:
        """(config field, heads) pairs of the weights alone, that tensor parallelism must divide."""
        return ()

    @property
    def heads_that_repeat(self) -> tuple[tuple[str, int], ...]:
        """(config field, heads) pairs that repeat whole once tensor parallelism exceeds them."""
        return ()


class _HeadedKv(_Group):
    """Keys and values stored per head."""

    query_heads: int
    """Query heads of one layer. [heads]"""
    kv_heads: int
    """Key/value heads stored per token. [heads]"""
    key_dim: int
    """Width of one key. [values]"""
    value_dim: int
    """Width of one value; not always the key's. [values]"""

    def heads_on_rank(self, tp: int) -> int:
        return max(1, ceil_div(self.kv_heads, tp))

    def bits_per_token(self, kv: KvFormat, *, tp: int) -> Fraction:
        return self.heads_on_rank(tp) * (kv.row_bits(self.key_dim) + kv.row_bits(self.value_dim))

    @property
    def query_heads_that_split(self) -> tuple[tuple[str, int], ...]:
        return (("num_attention_heads", self.query_heads),)

    @property
    def heads_that_repeat(self) -> tuple[tuple[str, int], ...]:
        return (("num_key_value_heads", self.kv_heads),)


class FullAttention(_HeadedKv):
    """MHA, GQA or MQA over the whole context: every token stays."""

    kind: Literal["full_attention"] = "full_attention"
    title: ClassVar[str] = "full attention"

    def splits_over_dcp(self) -> bool:
        return True


class SlidingAttention(_HeadedKv):
    """Attention over the last ``window_tokens``: older tokens are dropped."""

    kind: Literal["sliding_attention"] = "sliding_attention"
    title: ClassVar[str] = "sliding window"
    window_tokens: int
    """Tokens a query can see, itself included. [tokens]"""

    def kept_tokens(self, context_tokens: int) -> int:
        return min(self.window_tokens, context_tokens)

    @property
    def knee_tokens(self) -> int | None:
        return self.window_tokens


class ChunkedAttention(_HeadedKv):
    """Attention inside aligned chunks (Llama 4's local layers): a chunk's tokens go when it ends."""

    kind: Literal["chunked_attention"] = "chunked_attention"
    title: ClassVar[str] = "chunked local"
    chunk_tokens: int
    """Length of a chunk. [tokens]"""

    def kept_tokens(self, context_tokens: int) -> int:
        return min(self.chunk_tokens, context_tokens)

    @property
    def knee_tokens(self) -> int | None:
        return self.chunk_tokens


class LatentAttention(_Group):
    """MLA: one latent and one rotary key per token and layer, no factor of two, whole on every TP rank.

    Source: DeepSeek-V2, arXiv 2405.04434, section 2.1.2, equations 9 to 13 and table 1.
    """

    kind: Literal["latent_attention"] = "latent_attention"
    title: ClassVar[str] = "latent (MLA)"
    query_heads: int
    """Query heads of one layer. [heads]"""
    latent_dim: int
    """Width of the compressed key and value, ``kv_lora_rank``. [values]"""
    rope_dim: int
    """Width of the shared rotary key, ``qk_rope_head_dim``. [values]"""
    reads_at_most_tokens: int | None = None
    """Tokens a decode step reads of each sequence, when a sparse indexer picks them. All are stored. [tokens]"""

    def heads_on_rank(self, tp: int) -> int:
        return 1

    def bits_per_token(self, kv: KvFormat, *, tp: int) -> Fraction:
        return kv.latent_bits(self.latent_dim, self.rope_dim)

    def splits_over_dcp(self) -> bool:
        return True

    @property
    def query_heads_that_split(self) -> tuple[tuple[str, int], ...]:
        return (("num_attention_heads", self.query_heads),)


class IndexerKeys(_Group):
    """The keys a sparse-attention indexer scores: one per token, FP8 with one FP32 scale in every engine we
    read (vLLM, SGLang), whatever the KV precision, and whole on every TP rank.

    Source: vLLM 0.32 ``DeepseekV32IndexerCache``; GLM-5.1 start-up logs.
    """

    kind: Literal["indexer_keys"] = "indexer_keys"
    title: ClassVar[str] = "indexer keys"
    key_dim: int
    """Width of one index key, ``index_head_dim``. [values]"""
    key_bits: int = 8
    """Bits of one stored value: FP8, or BF16 in MiniMax-M3. [bits]"""
    scale_bits: int = 32
    """Bits of the scale stored with each key. [bits]"""
    tokens_per_key: int = 1
    """Tokens one key stands for: GLM-5-Next pools 16. [tokens]"""

    def heads_on_rank(self, tp: int) -> int:
        return 1

    def bits_per_token(self, kv: KvFormat, *, tp: int) -> Fraction:
        return Fraction(self.key_bits * self.key_dim + self.scale_bits, self.tokens_per_key)

    def splits_over_dcp(self) -> bool:
        return True


_MLA_SCALE_BITS = 32


class CompressedAttention(_Group):
    """DeepSeek-V4: a short window of latents, and past it one compressed latent per ``ratio`` tokens.

    Layers of ratio 0 keep the window alone. ``index_dim`` is the width of the compressed index key that
    ratio-4 layers add, 0 where there is none.
    """

    kind: Literal["compressed_attention"] = "compressed_attention"
    title: ClassVar[str] = "compressed"
    query_heads: int
    """Query heads of one layer. [heads]"""
    latent_dim: int
    """Width of the stored latent without its rotary part. [values]"""
    rope_dim: int
    """Width of the rotary part. [values]"""
    ratio: int
    """Tokens one compressed latent stands for; 0 keeps the window only. [tokens]"""
    window_tokens: int
    """Uncompressed tokens kept beside it. [tokens]"""
    index_dim: int = 0
    """Width of the compressed index key. [values]"""
    reads_at_most_tokens: int | None = None
    """Compressed latents a decode step reads, when an indexer picks them. [tokens]"""

    def heads_on_rank(self, tp: int) -> int:
        return 1

    def entry_bits(self, kv: KvFormat) -> Fraction:
        """Bits of one stored latent. The packed FP8 layout scales each 64 values with one byte, in whole eights
        (448 + 64 x 2 + 8 = 584 bytes), where MLA's has FP32 scales.

        Source: vLLM 0.32 ``models/deepseek_v4/attention.py``, ``state_content_bytes``.
        """
        if kv.rope_bits is None or kv.scale_bits != _MLA_SCALE_BITS:
            return kv.latent_bits(self.latent_dim, self.rope_dim)
        scale_bytes = ceil_div(ceil_div(self.latent_dim, 64), 8) * 8
        return self.latent_dim * rational(kv.value_bits) + self.rope_dim * rational(kv.rope_bits) + 8 * scale_bytes

    def bits_per_token(self, kv: KvFormat, *, tp: int) -> Fraction:
        """Bits per token of context that grow without bound."""
        if not self.ratio:
            return Fraction(0)
        index = Fraction(8 * self.index_dim + 32) if self.index_dim else Fraction(0)
        return (self.entry_bits(kv) + index) / self.ratio

    def fixed_bytes(self, kv: KvFormat, state: StateFormat, *, tp: int) -> int:
        bits = self.window_tokens * self.entry_bits(kv)
        return ceil_div(bits.numerator, 8 * bits.denominator)

    @property
    def knee_tokens(self) -> int | None:
        return None if self.ratio else self.window_tokens

    @property
    def query_heads_that_split(self) -> tuple[tuple[str, int], ...]:
        return (("num_attention_heads", self.query_heads),)


class RecurrentState(_Group):
    """A fixed-size state per sequence: Mamba, Gated DeltaNet, KDA, lightning, RWKV, short convolution.

    Per GPU: ``conv_tokens`` rows of the convolution's channels, and the state matrix, both split by head.
    """

    kind: Literal["recurrent_state"] = "recurrent_state"
    title: ClassVar[str] = "recurrent state"
    grows: ClassVar[bool] = False
    family: Literal["mamba1", "mamba2", "gated_delta_net", "kda", "lightning", "rwkv", "short_conv"]
    """The recurrence; engines differ in what they keep for each."""
    heads: int
    """Heads (or channels) that tensor parallelism must divide. [heads]"""
    conv_tokens: int
    """Past tokens the short convolution needs, its kernel less one. [tokens]"""
    conv_channels: int
    """Convolution channels that split over TP, group channels apart. [values]"""
    conv_group_channels: int = 0
    """Convolution channels of one group (Mamba-2's B and C: 2 N). [values]"""
    conv_groups: int = 0
    """Groups; when TP exceeds them they repeat so that each rank holds whole groups. [groups]"""
    state_values: int = 0
    """Values of the state matrix of one layer, split over TP. [values]"""
    state_precision: str | None = None
    """Precision of the state as the model declares it; None when it does not. Convolutions stay 16-bit."""

    def conv_channels_on_rank(self, tp: int) -> int:
        """Convolution channels one GPU holds. [values]"""
        groups = ceil_div(self.conv_groups, tp) if self.conv_groups else 0
        return ceil_div(self.conv_channels, tp) + groups * self.conv_group_channels

    def conv_bytes(self, state: StateFormat, *, tp: int, extra_tokens: int = 0) -> int:
        """Convolution state of one layer; speculative tokens lengthen it. [bytes/GPU]"""
        return (self.conv_tokens + extra_tokens) * self.conv_channels_on_rank(tp) * state.conv_bytes_per_value

    def state_bytes(self, state: StateFormat, *, tp: int) -> int:
        """State matrix of one layer. [bytes/GPU]"""
        return ceil_div(self.state_values, tp) * state.bytes_for(self.state_precision)

    def fixed_bytes(self, kv: KvFormat, state: StateFormat, *, tp: int) -> int:
        return self.conv_bytes(state, tp=tp) + self.state_bytes(state, tp=tp)

    def kept_tokens(self, context_tokens: int) -> int:
        return 0

    @property
    def heads_that_split(self) -> tuple[tuple[str, int], ...]:
        return (("linear attention heads", self.heads),) if self.heads else ()


class CrossAttention(_HeadedKv):
    """Keys and values of another sequence (encoder output, image tokens), held once per request."""

    kind: Literal["cross_attention"] = "cross_attention"
    title: ClassVar[str] = "cross attention"
    grows: ClassVar[bool] = False
    source_tokens: int
    """Encoder or image tokens held per request. [tokens]"""

    def bits_per_token(self, kv: KvFormat, *, tp: int) -> Fraction:
        return Fraction(0)

    def source_bits_per_token(self, kv: KvFormat, *, tp: int) -> Fraction:
        """Bits one layer holds per encoder or image token on one GPU."""
        return super().bits_per_token(kv, tp=tp)

    def kept_tokens(self, context_tokens: int) -> int:
        return 0

    def fixed_bytes(self, kv: KvFormat, state: StateFormat, *, tp: int) -> int:
        bits = self.source_tokens * self.source_bits_per_token(kv, tp=tp)
        return ceil_div(bits.numerator, 8 * bits.denominator)


class SharedKv(_Group):
    """Layers that read another layer's cache and store nothing (Gemma 3n/4, YOCO)."""

    kind: Literal["shared_kv"] = "shared_kv"
    title: ClassVar[str] = "shares another layer's KV"
    grows: ClassVar[bool] = False
    source_layer: int | None = None
    """Index of the layer whose cache they read again each step; None where no earlier layer of their kind keeps one."""

    def heads_on_rank(self, tp: int) -> int:
        return 0

    def kept_tokens(self, context_tokens: int) -> int:
        return 0


LayerGroup = Annotated[
    FullAttention
    | SlidingAttention
    | ChunkedAttention
    | LatentAttention
    | IndexerKeys
    | CompressedAttention
    | RecurrentState
    | CrossAttention
    | SharedKv,
    Field(discriminator="kind"),
]
