"""Host memory (HiCache L2) of a radix tree: its room, and which nodes have a copy there. A host of
0 tokens holds nothing. Source: mem_cache/unified_cache, SGLang 0.5.23.
"""

from collections.abc import Callable

from kvsim.memory.radix.leaves import HostLeaves
from kvsim.memory.radix.node import HostLock, Node
from kvsim.plumbing.errors import InputError


class RadixHost:
    """The host pool. tokens: its size, in whole pages; free: its free tokens. evicted: tokens that
    host memory evicted to make room. num_duplicates: tokens in both memories.

    duplicates: under write_back, nodes in both memories, in the order in which they became
    duplicates. write_first: under write_back, writes a node before the device evicts it; returns
    False if host memory has no room.
    """

    def __init__(self, tokens: int) -> None:
        self.tokens = self.free = tokens
        self.evicted = 0
        self.num_duplicates = 0
        self.duplicates: dict[Node, None] = {}
        self.write_first: Callable[[Node], bool] | None = None
        self.leaves = HostLeaves()

    @property
    def used(self) -> int:
        """Number of tokens in use."""
        return self.tokens - self.free

    def add_copy(self, node: Node) -> None:
        """Allocate room in host memory for a node."""
        self.free -= node.tokens
        node.on_host = True
        if node.on_device:
            self.num_duplicates += node.tokens

    def drop_copy(self, node: Node) -> None:
        """Free the host copy of a node that is on the device."""
        self.free += node.tokens
        self.num_duplicates -= node.tokens
        node.on_host = False

    def lock(self, node: Node) -> HostLock:
        """Lock `node` in host memory until `RadixTree.release_host`."""
        lock = HostLock()
        lock.nodes.append(node)
        node.host_locks.append(lock)
        return lock

    def list_duplicate(self, node: Node) -> None:
        """Update `duplicates` for a node: list it if it is in both memories and in no copy, else
        remove it. A listed node keeps its position.
        """
        if self.write_first is None:
            return
        if node.on_device and node.on_host and not node.in_copy:
            self.duplicates.setdefault(node)
        else:
            self.duplicates.pop(node, None)

    def split(self, upper: Node, lower: Node) -> None:
        """Split `lower` in host memory: `upper`, its first tokens, gets the same locks and
        copies.
        """
        upper.on_host, upper.hits = lower.on_host, lower.hits
        upper.host_locks = list(lower.host_locks)
        for lock in upper.host_locks:
            lock.nodes.append(upper)
        upper.write, upper.load = lower.write, lower.load
        if upper.write is not None:
            upper.write.nodes.insert(upper.write.nodes.index(lower), upper)
        if upper.load is not None:
            upper.load.nodes.append(upper)
        if upper.on_device and upper.on_host:
            self.list_duplicate(upper)


def out_of_host(host: RadixHost) -> InputError:
    """The error with which SGLang ends if neither memory can evict anything."""
    return InputError(
        "host memory is full of what is being written to the storage, and the device cannot "
        "evict what that belongs to: SGLang 0.5.23 ends with an error here",
        where="allocator.hicache_write_policy",
        value="write_back",
        limit=f"{host.tokens} tokens of host memory",
        remedy="raise hicache_ratio, or take write_through",
    )
