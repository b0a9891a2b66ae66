"""Index of the cache blocks that each replica has reported, or is assumed to have."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence


class BlockIndex:
    """Blocks of each replica by hash; a hash stands for a block and all before it.

    ttl_ps: how long an assumed block lasts.
    """

    def __init__(self, num_replicas: int, ttl_ps: int | None = None) -> None:
        self._held: list[set[int]] = [set() for _ in range(num_replicas)]
        self._guessed: list[dict[int, int]] = [{} for _ in range(num_replicas)]
        self._ttl_ps = ttl_ps

    def joined(self) -> None:
        """Add a replica."""
        self._held.append(set())
        self._guessed.append({})

    def clear(self, replica: int) -> None:
        """Forget all blocks of a replica."""
        self._held[replica].clear()
        self._guessed[replica].clear()

    def stored(self, replica: int, blocks: Iterable[int]) -> None:
        """Record that a replica has these blocks."""
        self._held[replica].update(blocks)

    def removed(self, replica: int, blocks: Iterable[int]) -> None:
        """Record that a replica no longer has these blocks."""
        self._held[replica].difference_update(blocks)

    def guess(self, replica: int, blocks: Iterable[int], now_ps: int) -> None:
        """Assume for ttl_ps that a replica has these blocks, which were sent there."""
        if self._ttl_ps is None:
            return
        guessed = self._guessed[replica]
        for block in blocks:
            guessed.pop(block, None)
            guessed[block] = now_ps + self._ttl_ps
        while guessed and (oldest := next(iter(guessed))) and guessed[oldest] < now_ps:
            del guessed[oldest]

    def overlap(self, replica: int, blocks: Sequence[int], now_ps: int) -> int:
        """Number of leading blocks that a replica has, reported or assumed."""
        held, guessed = self._held[replica], self._guessed[replica]
        for count, block in enumerate(blocks):
            if block not in held and guessed.get(block, -1) < now_ps:
                return count
        return len(blocks)


class LruIndex:
    """llm-d's approximate index: blocks sent to each server, in an LRU list of limited capacity.

    If a prompt is longer than the capacity, blocks evicted while it is added remain in the map for
    good. A server is then assumed to have blocks it has lost.
    """

    def __init__(self, num_servers: int, capacity: int) -> None:
        self._capacity = capacity
        self._newest: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(num_servers)]
        self._servers: dict[int, set[int]] = {}

    def joined(self) -> None:
        """Add a server."""
        self._newest.append(OrderedDict())

    def clear(self, server: int) -> None:
        """Remove all blocks of a server."""
        self._newest[server].clear()
        for servers in self._servers.values():
            servers.discard(server)

    def add(self, server: int, blocks: Sequence[int]) -> None:
        """Record that all blocks of a prompt were sent to `server`."""
        newest = self._newest[server]
        for block in blocks:
            newest[block] = None
            newest.move_to_end(block)
            if len(newest) > self._capacity:
                self._forget(server, newest.popitem(last=False)[0])
        for block in blocks:
            self._servers.setdefault(block, set()).add(server)

    def _forget(self, server: int, block: int) -> None:
        servers = self._servers.get(block)
        if servers is not None:
            servers.discard(server)
            if not servers:
                del self._servers[block]

    def matched(self, blocks: Sequence[int]) -> dict[int, int]:
        """Number of these blocks that each server has, up to the first block that no server has."""
        found: dict[int, int] = {}
        for block in blocks:
            servers = self._servers.get(block)
            if not servers:
                break
            for server in servers:
                found[server] = found.get(server, 0) + 1
        return found
