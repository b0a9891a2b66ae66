"""A node of the radix tree, and the interfaces of its listeners."""

from typing import Protocol

from kvsim.request import TokenRuns


class Node:
    """tokens: length of its run. locks: sequences that hold it or a node below it. used: counter at
    its last use, different for each node. used_ps: time of its last use.
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
    """Is notified of hits and evictions in a tree."""

    def hit(self, tokens: int, nodes: int) -> None:
        """A sequence starts with `tokens` cached tokens in a path of `nodes` nodes."""

    def evicted(self, tokens: int, age_ps: int) -> None:
        """A node of `tokens` tokens is evicted, `age_ps` after its last use."""


class NodeKeeper(Protocol):
    """Is notified of new, split and evicted nodes, and of their locks."""

    def filed(self, node: Node) -> None:
        """A new leaf."""

    def brought(self, node: Node, owner: str) -> None:
        """A node known in another tier gets slots again, requested by `owner`."""

    def split(self, upper: Node, lower: Node) -> None:
        """The first tokens of `lower` are the node `upper` from now on."""

    def turned(self, node: Node) -> None:
        """The node got its first lock or lost its last one."""

    def forgotten(self, node: Node) -> None:
        """The node is evicted."""
