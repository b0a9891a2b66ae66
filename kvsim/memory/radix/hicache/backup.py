"""Backup of device content to host memory: which nodes are copied and when, and host evictions that
make room.
"""

from collections.abc import Callable

from kvsim.memory.radix.node import HostWrite, Node
from kvsim.memory.radix.tree import RadixTree


class Backup:
    """Copies from the device to host memory (mem_cache/unified_radix_cache.py, SGLang 0.5.23).

    threshold: number of requests that insert a node before it is written; None: it is written when
    the device evicts it (write_back). Without host memory nothing is written. num_failed: nodes
    that found no room. write_now: under write_back, copies one node while the scheduler waits.
    acknowledged: called with each node after the scheduler noted its copy.
    """

    def __init__(self, tree: RadixTree, threshold: int | None) -> None:
        self._tree = tree
        self._host = tree.host
        self._threshold = threshold
        self._queue = HostWrite()
        self.num_failed = 0
        self.write_now: Callable[[HostWrite], None] | None = None
        self.acknowledged: Callable[[Node], None] | None = None
        if threshold is None and tree.host.tokens:
            tree.host.write_first = self._write_first

    @property
    def num_queued(self) -> int:
        """Number of nodes that wait for the next submitted copy."""
        return self._queue.num

    def inserted(self, node: Node, tokens: int, mark: int) -> None:
        """Count an insertion: a request inserted its first `tokens` tokens, which end in `node`,
        the first `mark` of them earlier. May queue a write.
        """
        if self._threshold is None or not self._host.tokens:
            return
        path = []
        while tokens > mark and node.parent is not None:
            path.append(node)
            tokens -= node.tokens
            node = node.above
        for each in reversed(path):
            each.hits += 1
            if each.hits >= self._threshold and not each.on_host:
                self._write(each)

    def _write(self, node: Node) -> None:
        """Queue the write of `node` and of its ancestors without a host copy, topmost first, while
        host memory has room.
        """
        path = []
        while node.parent is not None and not node.on_host:
            path.append(node)
            node = node.above
        for each in reversed(path):
            if not self.make_room(each.tokens):
                return
            self._take(each, self._queue)
            self._tree.hold(each)
            self._queue.held.append(each)

    def _take(self, node: Node, write: HostWrite) -> None:
        """Add `node`, for which there is room, to the copy `write`."""
        self._host.add_copy(node)
        node.write = write
        write.nodes.append(node)
        write.tokens += node.tokens
        write.num += 1

    def _write_first(self, node: Node) -> bool:
        """Write a node before it is evicted, while the scheduler waits; False: no room in host
        memory.
        """
        if not self.make_room(node.tokens):
            return False
        write = HostWrite()
        self._take(node, write)
        if self.write_now is None:
            self.written(write)
        else:
            self.write_now(write)
        return True

    def take(self) -> HostWrite | None:
        """All queued writes as one copy; None: nothing is queued."""
        write = self._queue
        if not write.nodes:
            return None
        self._queue = HostWrite()
        return write

    def written(self, write: HostWrite) -> None:
        """The scheduler processes the end of a copy to host memory: locks are released."""
        for node in write.nodes:
            node.write = None
            self._host.list_duplicate(node)
        for node in write.held:
            self._tree.let_go(node)
        if self.acknowledged is not None:
            for node in write.nodes:
                self.acknowledged(node)

    # --- room in host memory ---------------------------------------------------------------------

    def make_room(self, tokens: int) -> bool:
        """Free `tokens` tokens of host memory, evicting others if needed; False if too few can be
        freed.
        """
        self.evict(tokens - self._host.free)
        room = self._host.free >= tokens
        self.num_failed += not room
        return room

    def evict(self, tokens: int) -> None:
        """Evict `tokens` tokens from host memory, or as many as can be evicted."""
        if tokens > 0 and self._threshold is None:
            tokens -= self._reclaim(tokens, spare_leaves=True)
            if tokens > 0:
                tokens -= self._reclaim(tokens, spare_leaves=False)
        if tokens > 0:
            self._tree.evict_host(tokens)

    def _reclaim(self, tokens: int, *, spare_leaves: bool) -> int:
        """Free host copies of nodes that are on the device too, oldest copies first, until `tokens`
        tokens are free.

        Returns the number of freed tokens. spare_leaves: leave the copies of evictable leaves.
        """
        host, freed = self._host, 0
        gone = []
        for node in host.duplicates:
            if freed >= tokens:
                break
            if node.parent is None or not (node.on_device and node.on_host):
                gone.append(node)
                continue
            leaf = not node.locks and not node.below
            if node.in_copy or node.host_locks or (spare_leaves and leaf):
                continue
            gone.append(node)
            host.drop_copy(node)
            freed += node.tokens
        for node in gone:
            del host.duplicates[node]
        host.evicted += freed
        return freed
