"""What a storage has brought into host memory becomes part of the tree."""

from kvsim.memory.radix.content import Content
from kvsim.memory.radix.node import Node
from kvsim.memory.radix.tree import RadixTree


def hang(tree: RadixTree, anchor: Node, content: Content, begin: int, end: int) -> int:
    """Tokens `begin` to `end` of `content`, for which room in host memory is taken, hang below
    `anchor`, which ends at `begin` and is in host memory, or is the root. Returns how many of them
    were not known.

    What lies in host memory already gives its room back. What lies on the device alone takes it,
    but gives it back where content is written when the device evicts it.
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
