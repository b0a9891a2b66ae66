"""The nodes of the radix tree, their operations in flight, and the listeners for changes.

A node holds a run of whole pages. In addition to KV on the device it may have content in a second
pool (windows, a recurrent state) and a copy in host memory. A tree without either leaves those
fields unused.
"""

from typing import Protocol

from kvsim.request import TokenRuns


class InOrder:
    """An entry of a doubly linked list in order of use, between a newer and an older entry. The two
    ends of the list hold no node.
    """

    __slots__ = ("newer", "node", "older")

    def __init__(self, node: "Node | None") -> None:
        self.node = node
        self.newer = self.older = self


class HostLock:
    """A lock on host memory: a node that must stay there, and upper halves that splits cut off that
    node.
    """

    __slots__ = ("nodes",)

    def __init__(self) -> None:
        self.nodes: list[Node] = []


class HostWrite:
    """One copy from the device to host memory.

    nodes: the nodes it copies, including upper halves of later splits. held: nodes that it locks on
    the device. tokens, num: copied tokens and nodes.
    """

    __slots__ = ("held", "nodes", "num", "tokens")

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.held: list[Node] = []
        self.tokens = self.num = 0


class HostLoad:
    """One copy from host memory to the device, for the path that ends in `anchor`.

    host_lock: lock on the anchor. nodes: the nodes it copies, including upper halves of later
    splits.
    """

    __slots__ = ("anchor", "host_lock", "nodes", "tokens")

    def __init__(self, anchor: "Node", tokens: int) -> None:
        self.anchor = anchor
        self.tokens = tokens
        self.nodes: list[Node] = []
        self.host_lock = HostLock()


class Node:
    """A node of the radix tree. tokens: length of its run. locks: sequences and copies that hold it
    or a node below (lock_ref). used: counter at its last use, different for each node. used_ps:
    time of its last use.

    part_locks: sequences that lock its content in the second pool, or would if it had any. mark:
    number of the locks that end here, 0 for none. link: its entry in the usage order of the second
    pool; None: it has no content there.

    on_device, on_host: where its KV is. below: number of children on the device. copy_locks: number
    of its `locks` by copies. host_locks: locks that hold it in host memory. hits: number of
    requests that inserted it. write, load: the copy that is queued or in flight for it. last_key:
    storage key of its last page, once a storage asked for it.
    """

    __slots__ = (
        *("below", "children", "copy_locks", "hits", "host_locks", "last_key", "link", "load"),
        *("locks", "mark", "on_device", "on_host", "parent", "part_locks", "runs", "tokens"),
        *("used", "used_ps", "write"),
    )

    def __init__(self, parent: "Node | None", runs: TokenRuns, tokens: int) -> None:
        self.parent = parent
        self.runs = runs
        self.tokens = tokens
        self.children: dict[int | TokenRuns, Node] = {}
        self.locks = 0
        self.used = 0
        self.used_ps = 0
        self.part_locks = 0
        self.mark = 0
        self.link: InOrder | None = None
        self.on_device = True
        self.on_host = False
        self.below = 0
        self.copy_locks = 0
        self.host_locks: list[HostLock] = []
        self.hits = 0
        self.write: HostWrite | None = None
        self.load: HostLoad | None = None
        self.last_key: int | None = None

    @property
    def depth(self) -> int:
        """Number of nodes on the path from the root to this node, without the root."""
        depth, node = 0, self
        while node.parent is not None:
            depth, node = depth + 1, node.parent
        return depth

    @property
    def above(self) -> "Node":
        """The parent, for a node that has one."""
        assert self.parent is not None
        return self.parent

    @property
    def in_copy(self) -> bool:
        """Whether a copy of this node is queued or in flight."""
        return self.write is not None or self.load is not None


class TreeListener(Protocol):
    """Is notified of hits and evictions in a tree."""

    def hit(self, tokens: int, nodes: int) -> None:
        """A sequence starts with `tokens` cached tokens on a path of `nodes` nodes."""

    def evicted(self, tokens: int, age_ps: int) -> None:
        """A node of `tokens` tokens was evicted, `age_ps` after its last use."""


class NodeKeeper(Protocol):
    """Is notified of new, split and evicted nodes, and of their locks."""

    def filed(self, node: Node) -> None:
        """A leaf was added to the tree."""

    def brought(self, node: Node, owner: str) -> None:
        """A node cached in another tier gets device slots again, at the request of `owner`."""

    def split(self, upper: Node, lower: Node) -> None:
        """`lower` was split: its first tokens are now the node `upper`."""

    def turned(self, node: Node) -> None:
        """A node got its first lock or lost its last one."""

    def forgotten(self, node: Node) -> None:
        """A node was evicted."""
