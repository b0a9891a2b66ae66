"""The nodes of the radix tree, the interfaces of its listeners, and the content that is cut into
nodes.
"""

from bisect import bisect_right
from itertools import accumulate
from typing import Protocol

from kvsim.request import TokenRuns
from kvsim.token_runs import coalesced


class Content:
    """All tokens that a sequence will ever hold, from its first on, cut and compared as runs:
    nothing here costs by the token.

    Canonical: no two neighbouring runs could be one, so equal tokens give equal pieces.
    """

    __slots__ = ("_ends", "_starts")

    def __init__(self, runs: TokenRuns) -> None:
        few = tuple(coalesced(runs))
        self._starts = [start for start, _ in few]
        self._ends = list(accumulate(length for _, length in few))

    def token(self, at: int) -> int:
        """The token there."""
        index = bisect_right(self._ends, at)
        return self._starts[index] + at - (self._ends[index - 1] if index else 0)

    def pieces(self, begin: int, end: int) -> TokenRuns:
        """Tokens `begin` to `end` (exclusive) as runs."""
        starts, ends = self._starts, self._ends
        index = bisect_right(ends, begin)
        found: list[tuple[int, int]] = []
        while begin < end:
            run_begin = ends[index - 1] if index else 0
            upto = min(ends[index], end)
            found.append((starts[index] + begin - run_begin, upto - begin))
            begin = upto
            index += 1
        return tuple(found)

    def common(self, begin: int, runs: TokenRuns, limit: int) -> int:
        """How many tokens from `begin` on agree with `runs`, none at or behind `limit` counted."""
        starts, ends = self._starts, self._ends
        index, at = bisect_right(ends, begin), begin
        for start, length in runs:
            while length and at < limit:
                run_begin = ends[index - 1] if index else 0
                if starts[index] + at - run_begin != start:
                    return at - begin
                same = min(length, ends[index] - at)
                at, start, length = at + same, start + same, length - same
                index += at == ends[index]
        return min(at, limit) - begin


def cut(runs: TokenRuns, tokens: int) -> tuple[TokenRuns, TokenRuns]:
    """`runs` in two: the first `tokens` of them, and the rest."""
    head: list[tuple[int, int]] = []
    for index, (start, length) in enumerate(runs):
        if length > tokens:
            rest = ((start + tokens, length - tokens), *runs[index + 1 :])
            return (*head, (start, tokens)) if tokens else tuple(head), rest
        head.append((start, length))
        tokens -= length
    return tuple(head), ()


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
