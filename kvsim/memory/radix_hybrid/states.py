"""Recurrent states in a radix tree (components/mamba.py, 0.5.23): one slot on one node, the state
after exactly the tokens down to there.
"""

from mypy_extensions import mypyc_attr

from kvsim.memory.radix.node import Node
from kvsim.memory.radix.second_pool import Cutter, Places, SecondPool, Walk


class StateWalk(Walk):
    """Stops at nodes that have a state; no state is within another node's tokens."""

    def reaches(self, node: Node, tokens: int, *, whole: bool) -> bool:
        return whole and node.link is not None


@mypyc_attr(allow_interpreted_subclasses=True)
class StatePart(SecondPool):
    """most: states kept on one path; None: no limit. thinned: states dropped because their path
    had more; they are no evictions.
    """

    def __init__(self, pool: int, unit_bytes: int, most: int | None = None) -> None:
        super().__init__(pool, unit_bytes)
        self._most = most
        self.thinned = 0

    def size(self, node: Node) -> int:
        return 1

    def walk(self) -> Walk:
        return StateWalk()

    def matched(self, node: Node) -> None:
        if node.link is not None:
            self.recency.renew([node])

    def split(self, upper: Node, lower: Node) -> None:
        return  # the state is that after the last token, which `lower` keeps

    def held_path(self, node: Node) -> list[Node]:
        return [node] if node.parent is not None else []

    def ends_lock(self, path: list[Node]) -> bool:
        return True

    # --- insertions ----------------------------------------------------------------------------

    def passed(self, tree: Cutter, node: Node, begin: int, places: Places) -> None:
        return

    def inserted(self, tree: Cutter, node: Node, begin: int, places: Places, *, new: bool) -> None:
        """The state after the last token enters, unless one is there already."""
        if node.parent is None:
            places.known = True
            return
        if node.link is not None:
            self.recency.renew([node])
            places.known = True
        else:
            self.put(node)
            places.adopted = 1
        tree.use(node)
        if not places.known:
            self._thin_path(node)

    def _thin_path(self, tail: Node) -> None:
        """Forget the shallowest states above `tail` that are too many on its path; those that a
        sequence holds stay, and those where paths part.
        """
        if self._most is None:
            return
        holders = []
        node: Node = tail
        while node.parent is not None:
            if node.link is not None:
                holders.append(node)
            node = node.parent
        excess = len(holders) - self._most
        for holder in reversed(holders):
            if excess <= 0 or holder is tail:
                break
            if not holder.part_locks and len(holder.children) == 1:
                self.discard(holder)
                self.thinned += 1
                excess -= 1
