"""A radix tree's second pool, next to the KV of all tokens
(mem_cache/unified_cache/components/base.py, SGLang 0.5.23).

The pool is absent (`NoSecondPool`), or holds the sliding windows or recurrent states of nodes.

A node that has lost its content in the second pool (a tombstone) keeps its KV. A lookup may pass
through it but not end there.
"""

from abc import abstractmethod
from typing import ClassVar, Protocol

from mypy_extensions import mypyc_attr

from kvsim.memory.radix.node import Node
from kvsim.memory.radix.recency import Recency
from kvsim.plumbing.errors import InvariantError


class Cutter(Protocol):
    """Operations of a radix tree that its second pool needs."""

    def split(self, node: Node, tokens: int) -> Node:
        """Split `node`: its first `tokens` tokens become a new parent node, which is returned."""

    def use(self, node: Node) -> None:
        """Mark `node` as the most recently used one."""


class Places:
    """The token range of an insertion. begin, end: tokens, in whole pages, that the sequence did
    not share with the tree before. cursor: number of leading tokens without windows in the
    sequence.

    adopted: units of the second pool that the tree took over. known: whether the node had such
    content already.
    """

    def __init__(self, begin: int, end: int, cursor: int) -> None:
        self.begin = begin
        self.end = end
        self.cursor = cursor
        self.adopted = 0
        self.known = False


@mypyc_attr(allow_interpreted_subclasses=True)
class Walk:
    """A prefix lookup that descends the tree, called for each node on the path.

    This class serves trees without a second pool, in which a hit may end anywhere.
    """

    def reaches(self, node: Node, tokens: int, *, whole: bool) -> bool:
        """Whether a hit may end after the first `tokens` tokens of `node`. whole: the node has no
        more tokens.
        """
        return True


@mypyc_attr(allow_interpreted_subclasses=True)
class SecondPool:
    """A second pool of `pool` units, and what the tree holds of it.

    free: free units. evictable, locked: units in the tree that no sequence locks, and that some do.
    evicted: units evicted so far to make room. unit_bytes: bytes of a unit. cuts_prompts: an
    insertion is split at the end of the prompt, so that outputs can be evicted without the prompt.
    """

    cuts_prompts: ClassVar[bool] = False

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
        """Units that can be allocated now: free and evictable ones."""
        return self.free + self.evictable

    @abstractmethod
    def size(self, node: Node) -> int:
        """Number of units that the content of a node takes."""

    @abstractmethod
    def walk(self) -> Walk:
        """Begin a lookup at the root."""

    @abstractmethod
    def matched(self, node: Node) -> None:
        """Note that a lookup ended in `node`."""

    @abstractmethod
    def split(self, upper: Node, lower: Node) -> None:
        """`lower` was split: its first tokens are now the node `upper`."""

    @abstractmethod
    def held_path(self, node: Node) -> list[Node]:
        """The nodes of which a lock on `node` locks the content, from `node` upwards."""

    @abstractmethod
    def ends_lock(self, path: list[Node]) -> bool:
        """Whether the lock on `path` ends before the root, so that its end must be marked."""

    @abstractmethod
    def passed(self, tree: Cutter, node: Node, begin: int, places: Places) -> None:
        """An insertion passes through `node`, which begins at token `begin`."""

    @abstractmethod
    def inserted(self, tree: Cutter, node: Node, begin: int, places: Places, *, new: bool) -> None:
        """An insertion ends in `node`. new: the node is new, and begins at token `begin`."""

    # --- what nodes have -----------------------------------------------------------------------

    def put(self, node: Node) -> None:
        """`node` takes over units from a sequence, as the most recently used one."""
        self.recency.push(node)
        if node.part_locks:
            self.locked += self.size(node)
        else:
            self.evictable += self.size(node)

    def drop(self, node: Node) -> None:
        """Evict the unlocked units of `node` to make room; counted in `evicted`."""
        self.evicted += self.size(node)
        self.discard(node)

    def discard(self, node: Node) -> None:
        """Free the unlocked units of `node`, without counting an eviction."""
        if node.part_locks:
            raise InvariantError("what a sequence holds is forgotten")
        units = self.size(node)
        self.recency.remove(node)
        self.evictable -= units
        self.free += units

    def forgotten(self, node: Node) -> None:
        """Drop the content of a `node` that leaves the tree."""
        if node.link is not None:
            self.drop(node)

    # --- locks ---------------------------------------------------------------------------------

    def lock(self, node: Node) -> int:
        """Lock the content that a sequence ending in `node` needs. Returns the mark where its lock
        ends, for `unlock`.
        """
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

    def unlock(self, node: Node, mark: int) -> None:
        """Undo one `lock` of `node`. mark: what `lock` returned."""
        while node.parent is not None:
            node.part_locks -= 1
            if node.part_locks < 0:
                raise InvariantError("a lock is released that is not held")
            if not node.part_locks and node.link is not None:
                self.evictable += self.size(node)
                self.locked -= self.size(node)
            if mark and node.mark == mark:
                break
            node = node.parent

    def check(self, nodes: list[Node]) -> None:
        """Raise InvariantError unless the counts equal those over `nodes`, all nodes of the
        tree.
        """
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


class NoSecondPool(SecondPool):
    """A second pool without content, for a tree that has none."""

    cuts_prompts: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__(0, 0)
        self._walk = Walk()

    def size(self, node: Node) -> int:
        return 0

    def walk(self) -> Walk:
        return self._walk

    def matched(self, node: Node) -> None:
        return

    def split(self, upper: Node, lower: Node) -> None:
        return

    def held_path(self, node: Node) -> list[Node]:
        return []

    def ends_lock(self, path: list[Node]) -> bool:
        return True

    def lock(self, node: Node) -> int:
        return 0

    def unlock(self, node: Node, mark: int) -> None:
        return

    def passed(self, tree: Cutter, node: Node, begin: int, places: Places) -> None:
        return

    def inserted(self, tree: Cutter, node: Node, begin: int, places: Places, *, new: bool) -> None:
        return
