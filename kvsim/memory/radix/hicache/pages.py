"""Keys of pages in L3 storage: a page is identified by all tokens up to its end."""

from collections.abc import Iterator

from kvsim.memory.radix.content import Content
from kvsim.memory.radix.node import Node
from kvsim.request import TokenRuns


class PageKeys:
    """Keys of pages of `page_size` tokens: equal if all tokens up to the ends of the pages are
    equal.
    """

    def __init__(self, page_size: int) -> None:
        self._page = page_size
        self._keys: dict[tuple[int, TokenRuns], int] = {}

    def of(self, before: int, content: Content, begin: int, end: int) -> Iterator[int]:
        """Keys of the whole pages of `content` from token `begin` to `end`.

        before: the key of the page that ends at `begin`, 0 at the root.
        """
        for at in range(begin, end - end % self._page, self._page):
            page = before, content.pieces(at, at + self._page)
            before = self._keys.setdefault(page, len(self._keys) + 1)
            yield before

    def of_node(self, node: Node) -> list[int]:
        """Keys of all pages of a node."""
        before = self.last(node.above)
        keys = list(self.of(before, Content(node.runs), 0, node.tokens))
        node.last_key = keys[-1]
        return keys

    def last(self, node: Node) -> int:
        """The key of the page in which a node ends."""
        unknown = []
        while node.parent is not None and node.last_key is None:
            unknown.append(node)
            node = node.above
        for each in reversed(unknown):
            node = each
            self.of_node(node)
        return node.last_key or 0
