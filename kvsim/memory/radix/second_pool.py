"""A radix tree's second pool, next to the KV of all tokens
(mem_cache/unified_cache/components/base.py, SGLang 0.5.23).

It is absent (`NoSecondPool`), or holds the windows or recurrent states of nodes.

A node that has lost its content in the second pool keeps its KV; it can then only be passed.
"""

from abc import abstractmethod
from typing import ClassVar, Protocol

from mypy_extensions import mypyc_attr

from kvsim.memory.radix.node import Node
from kvsim.memory.radix.recency import Recency
from kvsim.plumbing.errors import InvariantError


class Cutter(Protocol):
    """Operations of a tree that its second pool needs."""

    def split(self, node: Node, tokens: int) -> Node:
        """The first `tokens` of `node` become a node of their own, which is returned."""

    def use(self, node: Node) -> None:
        """`node` is the most recently used one."""


class Places:
    """The tokens of an insertion. begin, end: of the tokens, in whole pages,
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


@mypyc_attr(allow_interpreted_subclasses=True)
class Walk:
    """A prefix look-up that descends the tree, called with each node.

    This class serves trees without a second pool, in which a hit may end anywhere.
    """

    def reaches(self, node: Node, tokens: int, *, whole: bool) -> bool:
        """Whether a hit may end after the first `tokens` of `node`. whole: they are all of its
        tokens.
        """
        return True


@mypyc_attr(allow_interpreted_subclasses=True)
class SecondPool:
    """A pool of `pool` units, and what the tree holds of it.

    free: free units. evictable, locked: those in the tree, by whether a sequence holds
    them. evicted: those evicted to make room so far. unit_bytes: of one.

    cuts_prompts: an insertion is cut at the end of the prompt, so that outputs can be evicted
    without it.
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
        """Units that could be handed out now."""
        return self.free + self.evictable

    @abstractmethod
    def size(self, node: Node) -> int:
        """Units that a node takes which has them."""

    @abstractmethod
    def walk(self) -> Walk:
        """A look-up begins at the root."""

    @abstractmethod
    def matched(self, node: Node) -> None:
        """A look-up ended in `node`."""

    @abstractmethod
    def split(self, upper: Node, lower: Node) -> None:
        """The first tokens of `lower` are the node `upper` from now on."""

    @abstractmethod
    def held_path(self, node: Node) -> list[Node]:
        """The nodes that a lock on `node` takes, from it upwards."""

    @abstractmethod
    def ends_lock(self, path: list[Node]) -> bool:
        """Whether a lock on this path ends before the root."""

    @abstractmethod
    def passed(self, tree: Cutter, node: Node, begin: int, places: Places) -> None:
        """An insertion walks over `node`, which begins at token `begin`."""

    @abstractmethod
    def inserted(self, tree: Cutter, node: Node, begin: int, places: Places, *, new: bool) -> None:
        """An insertion ends in `node`. new: the node is, and begins at token `begin`."""

    # --- what nodes have -----------------------------------------------------------------------

    def put(self, node: Node) -> None:
        """`node` has units from now on, the newest, handed over by a sequence."""
        self.recency.push(node)
        if node.part_locks:
            self.locked += self.size(node)
        else:
            self.evictable += self.size(node)

    def drop(self, node: Node) -> None:
        """Evict the unlocked units of `node`, for room."""
        self.evicted += self.size(node)
        self.discard(node)

    def discard(self, node: Node) -> None:
        """Free the unlocked units of `node`."""
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


class NoSecondPool(SecondPool):
    """The second pool of a tree without one."""

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
