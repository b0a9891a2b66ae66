"""Insert content that a storage has read into host memory into the tree."""

from kvsim.memory.radix.content import Content
from kvsim.memory.radix.node import Node
from kvsim.memory.radix.tree import RadixTree


def hang(tree: RadixTree, anchor: Node, content: Content, begin: int, end: int) -> int:
    """Insert tokens `begin` to `end` of `content`, with allocated room in host memory, below
    `anchor`, which ends at `begin`.

    The anchor is in host memory, or is the root. Returns the number of tokens that were new.

    The room of tokens in host memory already is freed. Tokens on the device alone use the room,
    except under write-back, where it is freed.
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
