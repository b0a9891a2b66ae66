"""Insert content that was prefetched from storage into host memory into the radix tree."""

from kvsim.memory.radix.content import Content
from kvsim.memory.radix.node import Node
from kvsim.memory.radix.tree import RadixTree


def hang(tree: RadixTree, anchor: Node, content: Content, begin: int, end: int) -> int:
    """Insert tokens `begin` to `end` of `content`, with allocated room in host memory, below
    `anchor`, which ends at `begin`.

    The anchor is in host memory, or is the root. Returns the number of tokens that were new.

    Room allocated for tokens that host memory has already is freed. Tokens that are only on the
    device use their room, except under write_back, where it is freed.
    """
    way, at = tree.walk(anchor, content, begin, end)
    known = 0
    for node in way[1:]:
        tree.host.free += node.tokens
        if node.on_host or tree.host.write_first is not None:
            known += node.tokens
        else:
            tree.host.add_copy(node)
    if at < end:
        tree.hang(way[-1], content.pieces(at, end), end - at)
    return end - begin - known
