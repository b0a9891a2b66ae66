"""The nodes of a radix tree over device and host memory: the tiers of each, its locks, and which
leaves either memory may give up (mem_cache/unified_cache, SGLang 0.5.23).
"""

from collections.abc import Callable
from heapq import heappush

from kvsim.memory.radix.hicache.node import HostLock, TierNode, tier_node
from kvsim.memory.radix.node import Node
from kvsim.memory.radix.tree import FEWEST_TO_SWEEP, RadixTree
from kvsim.plumbing.errors import InvariantError
from kvsim.request import TokenRuns


class TierTree(RadixTree):
    """host_tokens: of the host pool, in whole pages; host_free: of them, free. host_evicted: tokens
    that host memory gave up for others. dropped: tokens that the device evicted without a copy.
    stuck: the last eviction passed over nodes with others below them that a copy needs.
    in_transit: tokens of the device that copies alone lock. num_duplicates: tokens in both.

    duplicates: where what is evicted is written back, nodes that were in both memories, in the
    order in which they came to be so. write_first: where it is, what writes a node before it is
    evicted; False: there is no room for it in host memory.
    """

    def __init__(self, page_size: int, host_tokens: int) -> None:
        super().__init__(page_size)
        self.root = TierNode(None, (), 0)
        self.host_tokens = self.host_free = host_tokens
        self.host_evicted = 0
        self.dropped = 0
        self.in_transit = 0
        self.stuck = False
        self.num_duplicates = 0
        self.duplicates: dict[TierNode, None] = {}
        self.write_first: Callable[[TierNode], bool] | None = None
        self._host_leaves: list[tuple[int, Node]] = []  # a heap, as `_leaves`

    # --- locks ---------------------------------------------------------------------------------

    def lock(self, node: Node) -> None:
        self._lock(tier_node(node), 1, 0)

    def unlock(self, node: Node) -> None:
        self._lock(tier_node(node), -1, 0)

    def hold(self, node: TierNode) -> None:
        """A copy under way locks `node` and all above it."""
        self._lock(node, 1, 1)

    def let_go(self, node: TierNode) -> None:
        """Undo one lock of the path to `node`."""
        self._lock(node, -1, -1)

    def _lock(self, node: TierNode, change: int, by_copies: int) -> None:
        while node.parent is not None:
            if node.on_device:
                self._count(node, -1)
            node.locks += change
            node.copy_locks += by_copies
            if node.on_device:
                self._count(node, 1)
                if self.keeper is not None:
                    self.keeper.turned(node)
            if not node.locks:
                self._offer(node)
            node = tier_node(node.parent)

    def _count(self, node: TierNode, sign: int) -> None:
        """Count the tokens of a node on the device (sign 1), or count them no more (sign -1)."""
        tokens = sign * node.tokens
        if not node.locks:
            self.evictable += tokens
        else:
            self.locked += tokens
            if node.locks == node.copy_locks:
                self.in_transit += tokens
        if node.on_host:
            self.num_duplicates += tokens

    def lock_host(self, node: TierNode) -> HostLock:
        """`node` stays in host memory until the lock is released."""
        lock = HostLock()
        lock.nodes.append(node)
        node.host_locks.append(lock)
        return lock

    def release_host(self, lock: HostLock) -> None:
        """Release a lock of `lock_host`."""
        for node in lock.nodes:
            node.host_locks.remove(lock)
            self._offer(node)

    # --- from one memory to the other ----------------------------------------------------------

    def promote(self, node: TierNode) -> None:
        """A node in host memory is on the device too; its slots are taken already."""
        tier_node(node.parent).below += 1
        node.on_device = True
        self._count(node, 1)
        self._offer(node)

    def demote(self, node: TierNode) -> None:
        """A node in both memories leaves the device."""
        self._count(node, -1)
        node.on_device = False
        if self.keeper is not None:
            self.keeper.forgotten(node)
        self._offer(node)
        self._left_device(tier_node(node.parent))

    def _left_device(self, parent: TierNode) -> None:
        """A child of `parent` is on the device no more."""
        parent.below -= 1
        self._offer(parent)

    def add_host_copy(self, node: TierNode) -> None:
        """A node has room in host memory from now on."""
        self.host_free -= node.tokens
        node.on_host = True
        if node.on_device:
            self.num_duplicates += node.tokens

    def drop_host_copy(self, node: TierNode) -> None:
        """A node on the device gives its room in host memory back."""
        self.host_free += node.tokens
        self.num_duplicates -= node.tokens
        node.on_host = False

    def list_duplicate(self, node: TierNode) -> None:
        """A node has come to be in both memories; it keeps its place if it is listed. One in a copy
        is listed when the copy has ended.
        """
        if self.write_first is None:
            return
        if node.on_device and node.on_host and not node.in_copy:
            self.duplicates.setdefault(node)
        else:
            self.duplicates.pop(node, None)

    # --- nodes ---------------------------------------------------------------------------------

    def _new(self, parent: Node, runs: TokenRuns, tokens: int) -> Node:
        self.num_nodes += 1
        return TierNode(parent, runs, tokens)

    def _split(self, node: Node, tokens: int) -> Node:
        lower = tier_node(node)
        keeper = self.keeper
        if not lower.on_device:  # the keeper knows of nodes on the device alone
            self.keeper = None
        upper = tier_node(super()._split(node, tokens))
        self.keeper = keeper
        upper.on_device, upper.on_host = lower.on_device, lower.on_host
        upper.hits, upper.copy_locks = lower.hits, lower.copy_locks
        upper.below = int(lower.on_device)
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
        self._offer(upper)
        self._offer(lower)
        return upper

    def _forget(self, node: TierNode) -> None:
        """A node leaves the tree."""
        if node.on_device:
            self._count(node, -1)
            if self.keeper is not None:
                self.keeper.forgotten(node)
        if node.on_host:
            self.host_free += node.tokens
        self.num_nodes -= 1
        parent = tier_node(node.parent)
        node.parent = None
        del parent.children[self._key(node.runs)]
        if node.on_device:
            self._left_device(parent)
        else:
            self._offer(parent)

    def _offer(self, node: Node) -> None:
        tier = tier_node(node)
        if tier.locks or tier.parent is None:
            return
        if tier.on_device:
            if not tier.below:
                self._push(self._leaves, tier)
        elif not tier.children and not tier.host_locks:
            self._push(self._host_leaves, tier)

    def _push(self, leaves: list[tuple[int, Node]], node: TierNode) -> None:
        heappush(leaves, (node.used, node))
        if len(leaves) > FEWEST_TO_SWEEP and len(leaves) > 4 * self.num_nodes:
            stands = self._host_leaf if leaves is self._host_leaves else self._device_leaf
            few = {id(entry[1]): entry for entry in leaves if stands(entry)}
            leaves[:] = sorted(few.values())

    def _device_leaf(self, entry: tuple[int, Node]) -> bool:
        """Whether an entry of the heap is of a node that the device may evict."""
        node = tier_node(entry[1])
        alive = node.used == entry[0] and node.parent is not None
        return alive and node.on_device and not node.locks and not node.below

    def _host_leaf(self, entry: tuple[int, Node]) -> bool:
        """Whether an entry of the heap is of a node that host memory may evict."""
        node = tier_node(entry[1])
        alive = node.used == entry[0] and node.parent is not None and not node.on_device
        return alive and not (node.children or node.locks or node.host_locks)

    def check(self) -> None:
        """Raise InvariantError unless the tree is whole and its counts are true."""
        found = {"evictable": 0, "locked": 0, "in_transit": 0, "duplicates": 0, "host": 0}
        device = {id(entry[1]) for entry in self._leaves if self._device_leaf(entry)}
        host = {id(entry[1]) for entry in self._host_leaves if self._host_leaf(entry)}
        num_nodes = 0
        for each in self.nodes():
            node, parent = tier_node(each), tier_node(each.parent)
            num_nodes += 1
            if not (node.on_device or node.on_host) or (node.on_device and not parent.on_device):
                raise InvariantError(f"a node of {node.tokens} tokens is in no memory: {node.runs}")
            below = sum(tier_node(child).on_device for child in node.children.values())
            if below != node.below or (node.locks and parent.parent and parent.locks < node.locks):
                raise InvariantError(f"a node counts {node.below} children of {below}")
            if node.on_device:
                found["locked" if node.locks else "evictable"] += node.tokens
                found["in_transit"] += node.tokens * (0 < node.locks == node.copy_locks)
                found["duplicates"] += node.tokens * node.on_host
            found["host"] += node.tokens * node.on_host
            entry = (node.used, node)
            lost = self._device_leaf(entry) and id(node) not in device
            if lost or (self._host_leaf(entry) and id(node) not in host):
                raise InvariantError(f"a leaf can never be evicted: {node.runs}")
        counted = {
            "evictable": self.evictable,
            "locked": self.locked,
            "in_transit": self.in_transit,
            "duplicates": self.num_duplicates,
        }
        if found | counted != found or num_nodes != self.num_nodes:
            raise InvariantError(f"a tree of {found} in {num_nodes} nodes counts {counted}")
        if found["host"] > self.host_tokens - self.host_free:
            raise InvariantError(f"{found['host']} tokens in host memory, {self.host_free} free")
