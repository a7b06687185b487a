"""How vLLM deals layers over block tables, so that every block of the shared pool is equally large.

Source: vLLM 0.32 ``v1/core/kv_cache_utils.py``: ``get_kv_cache_groups`` and the functions it calls.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kvcalc.engines.vllm_pages import Cache
from kvcalc.engines.vllm_versions import Rules
from kvcalc.errors import ScenarioError
from kvcalc.units import ceil_div


@dataclass(frozen=True, slots=True)
class Bucket:
    """Layers that behave alike, dealt over ``groups`` block tables of ``places`` layers each."""

    caches: tuple[Cache, ...]
    groups: int
    places: int
    """Layers of each page size a group has room for. [layers]"""

    @property
    def layers(self) -> int:
        """Layers that cache. [layers]"""
        return sum(len(cache.layers) for cache in self.caches)

    @property
    def padding_layers(self) -> int:
        """Places left empty. [layers]"""
        return self.groups * self.places - self.layers if len(self.caches) == 1 else 0

    def block_bytes(self, stage: range | None) -> int:
        """Bytes of the widest group's block, on one pipeline stage or over all layers. [bytes/GPU]"""
        if stage is None:
            return sum(ceil_div(len(cache.layers), self.groups) * cache.page_bytes for cache in self.caches)
        return max(
            sum(_dealt_to(i, self.groups, cache).layers_on(stage) * cache.page_bytes for cache in self.caches)
            for i in range(self.groups)
        )


def _dealt_to(group: int, groups: int, cache: Cache) -> Cache:
    """The layers one group gets when they are dealt in turn."""
    return replace(cache, layers=cache.layers[group::groups])


def buckets_of(caches: tuple[Cache, ...], rules: Rules, *, forgets: bool) -> tuple[Bucket, ...]:
    """The layers of a model as vLLM groups them.

    forgets   whether windows and chunks get block tables of their own (the hybrid manager)
    """
    if not forgets:
        caches = tuple(_kept_in_full(caches))
    if not caches:
        return ()
    if _uniform(caches):
        return (_whole(caches),)
    if any(not cache.can_pad and cache.keeps == "window" for cache in caches):
        return _packed(caches)
    if len({cache.page_bytes for cache in caches}) > 1:
        caches = _equal_pages(caches)
    return _dealt(caches, rules)


def _whole(caches: tuple[Cache, ...]) -> Bucket:
    return Bucket(caches, 1, max(len(cache.layers) for cache in caches))


def _kept_in_full(caches: tuple[Cache, ...]) -> list[Cache]:
    """Windows and chunks stored like full attention, when some layer is full attention."""
    if not any(cache.keeps == "all" for cache in caches):
        return list(caches)
    return [
        replace(cache, keeps="all", splits_over_dcp=True) if cache.keeps in ("window", "chunk") else cache
        for cache in caches
    ]


def _uniform(caches: Iterable[Cache]) -> bool:
    """Whether all need the same token slots, so that one block table serves them."""
    kinds = {(cache.keeps, cache.block_tokens, 0 if cache.keeps == "all" else cache.span_tokens) for cache in caches}
    same_states = len({cache.page_bytes for cache in caches if cache.keeps == "state"}) <= 1
    return len(kinds) == 1 and same_states


def _equal_pages(caches: tuple[Cache, ...]) -> tuple[Cache, ...]:
    """Every page as large as the largest: longer blocks where that divides, else padding."""
    largest = max(cache.page_bytes for cache in caches)
    equal = []
    for cache in caches:
        if cache.page_bytes == largest:
            equal.append(cache)
        elif cache.keeps != "state" and largest % cache.page_bytes == 0:
            equal.append(cache.with_block(largest // cache.page_bytes))
        elif cache.can_pad:
            equal.append(replace(cache, page_bytes=largest))
        else:
            return tuple(_kept_in_full(caches))
    return tuple(equal)


def _dealt(caches: tuple[Cache, ...], rules: Rules) -> tuple[Bucket, ...]:
    if len({cache.page_bytes for cache in caches}) > 1:
        if _uniform(caches):
            return (_whole(caches),)
        raise ScenarioError(
            "engine", "pages of equal size", "this mix of layers", hint="vLLM refuses it; choose another engine."
        )
    counts = [len(cache.layers) for cache in caches]
    places = min(counts)
    if rules.merge_below_ratio is not None and max(counts) < places * rules.merge_below_ratio:
        places = max(counts)
    return tuple(Bucket((cache,), ceil_div(len(cache.layers), places), places) for cache in caches)


def _packed(caches: tuple[Cache, ...]) -> tuple[Bucket, ...]:
    """Pages of several sizes side by side in one block (block-outermost layout, DeepSeek-V4)."""
    alike: list[list[Cache]] = []
    for cache in caches:
        for bucket in alike:
            if _uniform([*bucket, cache]):
                bucket.append(cache)
                break
        else:
            alike.append([cache])
    balanced = [len({len(cache.layers) for cache in bucket}) == 1 for bucket in alike]
    repeats = [max(len(cache.layers) for cache in bucket) for bucket in alike]
    whole = [count for bucket, count, even in zip(alike, repeats, balanced, strict=True) if even and len(bucket) > 1]
    places = _least_padding([c for c, even in zip(repeats, balanced, strict=True) if even], max(whole)) if whole else 0
    return tuple(
        Bucket(tuple(bucket), ceil_div(count, places) if even and places else 1, places if even and places else count)
        for bucket, count, even in zip(alike, repeats, balanced, strict=True)
    )


def _least_padding(counts: list[int], at_least: int) -> int:
    """Group size from ``at_least`` that pads all counts least; the larger of equals."""
    return min(range(at_least, max(counts) + 1), key=lambda size: (sum(-count % size for count in counts), -size))
