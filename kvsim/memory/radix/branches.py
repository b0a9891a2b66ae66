"""Depth-first order of waiting sequences by the radix tree nodes of their cached prefixes."""

from collections import Counter
from collections.abc import Mapping

from kvsim.memory.radix.node import Node
from kvsim.memory.radix.tree import RadixTree
from kvsim.sequence import Sequence


def by_branch(tree: RadixTree, ends: Mapping[Sequence, Node | None]) -> list[Sequence]:
    """Sort the sequences of `ends` depth first (mem_cache/base_prefix_cache.py,
    `dfs_weight_order`). Sequences below a node come before those that end in it. Children with more
    sequences come first.

    ends: the node in which the cached prefix of each sequence ends; None: the root. Children with
    equally many sequences come in the order in which they were added to the tree.
    """
    own: dict[Node, list[Sequence]] = {}
    weights: Counter[Node] = Counter()
    for seq, end in ends.items():
        node = end
        while node is not None and not node.on_device:
            node = node.parent
        own.setdefault(tree.root if node is None else node, []).append(seq)
        while node is not None:
            weights[node] += 1
            node = node.parent
    ordered: list[Sequence] = []
    stack = [(tree.root, False)]
    while stack:
        node, done = stack.pop()
        if done:
            ordered += own.get(node, ())
            continue
        stack.append((node, True))
        children = [child for child in node.children.values() if child in weights]
        children.sort(key=lambda child: -weights[child])
        stack += [(child, False) for child in reversed(children)]
    return ordered
