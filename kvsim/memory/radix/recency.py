"""Nodes of the second pool in the order of last use: a doubly linked list."""

from collections.abc import Iterator

from kvsim.memory.radix.node import InOrder, Node


class Recency:
    """Nodes in the order of their last use. len: number of nodes."""

    def __init__(self) -> None:
        self._end = InOrder(None)  # a ring: the newest is older than it, the oldest newer
        self._num = 0

    def __len__(self) -> int:
        return self._num

    def push(self, node: Node) -> None:
        """Add `node`, not listed so far, as the newest."""
        self._place(node, self._end)

    def put_behind(self, node: Node, other: Node) -> None:
        """Add `node`, not listed so far, as the next older one after `other`."""
        assert other.link is not None
        self._place(node, other.link)

    def _place(self, node: Node, newer: InOrder) -> None:
        link = node.link = InOrder(node)
        link.newer, link.older = newer, newer.older
        newer.older.newer = link
        newer.older = link
        self._num += 1

    def renew(self, nodes: list[Node]) -> None:
        """Make `nodes` the most recently used ones, the first of them the newest."""
        for node in reversed(nodes):
            self.remove(node)
            self.push(node)

    def remove(self, node: Node) -> None:
        """Take `node` out of the order."""
        link = node.link
        assert link is not None
        link.newer.older, link.older.newer = link.older, link.newer
        node.link = None
        self._num -= 1

    def from_oldest(self) -> Iterator[Node]:
        """Iterate over all nodes, oldest first; the current node may be removed meanwhile."""
        link = self._end.newer
        while link.node is not None:
            newer = link.newer
            yield link.node
            link = newer
