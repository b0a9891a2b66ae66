"""What a storage has brought into host memory becomes part of the tree."""

from kvsim.memory.radix.content import Content
from kvsim.memory.radix.hicache.node import TierNode
from kvsim.memory.radix.hicache.tree import HicacheTree


def hang(tree: HicacheTree, anchor: TierNode, content: Content, begin: int, end: int) -> int:
    """Tokens `begin` to `end` of `content`, for which room in host memory is taken, hang below
    `anchor`, which ends at `begin`. Returns how many of them were not in host memory.

    What lies there already gives its room back; what lies on the device alone takes it. Where the
    tree of host copies is closed upwards and the way ends outside of it, all is given back.
    """
    tokens = end - begin
    way, at = tree.walk(anchor, content, begin, end)
    last = way[-1]
    if tree.write_first is None and last.parent is not None and not last.on_host:
        tree.host_free += tokens
        return 0
    known = 0
    for node in way[1:]:
        tree.host_free += node.tokens
        if node.on_host:
            known += node.tokens
        else:
            tree.add_host_copy(node)
            tree.list_duplicate(node)
    if at < end:
        tree.hang(last, content.pieces(at, end), end - at)
    return tokens - known
