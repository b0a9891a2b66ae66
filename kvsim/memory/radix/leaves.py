"""The leaves that either memory may evict, the one last used longest ago first."""

from abc import abstractmethod
from heapq import heappop, heappush

from mypy_extensions import mypyc_attr

from kvsim.memory.radix.node import Node

FEWEST_TO_SWEEP = 1 << 10


@mypyc_attr(allow_interpreted_subclasses=True)
class Leaves:
    """A heap by last use, with outdated entries, which are skipped when met."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, Node]] = []

    @abstractmethod
    def may_go(self, node: Node) -> bool:
        """Whether `node` is a leaf of this memory that nothing holds."""

    def offer(self, node: Node, num_nodes: int) -> None:
        """Put `node` among the leaves, if it is one. num_nodes: of the tree."""
        if not self.may_go(node):
            return
        heap = self._heap
        heappush(heap, (node.used, node))
        if len(heap) > FEWEST_TO_SWEEP and len(heap) > 4 * num_nodes:
            few = {id(entry[1]): entry for entry in heap if self._stands(entry)}
            self._heap = sorted(few.values())

    def pop(self) -> Node | None:
        """Take out the leaf that was last used longest ago; None: there is none."""
        heap = self._heap
        while heap:
            entry = heappop(heap)
            if self._stands(entry):
                return entry[1]
        return None

    def offered(self) -> set[int]:
        """The ids of all leaves, as the heap has them."""
        return {id(entry[1]) for entry in self._heap if self._stands(entry)}

    def _stands(self, entry: tuple[int, Node]) -> bool:
        return entry[1].used == entry[0] and self.may_go(entry[1])


class DeviceLeaves(Leaves):
    """Nodes on the device without children there, which nothing locks."""

    def may_go(self, node: Node) -> bool:
        if node.locks or node.below:
            return False
        return node.on_device and node.parent is not None


class HostLeaves(Leaves):
    """Nodes in host memory alone without children, which nothing locks."""

    def may_go(self, node: Node) -> bool:
        if node.on_device or node.children or node.locks or node.host_locks:
            return False
        return node.parent is not None
