"""Tokens in a block of each group, and the units of block tables, hashes and hits over all groups.

Blocks have the same bytes in all groups and may hold different numbers of tokens. Block tables grow
by the greatest common divisor of these numbers, and hits end at multiples of the least common
multiple. A hash covers the divisor or a `prefix_match_unit` that divides it (vLLM 0.33,
v1/core/kv_cache_utils.py, `resolve_kv_cache_block_sizes` and `partial_hash_hits_enabled`). How many
tokens a block holds is decided in grouping.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, lcm
from typing import Self

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import ceil_div
from kvsim.support.parts import ServerParts
from kvsim.support.table import check
from kvsim.vllm.grouping import BlockGroup
from kvsim.vllm.rules import BlockRules
from kvsim.vllm.versions import NEWEST


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of blocks, hashes and hits over all groups, in tokens.

    blocks: a block of each group; least: the smallest block. unit: the greatest common divisor of
    the blocks; whole: their least common multiple. match: tokens that one hash covers. aligned:
    hits end at multiples of it.
    """

    blocks: tuple[int, ...]
    least: int
    unit: int
    whole: int
    match: int
    aligned: int

    @classmethod
    def of(
        cls,
        groups: Sequence[BlockGroup],
        match_unit: int | None,
        *,
        caching: bool,
        rules: BlockRules = NEWEST.blocks,
    ) -> Self:
        """The sizes of these groups; blocks of states count only with prefix caching (`caching`).

        match_unit: prefix_match_unit; None: the common divisor. InputError for a match unit that
        does not divide every block, and for sizes with which an engine of these rules fails.
        """
        blocks = tuple(group.block_size for group in groups)
        counted = [group.block_size for group in groups if caching or not group.state_bytes]
        unit, whole = gcd(*(counted or blocks)), lcm(*(counted or blocks))
        match = match_unit or unit
        if unit % match:
            raise InputError(
                "not a divisor of the block size",
                where="allocator.prefix_match_unit",
                value=match,
                limit=f"of {unit}",
            )
        inner = caching and any(group.state_bytes and group.block_size > match for group in groups)
        windows = all(group.kind != "sliding" or group.block_size == match for group in groups)
        if caching:
            _refuse(groups, rules, match, fails=inner and not windows)
        inner &= windows
        return cls(blocks, min(blocks), unit, whole, match, match if inner else whole)

    @property
    def inner(self) -> bool:
        """Whether hits may end inside blocks."""
        return self.aligned < self.whole

    @property
    def same(self) -> bool:
        """Whether all blocks hold the same number of tokens, and one hash covers a block."""
        return self.match == self.whole

    def positions(self, g: int, units: int) -> int:
        """Number of blocks of group g that hold `units` block table units (see `unit`)."""
        return ceil_div(units * self.unit, self.blocks[g])

    def cacheable(self, tokens: int, block_size: int, *, drops: bool, redrafted: int = 0) -> int:
        """Number of `tokens` computed tokens that may be cached in blocks of block_size tokens.

        This is the last place where a hit can end; one block more if hits drop their last block
        (drops). redrafted: last tokens that chained draft modules may write again, which are then
        left out.
        """
        if not drops:
            return tokens if self.inner else tokens // self.whole * self.whole
        final = max(0, tokens - redrafted)
        if self.inner or tokens < self.whole:
            return final if self.inner else 0
        return min(final, final // self.whole * self.whole + block_size)


def _refuse(groups: Sequence[BlockGroup], rules: BlockRules, match: int, *, fails: bool) -> None:
    """InputError for sizes with which the version fails. fails: hits could end inside blocks of
    states at places where no block of some window ends.
    """
    full = {group.block_size for group in groups if group.kind in ("full", "mla")}
    parts = ServerParts(
        rules=rules.name,
        options=(("prefix_match_unit", match),),
        parted=fails and not rules.parts_inside,
        full_blocks=() if rules.trims_every_kind else tuple(sorted(full)),
    )
    check(parts)
