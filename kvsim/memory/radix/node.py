"""The nodes of the radix tree, their operations in flight, and the listeners for changes.

A node holds a run of whole pages. In addition to KV on the device it may have content in a second
pool (windows, a recurrent state) and a copy in host memory. A tree without either leaves those
fields unused.
"""

from typing import Protocol

from kvsim.request import TokenRuns


class InOrder:
    """A place between a newer and an older one; the two ends of a list hold no node."""

    __slots__ = ("newer", "node", "older")

    def __init__(self, node: "Node | None") -> None:
        self.node = node
        self.newer = self.older = self


class HostLock:
    """Nodes that must stay in host memory until the lock is released: one, and the upper halves
    that splits cut off it.
    """

    __slots__ = ("nodes",)

    def __init__(self) -> None:
        self.nodes: list[Node] = []


class HostWrite:
    """One copy from the device to host memory.

    nodes: those it copies, the upper halves of later splits among them. held: the nodes with device
    locks that it holds. tokens, num: copied, as tokens and as nodes.
    """

    __slots__ = ("held", "nodes", "num", "tokens")

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.held: list[Node] = []
        self.tokens = self.num = 0


class HostLoad:
    """One copy from host memory to the device, for the path that ends in `anchor`.

    host_lock: on the anchor. nodes: copied, the upper halves of later splits among them.
    """

    __slots__ = ("anchor", "host_lock", "nodes", "tokens")

    def __init__(self, anchor: "Node", tokens: int) -> None:
        self.anchor = anchor
        self.tokens = tokens
        self.nodes: list[Node] = []
        self.host_lock = HostLock()


class Node:
    """tokens: length of its run. locks: sequences and copies that hold it or a node below it.
    used: counter at its last use, different for each node. used_ps: time of its last use.

    part_locks: sequences that hold what the second pool has here, or would if there were any.
    mark: the number of the locks that end here, 0 for none. link: its place among the nodes with
    content in the second pool, by use; None: it has none there.

    on_device, on_host: where its KV is. below: children on the device. copy_locks: those of its
    `locks` that copies hold. host_locks: locks that keep it in host memory. hits: requests that
    inserted it. write, load: the copy that is queued or in flight for it. last_key: of its last
    page, where a storage asked for it.
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
        """Nodes on its path, without the root."""
        depth, node = 0, self
        while node.parent is not None:
            depth, node = depth + 1, node.parent
        return depth

    @property
    def above(self) -> "Node":
        """The parent of a node that has one."""
        assert self.parent is not None
        return self.parent

    @property
    def in_copy(self) -> bool:
        """Whether a copy of it is queued or in flight."""
        return self.write is not None or self.load is not None


class TreeListener(Protocol):
    """Is notified of hits and evictions in a tree."""

    def hit(self, tokens: int, nodes: int) -> None:
        """A sequence starts with `tokens` cached tokens in a path of `nodes` nodes."""

    def evicted(self, tokens: int, age_ps: int) -> None:
        """A node of `tokens` tokens is evicted, `age_ps` after its last use."""


class NodeKeeper(Protocol):
    """Is notified of new, split and evicted nodes, and of their locks."""

    def filed(self, node: Node) -> None:
        """Note a new leaf."""

    def brought(self, node: Node, owner: str) -> None:
        """A node known in another tier gets slots again, requested by `owner`."""

    def split(self, upper: Node, lower: Node) -> None:
        """The first tokens of `lower` are the node `upper` from now on."""

    def turned(self, node: Node) -> None:
        """The node got its first lock or lost its last one."""

    def forgotten(self, node: Node) -> None:
        """Note the eviction of a node."""
