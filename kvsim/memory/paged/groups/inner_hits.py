"""Hits that end inside a block, where prefixes are matched in units smaller than blocks.

Full attention is known to the last whole block, and inside the next one wherever somebody's prompt
ended; a recurrent state is known where a chunk ended. Blocks that hold states are long (hundreds of
tokens and more), so that a prefix shorter than a block would never be hit otherwise. vLLM 0.33,
v1/core/single_type_kv_cache_manager.py, with `prefix_match_unit` below the block size.
"""

from collections.abc import Sequence

from kvsim.memory.paged.block_pool import BlockPool
from kvsim.memory.paged.groups.grouping import BlockGroup
from kvsim.memory.paged.groups.hits import Hits
from kvsim.plumbing.errors import InputError


def inner_unit(asked: int | None, groups: Sequence[BlockGroup], block_size: int) -> int | None:
    """The unit that hits end at inside blocks; None: at blocks. InputError for one that does not
    divide the block, or in which the groups beside the states cannot be matched.
    """
    if asked is None or asked == block_size:
        return None
    where = "allocator.prefix_match_unit"
    if block_size % asked:
        raise InputError(
            "not a divisor of the block size", where=where, value=asked, limit=f"of {block_size}"
        )
    kinds = {group.kind for group in groups}
    if "recurrent" not in kinds or "sliding" in kinds:
        raise InputError(
            "only states beside full attention are matched inside a block",
            where=where,
            value=asked,
            remedy="leave it out",
        )
    return asked


class InnerHits:
    """Looks prefixes up unit by unit. states: which groups of layers hold recurrent states, the
    others being full attention. drops: full attention loses the last unit it knows, which may lie
    behind the prefix (see hits.py) if beyond. units: of a block.
    """

    def __init__(
        self,
        pool: BlockPool,
        states: Sequence[bool],
        unit_tokens: int,
        units: int,
        *,
        drops: bool = False,
        beyond: bool = True,
    ) -> None:
        self._pool, self._num, self._drops = pool, len(states), drops
        self._beyond = drops and beyond
        self._full = [g for g, state in enumerate(states) if not state]
        self._recurrent = [g for g, state in enumerate(states) if state]
        self._unit, self._units = unit_tokens, units

    def find(self, keys: Sequence[int], most: int) -> Hits:
        """The longest prefix of the units named by `keys`, at most `most` of them, that every group
        can continue from.
        """
        known, whole, end = most, 0, most
        if self._full:
            within = keys[: min(most + self._beyond, len(keys))]
            whole = self._whole_blocks(within)
            end = self._inside(within, whole * self._units)
            known = max(0, end - self._drops)
        count = known
        while count and not self._all_know(self._recurrent, keys[count - 1]):
            count -= 1
        run = [*keys[self._units - 1 : count : self._units]]
        if count % self._units:
            ends_in = (len(run) + 1) * self._units  # the block that the prefix ends in
            run.append(keys[(ends_in if len(run) < whole else end) - 1])
        state = keys[count - 1 : count]
        found = [[*state] if g in self._recurrent else run for g in range(self._num)]
        blocks = tuple(
            self._pool.find([key * self._num + g for key in named]) for g, named in enumerate(found)
        )
        below = max(0, len(run) - 1)
        first = tuple(below if g in self._recurrent else 0 for g in range(self._num))
        junction = known * self._unit if known > count and self._full else 0
        return Hits(count * self._unit, len(run), first, blocks, junction)

    def _all_know(self, members: Sequence[int], key: int) -> bool:
        return all(self._pool.find((key * self._num + g,)) for g in members)

    def _whole_blocks(self, keys: Sequence[int]) -> int:
        """Leading blocks that full attention knows."""
        count = 0
        for key in keys[self._units - 1 :: self._units]:
            if not self._all_know(self._full, key):
                break
            count += 1
        return count

    def _inside(self, keys: Sequence[int], start: int) -> int:
        """Units that full attention knows: `start` of them, and some of the next block."""
        for count in range(min(start + self._units - 1, len(keys)), start, -1):
            if self._all_know(self._full, keys[count - 1]):
                return count
        return start
