"""The radix tree with a second pool (mem_cache/unified_cache/unified_tree_core.py, 0.5.23).

A look-up goes down as far as tokens agree and ends where the second pool allows it to; nodes below
are not used by it, though it may have split one. Locks hold all KV above, and of the second pool
what its part says.
"""

from typing import NamedTuple

from kvsim.memory.radix.node import Content, Node
from kvsim.memory.radix.tree import LEVELS, NO_MATCH, Match, RadixTree
from kvsim.memory.radix_hybrid.node import HybridNode
from kvsim.memory.radix_hybrid.part import Places, SecondPool
from kvsim.memory.radix_hybrid.states import StatePart
from kvsim.memory.radix_hybrid.windows import WindowPart
from kvsim.request import TokenRuns


class TreeMatch(NamedTuple):
    """node: where a look-up ends, and the tokens down to there. agreed: tokens that agree, in whole
    pages, even if a sequence cannot continue from all of them.
    """

    node: HybridNode
    tokens: int
    agreed: int


def hybrid(node: Node) -> HybridNode:
    """A node of such a tree, which has no others."""
    assert isinstance(node, HybridNode)
    return node


class HybridTree(RadixTree):
    """part: the second pool."""

    def __init__(self, page_size: int, part: SecondPool) -> None:
        super().__init__(page_size)
        self.part = part
        self.root = HybridNode(None, (), 0)

    # --- looking up ----------------------------------------------------------------------------

    def find(self, content: Content, limit: int) -> Match:
        node, at, unlocked, best = self.root, 0, 0, NO_MATCH
        walk = self.part.walk()
        while limit - at >= self._page:
            child = node.children.get(self._first_page(content, at))
            if child is None:
                break
            same = self._common(content, at, child, limit)
            at += same
            if not child.locks:
                unlocked += same
            if walk.reaches(hybrid(child), same, whole=same == child.tokens):
                best = Match(at, unlocked)
            if same < child.tokens:
                break
            node = child
        return best

    def match(self, content: Content, limit: int) -> tuple[Node, int]:
        found = self.look_up(content, limit)
        return found.node, found.tokens

    def look_up(self, content: Content, limit: int) -> TreeMatch:
        """The same as `match`, and how far tokens agree."""
        root = hybrid(self.root)
        if limit < self._page:
            return TreeMatch(root, 0, 0)
        node, at, best, tokens = root, 0, root, 0
        walk = self.part.walk()
        while limit - at >= self._page:
            child = node.children.get(self._first_page(content, at))
            if child is None:
                break
            same = self._common(content, at, child, limit)
            node = hybrid(child if same == child.tokens else self._split(child, same))
            at += same
            if walk.reaches(node, same, whole=True):
                best, tokens = node, at
            if node is not child:
                break
        self.part.matched(best)
        self._counter += 1
        level, used = 0, best
        while used.parent is not None:
            self._date(used, self._counter * LEVELS - level)
            level, used = level + 1, hybrid(used.parent)
        return TreeMatch(best, tokens, at)

    # --- keeping -------------------------------------------------------------------------------

    def file(self, content: Content, places: Places) -> tuple[HybridNode, int]:
        """As `insert` of the first places.end tokens, with their share of the second pool."""
        part, node, at = self.part, self.root, 0
        while places.end - at >= self._page:
            child = node.children.get(self._first_page(content, at))
            if child is None:
                break
            self._use(child)
            same = self._common(content, at, child, places.end)
            node = child if same == child.tokens else self._split(child, same)
            if isinstance(part, WindowPart):
                self._fill_hole(part, hybrid(node), at, places)
            at += same
            if node is not child:
                break
        known, new = at, at < places.end
        if new:
            leaf = self._new(node, content.pieces(at, places.end), places.end - at)
            node.children[self._key(leaf.runs)] = leaf
            self.evictable += leaf.tokens
            self._use(leaf)
            if self.keeper is not None:
                self.keeper.filed(leaf)
            node = leaf
        end = hybrid(node)
        if isinstance(part, WindowPart):
            if new:
                self._file_windows(part, end, known, places)
            part.use(end)
        elif isinstance(part, StatePart):
            self._file_state(part, end, places)
        return end, known

    def _fill_hole(self, part: WindowPart, node: HybridNode, begin: int, places: Places) -> None:
        """Windows that `node`, from token `begin` on, lost, and the sequence has."""
        end = begin + node.tokens
        if node.link is not None or places.begin >= end or places.cursor >= end:
            return
        if places.cursor > begin:
            self._split(node, places.cursor - begin)
        part.put(node)
        places.adopted += node.tokens

    def _file_windows(self, part: WindowPart, leaf: HybridNode, at: int, places: Places) -> None:
        """Windows of a new leaf that begins at token `at`: those behind the cursor, in a node of a
        window's size, and one above it for what is more.
        """
        if places.cursor >= places.end:
            return
        if places.cursor > at:
            self._split(leaf, places.cursor - at)
        places.adopted += leaf.tokens
        if leaf.tokens > part.tail:
            part.put(hybrid(self._split(leaf, leaf.tokens - part.tail)))
        part.put(leaf)

    def _file_state(self, part: StatePart, node: HybridNode, places: Places) -> None:
        """The state after the last token, unless one is there already."""
        if node.parent is None:
            places.known = True
            return
        if node.link is not None:
            part.recency.renew([node])
            places.known = True
        else:
            part.put(node)
            places.adopted = 1
        self._use(node)
        if not places.known:
            part.thin_path(node)

    def hold(self, node: HybridNode) -> int:
        """Lock `node`; returns the end of the lock on the second pool."""
        self.lock(node)
        return self.part.lock(node)

    def make_room(self, units: int) -> int:
        """Forget what the second pool has longest, until `units` of it are free or nothing is left
        to forget. An unlocked leaf is evicted whole, with its KV; returns those tokens.
        """
        part, tokens = self.part, 0
        if part.free >= units:
            return 0
        for node in part.recency.from_oldest():
            if node.part_locks:
                continue
            if node.locks or node.children:
                part.drop(node)
            else:
                tokens += self._remove_leaf(node)
            if part.free >= units:
                break
        self.evicted += tokens
        return tokens

    # --- nodes ---------------------------------------------------------------------------------

    def _new(self, parent: Node, runs: TokenRuns, tokens: int) -> Node:
        self.num_nodes += 1
        return HybridNode(parent, runs, tokens)

    def _split(self, node: Node, tokens: int) -> Node:
        upper = super()._split(node, tokens)
        self.part.split(hybrid(upper), hybrid(node))
        return upper

    def _remove_leaf(self, node: Node) -> int:
        self.part.forgotten(hybrid(node))
        return super()._remove_leaf(node)

    def check(self) -> None:
        super().check()
        self.part.check([hybrid(node) for node in self.nodes()])
