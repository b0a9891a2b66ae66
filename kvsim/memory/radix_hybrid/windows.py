"""KV of sliding windows in a radix tree (components/swa.py, 0.5.23), freed node by node when it is
far outside the window.

To continue, a sequence needs the last window of tokens before its end. So a hit may end where the
last window of tokens has KV without gaps, or where nothing above is missing.
"""

from mypy_extensions import mypyc_attr

from kvsim.memory.radix.node import Node
from kvsim.memory.radix.second_pool import Cutter, Places, SecondPool, Walk
from kvsim.plumbing.units import ceil_div


class WindowWalk(Walk):
    """A lookup that counts the tokens with window KV, without gaps, up to the current node."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._whole = True  # nothing is missing from the root on
        self._tokens = 0

    def reaches(self, node: Node, tokens: int, *, whole: bool) -> bool:
        if node.link is None:
            self._whole, self._tokens = False, 0
            return False
        self._tokens += tokens
        return self._whole or self._tokens >= self._window


@mypyc_attr(allow_interpreted_subclasses=True)
class WindowPart(SecondPool):
    """The window KV in the tree. window: tokens of the window. page: tokens of a page."""

    def __init__(self, pool: int, unit_bytes: int, window: int, page: int) -> None:
        super().__init__(pool, unit_bytes)
        self.window = window
        self.page = page
        self.tail = ceil_div(window, page) * page  # of a new leaf, so that one lock pins one window

    def size(self, node: Node) -> int:
        return node.tokens

    def walk(self) -> Walk:
        return WindowWalk(self.window)

    def matched(self, node: Node) -> None:
        self.use(node)

    def use(self, node: Node) -> None:
        """Mark the window KV within a window and a page of the end of `node` as used, deepest
        last.
        """
        reached, used = 0, []
        up: Node = node
        while up.parent is not None and reached < self.window + self.page:
            if up.link is not None:
                used.append(up)
            reached += up.tokens
            up = up.parent
        self.recency.renew(used)

    def split(self, upper: Node, lower: Node) -> None:
        upper.part_locks = lower.part_locks
        upper.mark, lower.mark = lower.mark, 0
        if lower.link is not None:
            self.recency.put_behind(upper, lower)

    def held_path(self, node: Node) -> list[Node]:
        path, reached = [], 0
        while node.parent is not None and reached < self.window:
            path.append(node)
            reached += node.tokens
            node = node.parent
        return path

    def ends_lock(self, path: list[Node]) -> bool:
        return sum(node.tokens for node in path) >= self.window

    # --- insertions ----------------------------------------------------------------------------

    def passed(self, tree: Cutter, node: Node, begin: int, places: Places) -> None:
        """Restore the window KV of a tombstone `node` from the inserting sequence, if that has
        it.
        """
        end = begin + node.tokens
        if node.link is not None or places.begin >= end or places.cursor >= end:
            return
        if places.cursor > begin:
            tree.split(node, places.cursor - begin)
        self.put(node)
        places.adopted += node.tokens

    def inserted(self, tree: Cutter, node: Node, begin: int, places: Places, *, new: bool) -> None:
        if new and places.cursor < places.end:
            self._adopt(tree, node, begin, places)
        self.use(node)

    def _adopt(self, tree: Cutter, leaf: Node, begin: int, places: Places) -> None:
        """Take over the window KV of a new leaf, after the cursor. A long leaf is split, so that a
        node of a window's size is at the end.
        """
        if places.cursor > begin:
            tree.split(leaf, places.cursor - begin)
        places.adopted += leaf.tokens
        if leaf.tokens > self.tail:
            self.put(tree.split(leaf, leaf.tokens - self.tail))
        self.put(leaf)
