"""Recurrent states in a radix tree (components/mamba.py, 0.5.23): a node may have one slot, the
state after its last token.
"""

from mypy_extensions import mypyc_attr

from kvsim.memory.radix.node import Node
from kvsim.memory.radix.second_pool import Cutter, Places, SecondPool, Walk


class StateWalk(Walk):
    """A lookup that may end only at the end of a node with a state."""

    def reaches(self, node: Node, tokens: int, *, whole: bool) -> bool:
        return whole and node.link is not None


@mypyc_attr(allow_interpreted_subclasses=True)
class StatePart(SecondPool):
    """The states in the tree. most: most states on one path; None: no limit. thinned: states
    dropped because their path had too many, which do not count as evictions.
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
        """Add the state after the last token of `node`, unless it has one already."""
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
        """Drop excess states on the path to `tail`, shallowest first. States that a sequence locks
        stay, and states where paths diverge.
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
