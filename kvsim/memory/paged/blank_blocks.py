"""The blocks in front of the free queue, which hold nothing."""

from kvsim.memory.paged.extent import NO_BLOCKS


class BlankBlocks:
    """A stack of blocks that were in use, and behind them those that never were. num: how many
    there are. tracked: they have numbers, from 1 on.
    """

    def __init__(self, num: int, *, tracked: bool) -> None:
        self.num = num
        self._tracked = tracked
        self._used: list[int] = []
        self._fresh = 1  # the first block that never was in use

    def take(self, count: int) -> list[int]:
        """`count` <= num blocks leave: who came back last leaves first."""
        self.num -= count
        if not self._tracked:
            return NO_BLOCKS
        used, left = self._used, len(self._used) - count
        if left >= 0:
            blocks = used[left:]
            blocks.reverse()
            del used[left:]
            return blocks
        blocks = used[::-1]
        used.clear()
        blocks.extend(range(self._fresh, self._fresh - left))
        self._fresh -= left
        return blocks

    def give(self, count: int, blocks: list[int]) -> None:
        """So many blocks come back, those of a table in their order."""
        self.num += count
        if self._tracked:
            self._used += blocks

    def numbers(self) -> list[int]:
        """The numbers of the blocks, in the order in which they leave."""
        fresh = self.num - len(self._used) if self._tracked else 0
        return [*reversed(self._used), *range(self._fresh, self._fresh + fresh)]
