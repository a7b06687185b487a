"""What a prefix cache saves: whole blocks of a prompt that are not computed again, and held once for all sharers."""

from __future__ import annotations

from kvcalc.engines import Plan
from kvcalc.errors import Record
from kvcalc.units import fmt_bytes, fmt_count, fmt_tokens


class PrefixSaving(Record):
    """A shared prefix, as far as the engine's cache can use it."""

    block_tokens: int
    """Hits are whole multiples of this. [tokens]"""
    cached_tokens: int
    """Prefix the scenario says requests share. [tokens]"""
    usable_tokens: int
    """Tokens of it that are not computed again. [tokens]"""
    bytes_per_sharer: int
    """KV that each further request with this prefix does not need. [bytes/GPU]"""
    requests_when_shared: int
    """Requests the KV pool holds when all of them share the prefix. [requests]"""
    sentence: str
    """The same in words."""

    def saved_bytes(self, sharers: int) -> int:
        """KV saved among this many requests: the first one pays for the prefix. [bytes/GPU]"""
        return max(0, sharers - 1) * self.bytes_per_sharer


def usable_cached_tokens(
    plan: Plan, *, cached_prompt_tokens: int, prompt_tokens: int, prefix_caching: bool = True
) -> int:
    """Cached tokens of a prompt that an engine really skips: whole blocks, and never the last token of the prompt.

    Equation   floor(min(cached, prompt - 1) / block) x block, 0 with prefix caching off

    Parameters
    ----------
    plan : the engine's layout, which says how long its blocks are; a hybrid's may hold a thousand tokens.
    cached_prompt_tokens, prompt_tokens : shared prefix and whole prompt. [tokens]
    prefix_caching : whether finished prompts stay reusable.

    Returns
    -------
    int. [tokens]

    Source
    ------
    vLLM 0.32 ``vllm/v1/core/kv_cache_manager.py`` get_computed_blocks: the last token is computed, to sample from.
    """
    if not prefix_caching:
        return 0
    block = plan.prefix_block_tokens
    return max(0, min(cached_prompt_tokens, prompt_tokens - 1)) // block * block


def shared_bytes_per_request(plan: Plan, *, context_tokens: int, usable_tokens: int) -> int:
    """KV of a request that stands in blocks it shares: what it holds less what it would hold without the prefix.

    Windows hold no more of a prefix than they see, states none: the difference counts both. [bytes/GPU]
    """
    if not plan.shares_prefixes or not usable_tokens:
        return 0
    return plan.reserved_bytes(context_tokens) - plan.reserved_bytes(context_tokens - usable_tokens)


def prefix_saving(
    plan: Plan,
    *,
    pool_bytes: int,
    cached_prompt_tokens: int,
    prompt_tokens: int,
    context_tokens: int,
    prefix_caching: bool = True,
) -> PrefixSaving:
    """What the shared prefix of a scenario saves in tokens computed and in KV held.

    pool_bytes is one GPU's KV pool; the other parameters as ``usable_cached_tokens``. [bytes/GPU]
    """
    usable = usable_cached_tokens(
        plan, cached_prompt_tokens=cached_prompt_tokens, prompt_tokens=prompt_tokens, prefix_caching=prefix_caching
    )
    each = shared_bytes_per_request(plan, context_tokens=context_tokens, usable_tokens=usable)
    alone = plan.requests_at(pool_bytes, context_tokens)
    # The prefix is held once; after that a request needs only what is its own.
    together = plan.requests_at(pool_bytes - each, context_tokens - usable) if each and alone else alone
    return PrefixSaving(
        block_tokens=plan.prefix_block_tokens,
        cached_tokens=cached_prompt_tokens,
        usable_tokens=usable,
        bytes_per_sharer=each,
        requests_when_shared=max(alone, together),
        sentence=_sentence(plan, cached_prompt_tokens, usable, each, prefix_caching=prefix_caching),
    )


def _sentence(plan: Plan, cached: int, usable: int, each: int, *, prefix_caching: bool) -> str:
    if not prefix_caching:
        return "Prefix caching is off: a shared prefix saves nothing."
    block = plan.prefix_block_tokens
    if not usable:
        return f"{fmt_count(cached)} shared tokens do not fill one block of {fmt_tokens(block)}: nothing is saved."
    skipped = f"{fmt_tokens(usable)} of {fmt_tokens(cached)} shared tokens are not computed again"
    if not each:
        return f"{skipped}; each request still holds its own copy."
    return f"{skipped}, and each further request needs {fmt_bytes(each)} less per GPU."
