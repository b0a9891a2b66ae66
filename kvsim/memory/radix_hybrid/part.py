"""The share of a second pool in the nodes of a radix tree: the base for windows and states
(mem_cache/unified_cache/components/base.py).

A node that has lost its share of the second pool keeps its KV; it can then only be passed.
"""

from abc import abstractmethod

from mypy_extensions import mypyc_attr

from kvsim.memory.radix_hybrid.node import HybridNode, Recency
from kvsim.plumbing.errors import InvariantError


class Places:
    """The tokens of an insertion into the second pool. begin, end: of the tokens, in whole pages,
    that the sequence did not share with the tree before. cursor: before it the sequence has no
    windows.

    adopted: units of the second pool that the tree took over. known: what the node held already.
    """

    def __init__(self, begin: int, end: int, cursor: int) -> None:
        self.begin = begin
        self.end = end
        self.cursor = cursor
        self.adopted = 0
        self.known = False


class Walk:
    """A look-up on its way down, called with each node."""

    @abstractmethod
    def reaches(self, node: HybridNode, tokens: int, *, whole: bool) -> bool:
        """Whether what the first `tokens` of `node` end can be gone on from. whole: they are all of
        them.
        """


@mypyc_attr(allow_interpreted_subclasses=True)
class SecondPool:
    """A pool of `pool` units, and what the tree holds of it.

    free: free units. evictable, locked: those in the tree, by whether a sequence holds
    them. evicted: those evicted to make room so far. unit_bytes: of one.
    """

    def __init__(self, pool: int, unit_bytes: int) -> None:
        self.pool = pool
        self.unit_bytes = unit_bytes
        self.free = pool
        self.evictable = 0
        self.locked = 0
        self.evicted = 0
        self.recency = Recency()
        self._marks = 0

    @property
    def available(self) -> int:
        """Units that could be handed out now."""
        return self.free + self.evictable

    @abstractmethod
    def size(self, node: HybridNode) -> int:
        """Units that a node takes which has them."""

    @abstractmethod
    def walk(self) -> Walk:
        """A look-up begins at the root."""

    @abstractmethod
    def matched(self, node: HybridNode) -> None:
        """A look-up ended in `node`."""

    @abstractmethod
    def split(self, upper: HybridNode, lower: HybridNode) -> None:
        """The first tokens of `lower` are the node `upper` from now on."""

    @abstractmethod
    def held_path(self, node: HybridNode) -> list[HybridNode]:
        """The nodes that a lock on `node` takes, from it upwards."""

    @abstractmethod
    def ends_lock(self, path: list[HybridNode]) -> bool:
        """Whether a lock on this path ends before the root."""

    # --- what nodes have -----------------------------------------------------------------------

    def put(self, node: HybridNode) -> None:
        """`node` has units from now on, the newest, handed over by a sequence."""
        self.recency.push(node)
        if node.part_locks:
            self.locked += self.size(node)
        else:
            self.evictable += self.size(node)

    def drop(self, node: HybridNode) -> None:
        """Evict the unlocked units of `node`, for room."""
        self.evicted += self.size(node)
        self.discard(node)

    def discard(self, node: HybridNode) -> None:
        """Free the unlocked units of `node`."""
        if node.part_locks:
            raise InvariantError("what a sequence holds is forgotten")
        units = self.size(node)
        self.recency.remove(node)
        self.evictable -= units
        self.free += units

    def forgotten(self, node: HybridNode) -> None:
        """`node` leaves the tree."""
        if node.link is not None:
            self.drop(node)

    # --- locks ---------------------------------------------------------------------------------

    def lock(self, node: HybridNode) -> int:
        """One more sequence holds what `node` ends. Returns the end of its lock."""
        path = self.held_path(node)
        for held in path:
            if not held.part_locks and held.link is not None:
                self.evictable -= self.size(held)
                self.locked += self.size(held)
            held.part_locks += 1
        if not path or not self.ends_lock(path):
            return 0
        last = path[-1]
        if not last.mark:
            self._marks += 1
            last.mark = self._marks
        return last.mark

    def unlock(self, node: HybridNode, mark: int) -> None:
        """Undo one `lock` of `node`. mark: what `lock` returned."""
        while node.parent is not None:
            node.part_locks -= 1
            if node.part_locks < 0:
                raise InvariantError("a lock is given back that nobody has")
            if not node.part_locks and node.link is not None:
                self.evictable += self.size(node)
                self.locked -= self.size(node)
            if mark and node.mark == mark:
                break
            parent = node.parent
            assert isinstance(parent, HybridNode)
            node = parent

    def check(self, nodes: list[HybridNode]) -> None:
        """Raise InvariantError unless the counts are those of `nodes`, all of the tree."""
        found = {True: 0, False: 0}
        for node in nodes:
            if node.part_locks > node.locks or node.part_locks < 0:
                raise InvariantError(f"{node.part_locks} locks on a node that {node.locks} hold")
            if node.link is not None:
                found[node.part_locks > 0] += self.size(node)
        if found != {True: self.locked, False: self.evictable}:
            raise InvariantError(
                f"the second pool has {found} by locked, counted {self.locked}, {self.evictable}"
            )
        listed = sum(1 for _ in self.recency.from_oldest())
        if listed != len(self.recency) or listed != sum(n.link is not None for n in nodes):
            raise InvariantError(f"{listed} nodes in the order of use, not {len(self.recency)}")
