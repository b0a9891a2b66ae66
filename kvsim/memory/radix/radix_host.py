"""Host memory below a radix tree (HiCache; mem_cache/unified_cache, SGLang 0.5.23): its room, and
which nodes have a copy there. A host of no tokens holds nothing.
"""

from collections.abc import Callable

from kvsim.memory.radix.leaves import HostLeaves
from kvsim.memory.radix.node import HostLock, Node
from kvsim.plumbing.errors import InputError


class RadixHost:
    """tokens: of the host pool, in whole pages; free: of them, free. evicted: tokens that host
    memory gave up for others. num_duplicates: tokens in both memories.

    duplicates: where what is evicted is written back, nodes that were in both memories, in the
    order in which they came to be so. write_first: where it is, what writes a node before the
    device evicts it; False: there is no room for it in host memory.
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
        """A node has room in host memory from now on."""
        self.free -= node.tokens
        node.on_host = True
        if node.on_device:
            self.num_duplicates += node.tokens

    def drop_copy(self, node: Node) -> None:
        """A node on the device gives its room in host memory back."""
        self.free += node.tokens
        self.num_duplicates -= node.tokens
        node.on_host = False

    def lock(self, node: Node) -> HostLock:
        """`node` stays in host memory until the tree releases the lock."""
        lock = HostLock()
        lock.nodes.append(node)
        node.host_locks.append(lock)
        return lock

    def list_duplicate(self, node: Node) -> None:
        """A node has come to be in both memories; it keeps its place if it is listed. One in a copy
        is listed when the copy has ended.
        """
        if self.write_first is None:
            return
        if node.on_device and node.on_host and not node.in_copy:
            self.duplicates.setdefault(node)
        else:
            self.duplicates.pop(node, None)

    def split(self, upper: Node, lower: Node) -> None:
        """The first tokens of `lower` are the node `upper`: its locks and copies are of both."""
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
