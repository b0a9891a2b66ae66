"""The radix tree of sglang-router 0.3.2 (`policies/tree.rs`): the prompt texts sent to each worker.

One tree for all workers. A match returns the worker recorded at the deepest node, the one that
created it. A worker over its limit loses its oldest leaves.
"""

from heapq import heapify, heappop, heappush

from kvsim.fleet.views.content import common_length, cut
from kvsim.request import TokenRuns

EVERY_MATCHES = 8  # a match refreshes its worker's time when the counter is a multiple


class TextNode:
    """A node: a segment of text. times: last use by each worker that has it. owner: the worker that
    created it.
    """

    __slots__ = ("children", "length", "order", "owner", "parent", "text", "times")

    def __init__(self, text: TokenRuns, length: int, parent: "TextNode | None", owner: int) -> None:
        self.text = text
        self.length = length
        self.parent = parent
        self.owner = owner
        self.children: dict[int, TextNode] = {}
        self.times: dict[int, int] = {}
        self.order = 0


class TextTree:
    """The radix tree of texts. sizes: units of text that each worker has in the tree."""

    def __init__(self) -> None:
        self._root = TextNode((), 0, None, -1)
        self._clock = 0
        self._made = 0
        self.sizes: dict[int, int] = {}

    def _tick(self) -> int:
        self._clock += 1
        return self._clock - 1

    def match(self, text: TokenRuns) -> tuple[int, int]:
        """(units matched, worker recorded at the deepest matching node); (0, -1) without a
        match.
        """
        node, matched = self._root, 0
        while text:
            child = node.children.get(text[0][0])
            if child is None:
                break
            shared = common_length(text, child.text)
            node, matched = child, matched + shared
            if shared < child.length:
                break
            text = cut(text, shared)[1]
        now = self._tick()
        if node is self._root:
            return 0, -1
        if node.owner not in node.times:
            if not node.times:
                return 0, -1
            node.owner = min(node.times)
        if now % EVERY_MATCHES == 0:
            node.times[node.owner] = now
        return matched, node.owner

    def insert(self, text: TokenRuns, worker: int) -> None:
        """Record that `worker` was sent this text."""
        if not text:
            return
        node = self._root
        while text:
            child = node.children.get(text[0][0])
            if child is None:
                length = sum(count for _, count in text)
                leaf = self._new(text, length, node, worker)
                node.children[text[0][0]] = leaf
                leaf.times[worker] = self._tick()
                self._grow(worker, length)
                return
            shared = common_length(text, child.text)
            if shared < child.length:
                child = self._split(child, shared)
            if worker not in child.times:
                child.times[worker] = 0
                self._grow(worker, shared)
            node, text = child, cut(text, shared)[1]
        node.times[worker] = self._tick()

    def _new(self, text: TokenRuns, length: int, parent: TextNode, owner: int) -> TextNode:
        node = TextNode(text, length, parent, owner)
        self._made += 1
        node.order = self._made
        return node

    def _split(self, node: TextNode, units: int) -> TextNode:
        """Split a node after `units` units; returns the upper half, with the same workers."""
        parent = node.parent
        assert parent is not None
        head, tail = cut(node.text, units)
        upper = self._new(head, units, parent, node.owner)
        upper.times = dict(node.times)
        upper.children[tail[0][0]] = node
        parent.children[head[0][0]] = upper
        node.text, node.length, node.parent = tail, node.length - units, upper
        return upper

    def _grow(self, worker: int, units: int) -> None:
        self.sizes[worker] = self.sizes.get(worker, 0) + units

    def evict(self, limit: int) -> None:
        """Evict the oldest leaves of each worker that has more than `limit` units."""
        for worker, size in self.sizes.items():
            if size > limit:
                self._evict(worker, limit)

    def _evict(self, worker: int, limit: int) -> None:
        leaves = [(node.times[worker], node.order, node) for node in self._leaves(worker)]
        heapify(leaves)
        while leaves and self.sizes[worker] > limit:
            _, _, node = heappop(leaves)
            self._lose(node, worker)
            parent = node.parent
            if parent is not None and parent is not self._root and self._is_leaf(parent, worker):
                heappush(leaves, (parent.times[worker], parent.order, parent))

    def _lose(self, node: TextNode, worker: int) -> None:
        del node.times[worker]
        self.sizes[worker] -= node.length
        if not node.times and not node.children and node.parent is not None:
            del node.parent.children[node.text[0][0]]

    def forget(self, worker: int) -> None:
        """Remove all texts of a worker that is gone."""
        if worker in self.sizes:
            self._evict(worker, 0)

    def _is_leaf(self, node: TextNode, worker: int) -> bool:
        has_it = worker in node.times
        return has_it and not any(worker in child.times for child in node.children.values())

    def _leaves(self, worker: int) -> list[TextNode]:
        found, stack = [], list(self._root.children.values())
        while stack:
            node = stack.pop()
            if worker not in node.times:
                continue
            below = [child for child in node.children.values() if worker in child.times]
            if below:
                stack.extend(below)
            else:
                found.append(node)
        return found
