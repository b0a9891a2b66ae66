"""A stream's prompts as paths in one tree of blocks, stored as segments instead of single blocks.

Two prompts share a block if their tokens up to its end are equal. A segment is a number of blocks
with consecutive token ids, so a path has a few segments however long the prompt is.
"""

from collections.abc import Iterator
from typing import NamedTuple

from kvsim.request import TokenRuns
from kvsim.token_runs import coalesced

BlockKey = int | TokenRuns


class Stretch(NamedTuple):
    """A segment of blocks. num_blocks: number of blocks with consecutive token ids from `key` on.
    If a block contains several runs of token ids, `key` is a tuple of the runs, and num_blocks is
    1.
    """

    key: BlockKey
    num_blocks: int


def stretches(runs: TokenRuns, block_tokens: int, *, partial: bool) -> Iterator[Stretch]:
    """The blocks of a prompt in order, as segments. partial: include the last block even if it is
    not full.
    """
    pending: list[tuple[int, int]] = []
    missing = block_tokens
    for start, length in coalesced(runs):  # or equal tokens would look different
        if pending:
            taken = min(missing, length)
            pending.append((start, taken))
            missing -= taken
            start, length = start + taken, length - taken
            if missing:
                continue
            yield Stretch(tuple(pending), 1)
            pending, missing = [], block_tokens
        whole, rest = divmod(length, block_tokens)
        if whole:
            yield Stretch(start, whole)
        if rest:
            pending, missing = [(start + whole * block_tokens, rest)], block_tokens - rest
    if pending and partial:
        yield Stretch(tuple(pending), 1)


class StretchNode:
    """A node of the tree: a segment of blocks.

    count: number of blocks. first: id of the first block; the others have the following ids.
    last_use: index of the last prompt that used it; -1 for none.
    """

    __slots__ = ("children", "count", "first", "key", "last_use")

    def __init__(self, key: BlockKey, count: int, first: int, last_use: int) -> None:
        self.key, self.count, self.first, self.last_use = key, count, first, last_use
        self.children: dict[BlockKey, StretchNode] = {}


class PromptTree:
    """All prompts so far, as paths from the root. num_blocks: number of distinct blocks."""

    def __init__(self, block_tokens: int, *, partial: bool = False) -> None:
        self.block_tokens, self.partial = block_tokens, partial
        self.num_blocks = 0
        self._root = StretchNode(0, 0, 0, -1)

    def walk(self, runs: TokenRuns) -> tuple[list[StretchNode], list[StretchNode]]:
        """Add a prompt; returns the existing nodes on its path, then the nodes created for it.

        A node that the path leaves half-way is split, so that the path consists of whole nodes.
        """
        found: list[StretchNode] = []
        made: list[StretchNode] = []
        node = self._root
        for stretch in stretches(runs, self.block_tokens, partial=self.partial):
            key, left = stretch
            while left:
                child = node.children.get(key)
                if child is None:
                    child = StretchNode(key, left, self.num_blocks, -1)
                    self.num_blocks += left
                    node.children[key] = child
                    made.append(child)
                else:
                    if child.count > left:
                        self._split(child, left)
                    found.append(child)
                node = child
                left -= child.count
                if isinstance(key, int):
                    key += child.count * self.block_tokens
        return found, made

    def _split(self, node: StretchNode, count: int) -> None:
        """Split a node after `count` blocks; the remaining blocks become its only child."""
        assert isinstance(node.key, int)  # a block of several runs is one block
        key = node.key + count * self.block_tokens
        rest = StretchNode(key, node.count - count, node.first + count, node.last_use)
        rest.children = node.children
        node.count, node.children = count, {key: rest}
