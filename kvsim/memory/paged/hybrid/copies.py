"""Blocks that are written on behind a prefix that others hit, and copied for it.

A hit that ends inside a block is continued in a copy of it: whoever hits takes one block more for
each group of layers. The maker of a recurrent state that is known inside a block goes on in its own
block, and a copy takes over what others find it by. Both ends of a copy stay out of the free queue
until the step is decided (vLLM 0.33, v1/core/sched/scheduler.py, `_free_cow_retained_blocks`).
"""

from collections.abc import Iterable, Sequence

from kvsim.memory.paged.extent import OUTPUT, Extent
from kvsim.memory.paged.pool import BlockPool
from kvsim.memory.paged.session_hint import SessionHint


class Copies:
    """The copies of the step that is being scheduled. why: what the blocks of each group of layers
    are kept for, but for prompts.
    """

    def __init__(self, pool: BlockPool, why: Sequence[int]) -> None:
        self._pool, self._why = pool, why
        # In the order they were made: a block, its place in its table, and its session.
        self._ends: list[tuple[Extent, int, SessionHint]] = []

    def of_hit(self, block: Extent, place: int, *, hint: SessionHint) -> None:
        """What a block holds, of which one owner is who hit it, has been copied."""
        self._ends.append((block, place, hint))

    def of_maker(self, block: Extent, copy: Extent, place: int, *, hint: SessionHint) -> int:
        """What a block, whose owner goes on in it, was found by, a copy is found by from now on;
        returns the key.
        """
        keys = self._pool.forget(block)
        for key in keys:
            self._pool.name(copy, key)
        block.owners += 1
        self._pool.num_shared += 1
        self._ends += [(block, place, hint), (copy, place, hint)]
        return keys[0]

    @property
    def ends(self) -> list[Extent]:
        """Blocks, as often as they are held, that nobody holds but for a copy."""
        return [block for block, _, _ in self._ends]

    def num_alone(self, blocks: Iterable[tuple[Extent, int]]) -> int:
        """How many of these blocks are held only for copies."""
        if not self._ends:
            return 0
        ends = self.ends
        return sum(b in ends and b.owners == ends.count(b) for b, _ in blocks)

    def decided(self) -> None:
        """The copies run with the step: their ends return to the pool."""
        for block, place, hint in sorted(self._ends, key=lambda end: end[0].group):
            why = self._why[block.group]
            # What is known inside a block is the end of a prompt.
            prompt_end = place + 1 if why == OUTPUT else 0
            part = (place, block, 1)
            self._pool.give_back_singly([part], why, prompt_end, (), hint=hint)
            self._pool.given_back()
        self._ends.clear()
