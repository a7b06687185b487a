"""vLLM: one pool of equal blocks per GPU, dealt to requests group by group.

Source: vLLM 0.32 ``v1/core/kv_cache_utils.py`` (pool, concurrency, start-up check),
``v1/core/single_type_kv_cache_manager.py`` (what a running request holds); older releases: ``vllm_versions``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from kvcalc.engines.base import (
    EngineDefaults,
    Line,
    Plan,
    Row,
    Settings,
    check_engine_layout,
    layers_per_stage,
    parse_version,
)
from kvcalc.engines.formats import stored_format
from kvcalc.engines.vllm_groups import Bucket, buckets_of
from kvcalc.engines.vllm_pages import Cache, Storage, caches_of, default_block
from kvcalc.engines.vllm_versions import NEWEST, Rules, rules_of
from kvcalc.errors import Note, ScenarioError
from kvcalc.model_spec import ModelSpec
from kvcalc.precision import state_format
from kvcalc.units import ceil_div, fmt_count


@dataclass(frozen=True, kw_only=True)
class VllmPlan(Plan):
    """A model laid out by one release of vLLM: one pool of equal blocks."""

    charged: tuple[Line, ...]
    held: tuple[Line, ...]
    rules: Rules
    dcp: int
    layer_checks: tuple[tuple[Line, int], ...] | None = None
    """Charge and page bytes of each cache in the start-up check of releases that ignored groups."""

    def blocks_per_request(self, context_tokens: int) -> int:
        return sum(line.blocks(context_tokens) for line in self.charged)

    def reserved_bytes(self, context_tokens: int) -> int:
        return sum(line.blocks(context_tokens) for line in self.held) * self.bytes_per_block

    def num_blocks(self, pool_bytes: int) -> int:
        return max(0, pool_bytes) // self.bytes_per_block if self.bytes_per_block else 0

    def requests_at(self, pool_bytes: int, context_tokens: int) -> int:
        """All but the null block, which the pool keeps for itself in every release."""
        blocks = sum(line.blocks(context_tokens) for line in self.held)
        return max(0, self.num_blocks(pool_bytes) - 1) // blocks if blocks else 0

    def side_by_side(self, pool_bytes: int, context_tokens: int) -> Fraction:
        blocks = sum(line.blocks(context_tokens) for line in self.held)
        return Fraction(max(0, self.num_blocks(pool_bytes) - 1), blocks) if blocks else Fraction(0)

    def handed_out(self, pool_bytes: int, context_tokens: int) -> tuple[str, str]:
        blocks = sum(line.blocks(context_tokens) for line in self.held)
        numbers = f"({fmt_count(max(1, self.num_blocks(pool_bytes)))} − 1) ÷ {fmt_count(blocks)}"
        return "(blocks − the one vLLM keeps empty) ÷ blocks per request, rounded down", numbers

    def planned_requests(self, pool_bytes: int, max_model_len: int) -> Fraction:
        blocks = self.blocks_per_request(max_model_len)
        return Fraction(self.num_blocks(pool_bytes), blocks) if blocks else Fraction(0)

    def needed_bytes(self, max_model_len: int) -> int:
        """Bytes the start-up check wants. [bytes/GPU]"""
        if self.layer_checks is None:
            return self.blocks_per_request(max_model_len) * self.bytes_per_block
        return sum(line.blocks(max_model_len) * page for line, page in self.layer_checks)

    def fitting(self, pool_bytes: int) -> Callable[[int], bool]:
        room = pool_bytes - (self.bytes_per_block if self.rules.null_block_in_check else 0)
        return lambda max_model_len: 0 < self.needed_bytes(max_model_len) <= room

    def reported_tokens(self, pool_bytes: int, max_model_len: int) -> int:
        if self.rules.tokens_from_concurrency:
            planned = self.planned_requests(pool_bytes, max_model_len) * max_model_len
            return planned.numerator // planned.denominator
        groups = sum(row.groups for row in self.rows)
        smallest = min((line.block_tokens for line in self.charged), default=0)
        return self.num_blocks(pool_bytes) // groups * smallest * self.dcp if groups else 0


class Vllm:
    """vLLM's way of planning."""

    id = "vllm"
    label = "vLLM"
    defaults = EngineDefaults(
        newest_version=NEWEST,
        block_size=16,
        memory_pct=92,
        memory_option="--gpu-memory-utilization",
        memory_meaning="of the card's total memory, for everything the engine uses",
        source="vLLM 0.32 vllm/config/cache.py: https://docs.vllm.ai/en/latest/configuration/engine_args.html",
    )

    def frees_windows(self, spec: ModelSpec) -> bool:
        """Yes, except for chunked layers (Llama 4), for which vLLM turns its hybrid manager off by itself.
        Source: vLLM 0.32 ``config/vllm.py``, VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE."""
        return not any(group.kind == "chunked_attention" for group in spec.layer_groups)

    def plan(self, spec: ModelSpec, settings: Settings) -> VllmPlan:
        """The model laid out by this release. Raises ScenarioError for a layout vLLM refuses."""
        check_engine_layout(spec, settings)
        rules = rules_of(settings.engine_version)
        kv, notes = stored_format(spec, settings, engine=self.id, label=self.label)
        storage = Storage(settings, rules, kv, state_format(settings.state_precision))
        caches = caches_of(spec, storage)
        buckets = buckets_of(caches, rules, forgets=settings.hybrid_manager and rules.grouped)
        _check_started(spec, buckets, settings)
        rows = tuple(_row(bucket, storage, copies=storage.copies_per_block(spec)) for bucket in buckets)
        parts: tuple[range | None, ...] = (None,) if settings.pp == 1 else layers_per_stage(spec, settings.pp)
        return VllmPlan(
            engine=self.id,
            bytes_per_block=max((bucket.block_bytes(part) for bucket in buckets for part in parts), default=0),
            block_size=_block_size(buckets) or settings.block_size or default_block(spec),
            rows=rows,
            charged=tuple(row.charged for row in rows),
            held=tuple(row.held for row in rows),
            model_limit=spec.max_context_tokens,
            notes=(*notes, *_notes(spec, settings, rules)),
            rules=rules,
            dcp=settings.dcp,
            layer_checks=None if rules.checks_whole_blocks else _layer_checks(buckets, rows, parts),
        )


