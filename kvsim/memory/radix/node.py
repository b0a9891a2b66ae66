"""A node of the radix tree, and who is told what becomes of nodes."""

from typing import Protocol

from kvsim.request import TokenRuns


class Node:
    """tokens: of the run it holds. locks: sequences that hold it or something below it.
    used: when it was last used; of two nodes, never equal. used_ps: the same by the clock.
    """

    __slots__ = ("children", "locks", "parent", "runs", "tokens", "used", "used_ps")

    def __init__(self, parent: "Node | None", runs: TokenRuns, tokens: int) -> None:
        self.parent = parent
        self.runs = runs
        self.tokens = tokens
        self.children: dict[int | TokenRuns, Node] = {}
        self.locks = 0
        self.used = 0
        self.used_ps = 0

    @property
    def depth(self) -> int:
        """Nodes on its path, the root apart."""
        depth, node = 0, self
        while node.parent is not None:
            depth, node = depth + 1, node.parent
        return depth


class TreeListener(Protocol):
    """Who is told what becomes of a tree."""

    def hit(self, tokens: int, nodes: int) -> None:
        """Somebody starts on so many known tokens, in so many nodes one below the other."""

    def evicted(self, tokens: int, age_ps: int) -> None:
        """A node of so many tokens is forgotten, that long after its last use."""


class NodeKeeper(Protocol):
    """Who is told what nodes there are, and which somebody holds."""

    def filed(self, node: Node) -> None:
        """A new leaf."""

    def brought(self, node: Node, owner: str) -> None:
        """A node that was known elsewhere has slots again, which `owner` asked for."""

    def split(self, upper: Node, lower: Node) -> None:
        """The first tokens of `lower` are the node `upper` from now on."""

    def turned(self, node: Node) -> None:
        """Somebody holds it, and nobody did before; or the other way about."""

    def forgotten(self, node: Node) -> None:
        """It is evicted."""
