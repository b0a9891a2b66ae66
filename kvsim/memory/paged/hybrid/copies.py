"""Copies of blocks in which a sequence continues after a shared prefix.

A hit that ends inside a block is continued in a copy of that block. The sequence takes one more
block for each group of layers. A sequence that computed a recurrent state inside a block continues
in its own block, and a copy takes over the keys of that state. Source and target of a copy stay out
of the free queue until the step is decided (vLLM 0.33, v1/core/sched/scheduler.py,
`_free_cow_retained_blocks`).
"""

from collections.abc import Iterable, Sequence

from kvsim.memory.paged.blocks import OUTPUT, Extent
from kvsim.memory.paged.pool import BlockPool
from kvsim.memory.paged.session_hint import SessionHint


class Copies:
    """The block copies (copy on write) of the step being scheduled. why: for each group of layers,
    why its blocks are cached, if not as part of a prompt.
    """

    def __init__(self, pool: BlockPool, why: Sequence[int]) -> None:
        self._pool, self._why = pool, why
        # In order: a block, its place in its table, and its session.
        self._ends: list[tuple[Extent, int, SessionHint]] = []

    def of_hit(self, block: Extent, place: int, *, hint: SessionHint) -> None:
        """Record a copy of `block`, which the sequence hit, to a block of its own."""
        self._ends.append((block, place, hint))

    def of_maker(self, block: Extent, copy: Extent, place: int, *, hint: SessionHint) -> int:
        """Move the key of `block`, in which its owner goes on writing, to `copy`; returns the
        key.
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
        """Blocks held as source or target of copies, each as often as it is held."""
        return [block for block, _, _ in self._ends]

    def num_alone(self, blocks: Iterable[tuple[Extent, int]]) -> int:
        """Number of these blocks that only copies hold."""
        if not self._ends:
            return 0
        ends = self.ends
        return sum(b in ends and b.owners == ends.count(b) for b, _ in blocks)

    def decided(self) -> None:
        """The step with the copies has been scheduled: free the blocks held for copies."""
        for block, place, hint in sorted(self._ends, key=lambda end: end[0].group):
            why = self._why[block.group]
            # Content known inside a block is the end of a prompt.
            prompt_end = place + 1 if why == OUTPUT else 0
            part = (place, block, 1)
            self._pool.give_back_singly([part], why, prompt_end, (), hint=hint)
            self._pool.given_back()
        self._ends.clear()