def _check_started(spec: ModelSpec, buckets: tuple[Bucket, ...], settings: Settings) -> None:
    """Refuse what vLLM refuses to start. Raises ScenarioError."""
    keeps = {cache.keeps for bucket in buckets for cache in bucket.caches}
    if settings.dcp > 1 and keeps & {"window", "chunk"}:
        raise ScenarioError(
            "dcp", "1 for a model with windows or chunks", settings.dcp, hint="vLLM does not split them; use dcp 1."
        )
    if not settings.hybrid_manager and spec.has_recurrent_state and len(keeps) > 1:
        raise ScenarioError(
            "hybrid_manager", "on for a model with recurrent states and attention", "off", hint="Turn it on again."
        )


def _row(bucket: Bucket, storage: Storage, *, copies: bool) -> Row:
    first = bucket.caches[0]
    return Row(
        title=" and ".join(dict.fromkeys(cache.title for cache in bucket.caches)),
        layers=bucket.layers,
        groups=bucket.groups,
        padding_layers=bucket.padding_layers,
        block_tokens=0 if first.keeps == "state" else first.block_tokens,
        page_bytes=max(cache.page_bytes for cache in bucket.caches),
        padding_bytes=max(cache.page_bytes - cache.used_bytes for cache in bucket.caches),
        block_bytes=bucket.block_bytes(None),
        charged=_charged(first, bucket.groups, storage, copies=copies),
        held=_held(first, bucket.groups, storage, copies=copies),
    )


def _block_size(buckets: tuple[Bucket, ...]) -> int:
    caches = [cache for bucket in buckets for cache in bucket.caches if cache.keeps != "state"]
    whole = [cache.block_tokens for cache in caches if cache.keeps == "all"]
    return max(whole or [cache.block_tokens for cache in caches], default=0)


def _in_flight(settings: Settings, rules: Rules) -> int:
    """Tokens scheduled but not yet settled, which windows keep for. [tokens]"""
    if not rules.batches_in_flight:
        return settings.max_num_batched_tokens
    return (settings.pp + settings.async_scheduling) * settings.max_num_batched_tokens


