"""A node of a radix tree over two memories, and what is under way for nodes."""

from kvsim.memory.radix.node import Node
from kvsim.request import TokenRuns


class HostLock:
    """Nodes that must stay in host memory until the lock is released: one, and the upper halves
    that splits cut off it.
    """

    __slots__ = ("nodes",)

    def __init__(self) -> None:
        self.nodes: list[TierNode] = []


class HostWrite:
    """One copy from the device to host memory.

    nodes: those it copies, the upper halves of later splits among them. held: the nodes whose
    device locks it holds. tokens, num: copied, as tokens and as nodes.
    """

    __slots__ = ("held", "nodes", "num", "tokens")

    def __init__(self) -> None:
        self.nodes: list[TierNode] = []
        self.held: list[TierNode] = []
        self.tokens = self.num = 0


class HostLoad:
    """One copy from host memory to the device, for the path that ends in `anchor`.

    host_lock: on the anchor. nodes: copied, the upper halves of later splits among them.
    """

    __slots__ = ("anchor", "host_lock", "nodes", "tokens")

    def __init__(self, anchor: "TierNode", tokens: int) -> None:
        self.anchor = anchor
        self.tokens = tokens
        self.nodes: list[TierNode] = []
        self.host_lock = HostLock()


class TierNode(Node):
    """A node that is on the device, in host memory, or on both.

    hits: number of requests that inserted it. below: children on the device. copy_locks: those of
    its `locks` that copies hold. host_locks: locks that keep it in host memory. write, load: the
    copy that is queued or under way for it. last_key: of its last page, where a storage asked for
    it.
    """

    __slots__ = (
        *("below", "copy_locks", "hits", "host_locks", "last_key", "load", "on_device", "on_host"),
        "write",
    )

    def __init__(self, parent: Node | None, runs: TokenRuns, tokens: int) -> None:
        super().__init__(parent, runs, tokens)
        self.on_device = True
        self.on_host = False
        self.hits = 0
        self.below = 0
        self.copy_locks = 0
        self.host_locks: list[HostLock] = []
        self.last_key: int | None = None
        self.write: HostWrite | None = None
        self.load: HostLoad | None = None

    @property
    def in_copy(self) -> bool:
        """Whether a copy of it is queued or under way."""
        return self.write is not None or self.load is not None


def tier_node(node: Node | None) -> TierNode:
    """A node of a tree over two memories as what it is."""
    assert isinstance(node, TierNode)
    return node
