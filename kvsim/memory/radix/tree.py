"""The radix tree over tokens that SGLang keeps KV in (mem_cache/unified_cache, 0.5.23).

A node holds a run of whole pages; its children differ in their first page. A running sequence locks
the node in which its content ends, and all nodes above. Unlocked nodes may be evicted: the least
recently used leaf first, whole.

Use is dated by a counter. A lookup dates the node it ends in and, each a little older, those above;
an insertion dates what it walks, deeper is newer.
"""

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import NamedTuple

from kvsim.memory.radix.node import Content, Node, NodeKeeper, TreeListener, cut
from kvsim.plumbing.errors import InvariantError
from kvsim.request import TokenRuns

LEVELS = 1 << 24  # more than a tree is deep: dates of one lookup lie between two of the counter
FEWEST_TO_SWEEP = 1 << 10


class Match(NamedTuple):
    """tokens: length of the longest known prefix, in whole pages; unlocked: unlocked tokens of
    it.
    """

    tokens: int
    unlocked: int


NO_MATCH = Match(0, 0)


class RadixTree:
    """Known content. evictable, locked: its unlocked and its locked tokens.

    evicted: tokens evicted so far. num_nodes: nodes without the root.
    listener: notified of hits and evictions; now_ps: the time, set by the listener for ages.
    keeper: notified of nodes.
    """

    def __init__(self, page_size: int) -> None:
        self._page = page_size
        self._counter = 0
        self.root = Node(None, (), 0)
        self.num_nodes = 0
        self.evictable = 0
        self.locked = 0
        self.evicted = 0
        self.listener: TreeListener | None = None
        self.keeper: NodeKeeper | None = None
        self.now_ps = 0
        self._leaves: list[tuple[int, Node]] = []  # a heap, with outdated entries

    # --- looking up ----------------------------------------------------------------------------

    def find(self, content: Content, limit: int) -> Match:
        """The longest known prefix of the first `limit` tokens; changes nothing."""
        page, node, at, unlocked = self._page, self.root, 0, 0
        while limit - at >= page:
            child = self._child(node, content, at)
            if child is None:
                break
            same = self._common(content, at, child, limit)
            at += same
            if not child.locks:
                unlocked += same
            if same < child.tokens:
                break
            node = child
        return Match(at, unlocked) if at else NO_MATCH

    def _child(self, node: Node, content: Content, at: int) -> Node | None:
        """The child of `node` that goes on with the page of `content` at `at`, on the device."""
        return node.children.get(self._first_page(content, at))

    def match(self, content: Content, limit: int) -> tuple[Node, int]:
        """The node in which that prefix ends, split off where it ends inside one, and its tokens.
        They count as used now.
        """
        if limit < self._page:
            return self.root, 0
        page, node, at, level = self._page, self.root, 0, 0
        path = []
        while limit - at >= page:
            child = node.children.get(self._first_page(content, at))
            if child is None:
                break
            same = self._common(content, at, child, limit)
            node = child if same == child.tokens else self._split(child, same)
            path.append(node)
            at += same
            if node is not child:
                break
        self._counter += 1
        for level, used in enumerate(reversed(path)):
            self._date(used, self._counter * LEVELS - level)
        return node, at

    # --- keeping -------------------------------------------------------------------------------

    def insert(self, content: Content, tokens: int) -> tuple[Node, int]:
        """The first `tokens` tokens (whole pages) are known from now on. Returns the node they end
        in and how many of them were known already; the others become evictable.
        """
        page, node, at = self._page, self.root, 0
        while tokens - at >= page:
            child = node.children.get(self._first_page(content, at))
            if child is None:
                break
            self._use(child)
            same = self._common(content, at, child, tokens)
            at += same
            if same < child.tokens:
                node = self._split(child, same)
                break
            node = child
        if at == tokens:
            return node, at
        leaf = self._new(node, content.pieces(at, tokens), tokens - at)
        node.children[self._key(leaf.runs)] = leaf
        self.evictable += leaf.tokens
        self._use(leaf)
        if self.keeper is not None:
            self.keeper.filed(leaf)
        return leaf, at

    def lock(self, node: Node) -> None:
        """One more sequence holds `node` and all above it."""
        while node.parent is not None:
            if not node.locks:
                self.evictable -= node.tokens
                self.locked += node.tokens
                if self.keeper is not None:
                    self.keeper.turned(node)
            node.locks += 1
            node = node.parent

    def unlock(self, node: Node) -> None:
        """A sequence unlocks `node` and all above it."""
        while node.parent is not None:
            node.locks -= 1
            if not node.locks:
                self.evictable += node.tokens
                self.locked -= node.tokens
                self._offer(node)
                if self.keeper is not None:
                    self.keeper.turned(node)
            node = node.parent

    def num_shared(self, node: Node | None) -> int:
        """Tokens from the root down to `node` that several sequences hold."""
        tokens = 0
        while node is not None:
            if node.locks > 1:
                tokens += node.tokens
            node = node.parent
        return tokens

    def evict(self, tokens: int) -> int:
        """Evict unlocked leaves, whole, until at least `tokens` tokens are gone, or none is left.
        Returns the number of evicted tokens.
        """
        gone = 0
        while gone < tokens and self.evictable:
            entry = heappop(self._leaves)
            node = entry[1]
            if not self._stands(entry):
                continue
            gone += self._remove_leaf(node)
        if gone:
            self.evicted += gone
        return gone

    def _remove_leaf(self, node: Node) -> int:
        """Evict an unlocked leaf; returns its tokens."""
        if self.listener is not None:
            self.listener.evicted(node.tokens, self.now_ps - node.used_ps)
        if self.keeper is not None:
            self.keeper.forgotten(node)
        self.num_nodes -= 1
        self.evictable -= node.tokens
        parent = node.parent
        assert parent is not None
        node.parent = None
        del parent.children[self._key(node.runs)]
        if parent.parent is not None:
            self._offer(parent)
        return node.tokens

    def nodes(self) -> Iterator[Node]:
        """All nodes, the root apart."""
        stack = list(self.root.children.values())
        while stack:
            node = stack.pop()
            yield node
            stack += node.children.values()

    # --- nodes ---------------------------------------------------------------------------------

    def _first_page(self, content: Content, at: int) -> int | TokenRuns:
        """The key of the child that continues `content` at token `at`."""
        if self._page == 1:
            return content.token(at)
        return self._key(content.pieces(at, at + self._page))

    def _key(self, runs: TokenRuns) -> int | TokenRuns:
        start, length = runs[0]
        if self._page == 1:
            return start
        return ((start, self._page),) if length >= self._page else cut(runs, self._page)[0]

    def _common(self, content: Content, at: int, node: Node, limit: int) -> int:
        """Tokens in common with `node` from token `at` on, in whole pages."""
        same = content.common(at, node.runs, limit)
        return same - same % self._page

    def _new(self, parent: Node, runs: TokenRuns, tokens: int) -> Node:
        self.num_nodes += 1
        return Node(parent, runs, tokens)

    def _split(self, node: Node, tokens: int) -> Node:
        """The first `tokens` of `node` become a node of their own with the same locks. The rest in
        `node` is dated newest though not used; the caller may use the other after it.
        """
        parent = node.parent
        assert parent is not None
        head, tail = cut(node.runs, tokens)
        upper = self._new(parent, head, tokens)
        upper.locks = node.locks
        parent.children[self._key(head)] = upper
        upper.children[self._key(tail)] = node
        node.parent, node.runs, node.tokens = upper, tail, node.tokens - tokens
        self._use(upper)
        self._use(node)
        if self.keeper is not None:
            self.keeper.split(upper, node)
        return upper

    def _use(self, node: Node) -> None:
        self._counter += 1
        self._date(node, self._counter * LEVELS)

    def _date(self, node: Node, used: int) -> None:
        node.used, node.used_ps = used, self.now_ps
        self._offer(node)

    def _offer(self, node: Node) -> None:
        """Put `node` among those to evict, if it is one."""
        if node.locks or node.children:
            return
        leaves = self._leaves
        heappush(leaves, (node.used, node))
        if len(leaves) > FEWEST_TO_SWEEP and len(leaves) > 4 * self.num_nodes:
            self._leaves = sorted(
                {id(entry[1]): entry for entry in leaves if self._stands(entry)}.values()
            )

    @staticmethod
    def _stands(entry: tuple[int, Node]) -> bool:
        """Whether an entry of the heap is of a leaf to evict."""
        used, node = entry
        return (
            node.used == used and not node.locks and not node.children and node.parent is not None
        )

    def check(self) -> None:
        """Raise InvariantError unless the tree is whole and its counts are true."""
        found = {True: 0, False: 0}
        offered = {id(entry[1]) for entry in self._leaves if self._stands(entry)}
        num_nodes = 0
        stack = [self.root]
        while stack:
            node = stack.pop()
            for key, child in node.children.items():
                length = sum(length for _, length in child.runs)
                whole = child.parent is node and length == child.tokens and length % self._page == 0
                if not whole or not length or key != self._key(child.runs):
                    raise InvariantError(f"a node of {child.tokens} tokens is broken: {child.runs}")
                if child.locks and node.parent is not None and node.locks < child.locks:
                    raise InvariantError("a node is locked more often than its parent")
                leaf = not child.locks and not child.children
                if leaf and id(child) not in offered:
                    raise InvariantError(f"a leaf can never be evicted: {child.runs}")
                found[child.locks > 0] += child.tokens
                num_nodes += 1
                stack.append(child)
        if num_nodes != self.num_nodes:
            raise InvariantError(f"{num_nodes} nodes, counted as {self.num_nodes}")
        if found != {True: self.locked, False: self.evictable}:
            raise InvariantError(
                f"tree holds {found} tokens by locked, counted {self.locked}, {self.evictable}"
            )