def _charged(cache: Cache, groups: int, storage: Storage, *, copies: bool) -> Line:
    """What one request is charged in each group of a bucket when vLLM plans."""
    tokens = _in_flight(storage.settings, storage.rules)
    if cache.keeps == "window":
        # One block more: the window may start in the middle of a block.
        return Line(cache.block_tokens, cache.span_tokens - 1 + tokens, 1, groups=groups)
    if cache.keeps == "chunk":
        return Line(cache.block_tokens, cache.span_tokens + tokens, groups=groups)
    if cache.keeps == "state" and not copies:
        checkpoint = storage.rules.mamba2_checkpoint_pages if cache.shape == ("mamba2",) else 0
        caching = storage.settings.prefix_caching and storage.rules.prefix_copies != "none"
        return _fixed(cache, groups, _state_pages(storage) + (checkpoint if caching else 0))
    return _lasting(cache, groups, storage)


def _held(cache: Cache, groups: int, storage: Storage, *, copies: bool) -> Line:
    """What one request holds in each group of a bucket while it decodes, at the worst alignment."""
    if cache.keeps == "window":
        span = cache.span_tokens - 1 + storage.settings.speculative_tokens
        return _capped(cache, groups, ceil_div(span, cache.block_tokens) + 1)
    if cache.keeps == "chunk":
        straddles = cache.span_tokens % cache.block_tokens > 0
        return _capped(cache, groups, ceil_div(cache.span_tokens, cache.block_tokens) + straddles)
    if cache.keeps == "state" and not copies:
        return _fixed(cache, groups, _state_pages(storage))
    return _lasting(cache, groups, storage)


def _state_pages(storage: Storage) -> int:
    """Pages of one state a running request keeps: its own, one per drafted token, one cached copy. [pages]"""
    copy = storage.settings.prefix_caching and storage.rules.prefix_copies != "none"
    return 1 + storage.settings.speculative_tokens + copy


def _fixed(cache: Cache, groups: int, pages: int) -> Line:
    return Line(cache.block_tokens, most_tokens=0, extra_blocks=pages, groups=groups)


def _capped(cache: Cache, groups: int, blocks: int) -> Line:
    return Line(cache.block_tokens, most_tokens=blocks * cache.block_tokens, groups=groups)


def _lasting(cache: Cache, groups: int, storage: Storage) -> Line:
    """Lines that do not depend on what is in flight."""
    if cache.keeps == "source":
        return _fixed(cache, groups, ceil_div(cache.span_tokens, cache.block_tokens))
    if cache.keeps == "state":
        return Line(cache.block_tokens, extra_blocks=storage.settings.speculative_tokens, groups=groups)
    return Line(cache.block_tokens, ranks=storage.settings.dcp if cache.splits_over_dcp else 1, groups=groups)


def _layer_checks(
    buckets: tuple[Bucket, ...], rows: tuple[Row, ...], parts: tuple[range | None, ...]
) -> tuple[tuple[Line, int], ...]:
    """Start-up check up to 0.16: every layer's own pages on the busiest stage, without padding layers."""

    def checks(part: range | None) -> tuple[tuple[Line, int], ...]:
        return tuple(
            (replace(row.charged, groups=1), cache.layers_on(part) * cache.page_bytes)
            for bucket, row in zip(buckets, rows, strict=True)
            for cache in bucket.caches
        )

    return max((checks(part) for part in parts), key=lambda pages: sum(page for _, page in pages))


def _notes(spec: ModelSpec, settings: Settings, rules: Rules) -> list[Note]:
    found = []
    if settings.engine_version and parse_version(settings.engine_version)[:2] > parse_version(NEWEST)[:2]:
        found.append(Note(field="engine_version", text=f"Newer than {NEWEST}, whose rules are used."))
    if settings.speculative_tokens and not spec.mtp_layers:
        found.append(
            Note(field="speculative_tokens", text="The drafter's own KV cache is not counted: the config names none.")
        )
    if spec.has_recurrent_state and settings.prefix_caching and not rules.prefix_caching_for_states:
        found.append(
            Note(
                field="prefix_caching",
                text="Before 0.26 vLLM left prefix caching off for models with recurrent states; counted as on.",
            )
        )
    if settings.hybrid_manager and rules.grouped and any(g.kind == "chunked_attention" for g in spec.layer_groups):
        text = "vLLM turns the hybrid manager off for chunked layers unless an environment variable keeps it on."
        found.append(Note(field="hybrid_manager", text=text))
    if not rules.grouped and any(group.kind == "sliding_attention" for group in spec.layer_groups):
        found.append(Note(field="engine_version", text="Before 0.9.2 vLLM stored sliding-window layers in full."))
    return found
