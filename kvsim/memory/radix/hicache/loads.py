"""Loads from host memory to the device for the hits of waiting requests."""

from kvsim.memory.radix.allocator import RadixAllocator
from kvsim.memory.radix.node import HostLoad
from kvsim.sequence import Sequence

FEWEST_LOADED = 10  # tokens: shorter hits in host memory are computed again (0.5.23)


class HostLoads:
    """Loads from host memory for one allocator. num_queued: number of loads not submitted yet."""

    def __init__(self, allocator: RadixAllocator) -> None:
        self._allocator = allocator
        self._tree = allocator.tree
        self._queued: list[HostLoad] = []

    @property
    def num_queued(self) -> int:
        return len(self._queued)

    def load_back(self, seq: Sequence) -> int:
        """Allocate slots for all hits of a pinned `seq` in host memory, and queue the copy.

        Nothing is loaded if the hits are too short, or if evicting makes too little room. Content
        loaded earlier in this scheduling pass is on the device already. Returns the number of
        tokens of `seq` that are on the device.
        """
        allocator, tree = self._allocator, self._tree
        slots = allocator.slots(seq)
        tokens, anchor = slots.host_hit, slots.anchor
        slots.host_hit = 0
        if tokens < FEWEST_LOADED or anchor is None:
            return 0
        tree.hold(anchor)
        allocator.pool.make_room(tokens)
        if allocator.pool.free < tokens:
            tree.let_go(anchor)
            return 0
        load = HostLoad(anchor, tokens)
        node = anchor
        while not node.on_device:
            load.nodes.append(node)
            node = node.above
        for node in reversed(load.nodes):
            node.load = load
            tree.promote(node)
            if tree.keeper is not None:
                tree.keeper.brought(node, seq.id)
        load.host_lock = tree.host.lock(anchor)
        allocator.extend_pin(seq, anchor, tokens)
        slots.loaded = tokens
        self._queued.append(load)
        return tokens

    def take(self) -> list[HostLoad]:
        """All loads queued since the last call, merged into one copy; None: nothing is queued."""
        loads, self._queued = self._queued, []
        return loads

    def ended(self, load: HostLoad) -> None:
        """The scheduler processes the end of a load: locks are released."""
        for node in load.nodes:  # from the anchor upwards
            node.load = None
            self._tree.host.list_duplicate(node)
        self._tree.release_host(load.host_lock)
        self._tree.let_go(load.anchor)
