"""Records statistics of a radix tree: depth of hits, size of nodes, age of evicted nodes."""

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from kvsim.memory.radix.tree import RadixTree
from kvsim.results.addresses import EVICTED, HIT, LEFT, Addresses
from kvsim.sequence import Sequence


@runtime_checkable
class InTree(Protocol):
    """An allocator with a radix tree. keeps_prefixes: whether it is a prefix cache."""

    tree: RadixTree
    keeps_prefixes: bool


class TreeRecorder:
    """Listens to a radix tree. It dates events by the last sample: the start of a step, or of a run
    of equal steps.
    """

    def __init__(self, tree: RadixTree, addresses: Addresses) -> None:
        self._tree = tree
        self._addresses = addresses
        tree.listener = self

    def hit(self, tokens: int, nodes: int) -> None:
        self._addresses.node(self._tree.now_ps, HIT, tokens, nodes, 0)

    def evicted(self, tokens: int, age_ps: int) -> None:
        self._addresses.node(self._tree.now_ps, EVICTED, tokens, 1, age_ps)

    def sample(self, running: Iterable[Sequence], now_ps: int) -> None:
        self._tree.now_ps = now_ps

    def close(self, now_ps: int) -> None:
        self._tree.listener = None
        for node in self._tree.nodes():
            self._addresses.node(now_ps, LEFT, node.tokens, 1, now_ps - node.used_ps)
