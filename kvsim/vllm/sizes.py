"""Tokens in a block, group by group, and the units that groups with different blocks agree on.

Blocks weigh the same in bytes in all groups, so that one pool has them all; what differs is how
many tokens they hold. Tables grow by the greatest common divisor of the sizes, hits end at the
least common multiple, and keys cover the divisor or a `prefix_match_unit` below it (vLLM 0.33,
v1/core/kv_cache_utils.py, `resolve_kv_cache_block_sizes` and `partial_hash_hits_enabled`).
"""

from collections.abc import Sequence
from math import gcd, lcm
from typing import NamedTuple, Self

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import ceil_div
from kvsim.vllm.grouping import BlockGroup
from kvsim.vllm.rules import BlockRules
from kvsim.vllm.versions import NEWEST


class Sizes(NamedTuple):
    """In tokens. blocks: of each group; least: the smallest of them. unit: a divisor of each;
    whole: a multiple of each. match: that one key covers. aligned: hits end at multiples of it.
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
        """As an engine finds them; states count where they are kept in blocks (`caching`).
        InputError for a match unit that does not divide every block, and for sizes that the
        engine's version does not bear.
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
        """Whether all blocks hold as many tokens, and are known by their ends alone."""
        return self.match == self.whole

    def positions(self, g: int, units: int) -> int:
        """Blocks of group g that hold so many units."""
        return ceil_div(units * self.unit, self.blocks[g])

    def cacheable(self, tokens: int, block_size: int, *, drops: bool) -> int:
        """Of so many computed tokens, those that may become known in blocks of this size: up to the
        last place where a hit can end, and a block more where hits lose one.
        """
        if self.inner:
            return tokens
        known = tokens // self.whole * self.whole
        return min(tokens, known + block_size) if drops and known else known


def _refuse(groups: Sequence[BlockGroup], rules: BlockRules, match: int, *, fails: bool) -> None:
    """InputError for what the version does not bear. fails: units inside blocks of states are no
    blocks of some windows.
    """
    if fails and not rules.parts_inside:
        raise InputError(
            f"{rules.name} matches prefixes inside blocks of states, and fails beside windows in"
            " other blocks",
            where="allocator.prefix_match_unit",
            value=match,
            remedy="leave it out, or take another version",
        )
    full = {group.block_size for group in groups if group.kind in ("full", "mla")}
    if len(full) > 1 and not rules.trims_every_kind:
        raise InputError(
            f"{rules.name} takes over more of the second kind of full attention than it has hit,"
            " and writes over it: that is not simulated",
            where="allocator.enable_prefix_caching",
            value=True,
            limit=f"not with blocks of {' and '.join(map(str, sorted(full)))} tokens",
            remedy="set it to false, or take another version",
        )
