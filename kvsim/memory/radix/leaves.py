"""Evictable leaves of device or host memory, in least-recently-used order."""

from abc import abstractmethod
from heapq import heappop, heappush

from mypy_extensions import mypyc_attr

from kvsim.memory.radix.node import Node

FEWEST_TO_SWEEP = 1 << 10


@mypyc_attr(allow_interpreted_subclasses=True)
class Leaves:
    """Evictable leaves: a heap by last use. Outdated entries are skipped when they are popped."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, Node]] = []

    @abstractmethod
    def may_go(self, node: Node) -> bool:
        """Whether `node` is an evictable leaf of this memory: without children there and
        unlocked.
        """

    def offer(self, node: Node, num_nodes: int) -> None:
        """Add `node` if it is an evictable leaf. num_nodes: number of nodes of the tree."""
        if not self.may_go(node):
            return
        heap = self._heap
        heappush(heap, (node.used, node))
        if len(heap) > FEWEST_TO_SWEEP and len(heap) > 4 * num_nodes:
            few = {id(entry[1]): entry for entry in heap if self._stands(entry)}
            self._heap = sorted(few.values())

    def pop(self) -> Node | None:
        """Remove and return the least recently used leaf; None: there is none."""
        heap = self._heap
        while heap:
            entry = heappop(heap)
            if self._stands(entry):
                return entry[1]
        return None

    def offered(self) -> set[int]:
        """The Python ids of all evictable leaves in the heap."""
        return {id(entry[1]) for entry in self._heap if self._stands(entry)}

    def _stands(self, entry: tuple[int, Node]) -> bool:
        return entry[1].used == entry[0] and self.may_go(entry[1])


class DeviceLeaves(Leaves):
    """Unlocked nodes on the device without children there."""

    def may_go(self, node: Node) -> bool:
        if node.locks or node.below:
            return False
        return node.on_device and node.parent is not None


class HostLeaves(Leaves):
    """Unlocked nodes that are only in host memory and have no children."""

    def may_go(self, node: Node) -> bool:
        if node.on_device or node.children or node.locks or node.host_locks:
            return False
        return node.parent is not None
