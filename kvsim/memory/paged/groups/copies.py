"""Blocks that are written on behind a prefix that others hit, and copied for it.

A hit that ends inside a block is continued in a copy of it: whoever hits takes one block more for
each group of layers. The maker of a recurrent state that is known inside a block goes on in its own
block, and a copy takes over what others find it by. Both ends of a copy stay out of the free queue
until the step is decided (vLLM 0.33, v1/core/sched/scheduler.py, `_free_cow_retained_blocks`).
"""

from collections.abc import Sequence
from typing import NamedTuple

from kvsim.memory.paged.block_pool import BlockPool
from kvsim.memory.paged.kept import OUTPUT


class End(NamedTuple):
    """One end of a copy: a block, its place in its table, and whether that is of a session."""

    block: int
    place: int
    session: bool


class Copies:
    """The copies of the step that is being scheduled. why: what the blocks of each group of layers
    are kept for (see kept.py), but for prompts.
    """

    def __init__(self, pool: BlockPool, why: Sequence[int]) -> None:
        self._pool, self._why = pool, why
        self._ends: dict[int, list[End]] = {}  # by group of layers, in the order they were made

    def of_hit(self, g: int, end: End) -> int:
        """A block to go on in behind what a block holds, of which one owner is who hit it."""
        (copy,) = self._pool.take(1)
        self._ends.setdefault(g, []).append(end)
        return copy

    def of_maker(self, g: int, end: End) -> int:
        """What a block, whose owner goes on in it, was found by, a copy is found by from now on;
        returns the key.
        """
        (copy,) = self._pool.take(1)
        key = self._pool.move_keys(end.block, copy)
        self._pool.share((end.block,))
        self._ends.setdefault(g, []).extend((end, end._replace(block=copy)))
        return key

    @property
    def ends(self) -> list[int]:
        """Blocks, as often as they are held, that nobody holds but for a copy."""
        return [end.block for g in sorted(self._ends) for end in self._ends[g]]

    def num_alone(self, blocks: Sequence[int]) -> int:
        """How many of these blocks are held only for copies."""
        ends = self.ends if self._ends else ()
        return sum(b in ends and self._pool.num_owners(b) == ends.count(b) for b in blocks)

    def decided(self) -> None:
        """The copies run with the step: their ends return to the pool."""
        for g in sorted(self._ends):
            for block, place, session in self._ends[g]:
                # What is known inside a block is the end of a prompt.
                num_prompt, why = int(self._why[g] == OUTPUT), self._why[g]
                self._pool.give_back_by_keys((block,), (place,), why, num_prompt, session=session)
        self._ends.clear()
