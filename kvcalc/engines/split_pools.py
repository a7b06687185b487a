"""Engines that cut the cache memory into one pool per kind of layer: a request must fit in each of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from kvcalc.engines.base import Plan
from kvcalc.units import fmt_count


@dataclass(frozen=True, kw_only=True)
class SplitPlan(Plan):
    """A model laid out over one pool per row; the first row is the pool the engine reports."""

    @abstractmethod
    def pool_blocks(self, pool_bytes: int) -> tuple[int, ...]:
        """Blocks of each row's pool, out of this many bytes per GPU. [blocks]"""

    def num_blocks(self, pool_bytes: int) -> int:
        return self.pool_blocks(max(0, pool_bytes))[0] if self.rows else 0

    def blocks_per_request(self, context_tokens: int) -> int:
        return self.rows[0].charged.blocks(context_tokens) if self.rows else 0

    def reserved_bytes(self, context_tokens: int) -> int:
        return sum(row.held.blocks(context_tokens) * row.block_bytes for row in self.rows)

    def needed_bytes(self, max_model_len: int) -> int:
        return sum(row.charged.blocks(max_model_len) * row.block_bytes for row in self.rows)

    def planned_requests(self, pool_bytes: int, max_model_len: int) -> Fraction:
        return min(
            self._shares(pool_bytes, [row.charged.blocks(max_model_len) for row in self.rows]), default=Fraction(0)
        )

    def requests_at(self, pool_bytes: int, context_tokens: int) -> int:
        shares = self._shares(pool_bytes, [row.held.blocks(context_tokens) for row in self.rows])
        return min((share.numerator // share.denominator for share in shares), default=0)

    def side_by_side(self, pool_bytes: int, context_tokens: int) -> Fraction:
        taken = [row.held.blocks(context_tokens) for row in self.rows]
        return min(self._shares(pool_bytes, taken), default=Fraction(0))

    @property
    def has_one_pool(self) -> bool:
        return len(self.rows) == 1

    def handed_out(self, pool_bytes: int, context_tokens: int) -> tuple[str, str]:
        pools = zip(self.rows, self.pool_blocks(max(0, pool_bytes)), strict=True)
        shares = [
            (row.title, f"{fmt_count(pool)} ÷ {fmt_count(row.held.blocks(context_tokens))}") for row, pool in pools
        ]
        if len(shares) == 1:
            return "blocks ÷ blocks per request, rounded down", shares[0][1]
        numbers = ", ".join(f"{title} {share}" for title, share in shares)
        return "the smallest of each pool's blocks ÷ blocks per request, rounded down", numbers

    def _shares(self, pool_bytes: int, blocks: list[int]) -> list[Fraction]:
        """Requests each pool can hold, when each takes this many of its blocks."""
        pools = self.pool_blocks(max(0, pool_bytes))
        return [Fraction(pool, taken) for pool, taken in zip(pools, blocks, strict=True) if taken]

    def fitting(self, pool_bytes: int) -> Callable[[int], bool]:
        pools = tuple(zip(self.pool_blocks(max(0, pool_bytes)), self.rows, strict=True))
        return lambda max_model_len: all(row.charged.blocks(max_model_len) <= pool for pool, row in pools)
