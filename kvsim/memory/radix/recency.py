"""The order in which nodes' content in a second pool was last used."""

from collections.abc import Iterator

from kvsim.memory.radix.node import InOrder, Node


class Recency:
    """Nodes by their last use. len: how many there are."""

    def __init__(self) -> None:
        self._end = InOrder(None)  # a ring: the newest is older than it, the oldest newer
        self._num = 0

    def __len__(self) -> int:
        return self._num

    def push(self, node: Node) -> None:
        """`node`, which is in no place, is the newest."""
        self._place(node, self._end)

    def put_behind(self, node: Node, other: Node) -> None:
        """`node`, which is in no place, is the next older than `other`."""
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
        """All nodes, the oldest first; the one in hand may be removed."""
        link = self._end.newer
        while link.node is not None:
            newer = link.newer
            yield link.node
            link = newer
