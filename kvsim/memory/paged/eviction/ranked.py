"""Free blocks in the order of a rank: a heap that skips outdated entries."""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from kvsim.memory.paged.eviction.policy import Eviction


class Ranked(Eviction):
    """Evicts the block of lowest rank first; among equal ranks the block that was freed first. A
    subclass ranks each freed block: `_rank`.
    """

    def __init__(self) -> None:
        self._entry: dict[int, tuple[int, int]] = {}  # (rank, number of its return)
        self._heap: list[tuple[int, int, int]] = []
        self._returns = 0

    def _rank(self, block: int) -> int:
        """The rank of `block`, which is being freed."""
        raise NotImplementedError(type(self).__name__)  # every ranked policy overrides this

    def rank_of(self, block: int) -> int:
        """The rank of the free `block`."""
        return self._entry[block][0]

    def __setitem__(self, block: int, nothing: None) -> None:
        self._returns += 1
        entry = self._entry[block] = self._rank(block), self._returns
        heappush(self._heap, (*entry, block))

    def __delitem__(self, block: int) -> None:
        del self._entry[block]
        if len(self._heap) > 64 + 2 * len(self._entry):
            self._heap = [(*entry, block) for block, entry in self._entry.items()]
            heapify(self._heap)

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._entry, key=self._entry.__getitem__))

    def __len__(self) -> int:
        return len(self._entry)

    def __contains__(self, block: object) -> bool:
        return block in self._entry

    def _first(self) -> int:
        while True:
            rank, returned, block = self._heap[0]
            if self._entry.get(block) == (rank, returned):
                return block
            heappop(self._heap)
