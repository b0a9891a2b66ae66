"""A node that holds KV of all its tokens, and perhaps something of a second pool; and the order in
which what the second pool holds was last used.
"""

from collections.abc import Iterator

from kvsim.memory.radix.node import Node
from kvsim.request import TokenRuns


class HybridNode(Node):
    """part_locks: sequences that hold what the second pool has here, or would if there were any.
    mark: the number of the locks that end here, 0 for none. link: its place among those that have
    something in the second pool; None: nothing is left of it here.
    """

    __slots__ = ("link", "mark", "part_locks")

    def __init__(self, parent: Node | None, runs: TokenRuns, tokens: int) -> None:
        super().__init__(parent, runs, tokens)
        self.part_locks = 0
        self.mark = 0
        self.link: InOrder | None = None


class InOrder:
    """A place between a newer and an older one; the two ends of a list hold no node."""

    __slots__ = ("newer", "node", "older")

    def __init__(self, node: HybridNode | None) -> None:
        self.node = node
        self.newer = self.older = self


class Recency:
    """Nodes by their last use. len: how many there are."""

    def __init__(self) -> None:
        self._end = InOrder(None)  # a ring: the newest is older than it, the oldest newer
        self._num = 0

    def __len__(self) -> int:
        return self._num

    def push(self, node: HybridNode) -> None:
        """`node`, which is in no place, is the newest."""
        self._place(node, self._end)

    def put_behind(self, node: HybridNode, other: HybridNode) -> None:
        """`node`, which is in no place, is the next older than `other`."""
        assert other.link is not None
        self._place(node, other.link)

    def _place(self, node: HybridNode, newer: InOrder) -> None:
        link = node.link = InOrder(node)
        link.newer, link.older = newer, newer.older
        newer.older.newer = link
        newer.older = link
        self._num += 1

    def renew(self, nodes: list[HybridNode]) -> None:
        """Make `nodes` the most recently used ones, the first of them the newest."""
        for node in reversed(nodes):
            self.remove(node)
            self.push(node)

    def remove(self, node: HybridNode) -> None:
        """Take `node` out of the order."""
        link = node.link
        assert link is not None
        link.newer.older, link.older.newer = link.older, link.newer
        node.link = None
        self._num -= 1

    def from_oldest(self) -> Iterator[HybridNode]:
        """All nodes, the oldest first; the one in hand may be removed."""
        link = self._end.newer
        while link.node is not None:
            newer = link.newer
            yield link.node
            link = newer
