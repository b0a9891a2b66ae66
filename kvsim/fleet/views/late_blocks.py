"""Blocks that replicas have cached but that the router has not been notified of yet."""

from collections import deque
from collections.abc import Sequence


class LateBlocks:
    """Hashes of blocks that are being computed, or were computed less than lag_ps ago, by
    replica.
    """

    def __init__(self, num_replicas: int, lag_ps: int) -> None:
        self._lag_ps = lag_ps
        self._unheard: list[dict[int, int]] = [{} for _ in range(num_replicas)]
        self._making: dict[str, tuple[int, Sequence[int]]] = {}
        self._due: deque[tuple[int, int, Sequence[int]]] = deque()

    def joined(self) -> None:
        """Add a replica."""
        self._unheard.append({})

    def sent(self, id: str, replica: int, blocks: Sequence[int]) -> None:
        """Record that a request will compute these blocks, which the replica does not have."""
        self._making[id] = replica, blocks
        unheard = self._unheard[replica]
        for block in blocks:
            unheard[block] = unheard.get(block, 0) + 1

    def stored(self, id: str, now_ps: int) -> None:
        """Record that the blocks of a request are cached: it has its first token, or has left."""
        if id in self._making:
            self._due.append((now_ps + self._lag_ps, *self._making.pop(id)))

    def seen(self, replica: int, blocks: Sequence[int], now_ps: int) -> int:
        """Number of these leading blocks, cached on the replica, that the router has been notified
        of.
        """
        while self._due and self._due[0][0] <= now_ps:
            _, maker, made = self._due.popleft()
            for block in made:
                left = self._unheard[maker].pop(block) - 1
                if left:
                    self._unheard[maker][block] = left
        unheard = self._unheard[replica]
        for count, block in enumerate(blocks):
            if block in unheard:
                return count
        return len(blocks)
