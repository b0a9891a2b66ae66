"""The radix tree over tokens that SGLang keeps KV in (mem_cache/unified_cache, 0.5.23), with its
components: KV of all tokens, a second pool, host memory.

A node holds a run of whole pages; its children differ in their first page. A running sequence locks
the node in which its content ends, and all nodes above. Unlocked nodes may be evicted: the least
recently used leaf first, whole. On the device the tree is closed upwards: below a node that is off
the device nothing is on it. KV that the device evicts stays in host memory if it has a copy there
(demoted), and is dropped otherwise.

A lookup descends as far as tokens agree, in either memory, and ends where the second pool allows it
to. It does not use nodes below, though it may have split one. Use is dated by a counter. A look-up
dates the node it ends in and, each a little older, those above; an insertion dates what it walks,
deeper is newer.
"""

from collections.abc import Iterator
from typing import NamedTuple

from kvsim.memory.radix.content import Content, cut
from kvsim.memory.radix.leaves import DeviceLeaves
from kvsim.memory.radix.node import HostLock, Node, NodeKeeper, TreeListener
from kvsim.memory.radix.radix_host import RadixHost
from kvsim.memory.radix.second_pool import NoSecondPool, Places, SecondPool
from kvsim.plumbing.errors import InvariantError
from kvsim.request import TokenRuns

LEVELS = 1 << 24  # more than a tree is deep: dates of one lookup lie between two of the counter


class Match(NamedTuple):
    """Result of a lookup. tokens: length of the longest cached prefix, in whole pages; unlocked:
    its unlocked tokens.
    """

    tokens: int
    unlocked: int


NO_MATCH = Match(0, 0)


class TreeMatch(NamedTuple):
    """Result of a lookup in the tree. node: where the lookup ends, and `tokens`, its depth in
    tokens. agreed: tokens that agree, in whole pages, even if a sequence cannot continue from all
    of them.
    """

    node: Node
    tokens: int
    agreed: int


class RadixTree:
    """SGLang's radix tree of cached content. second: its second pool; host: host memory as L2.

    evictable, locked: unlocked and locked tokens of the device. in_transit: locked tokens that only
    copies lock. evicted: tokens evicted so far, dropped: evicted tokens without a host copy. stuck:
    the last eviction spared nodes that have descendants in a copy. num_nodes: nodes without the
    root. listener: notified of hits and evictions; now_ps: the time, set by the listener for ages.
    keeper: notified of nodes on the device.
    """

    def __init__(
        self, page_size: int, second: SecondPool | None = None, host: RadixHost | None = None
    ) -> None:
        self._page = page_size
        self._counter = 0
        self.second = NoSecondPool() if second is None else second
        self.host = RadixHost(0) if host is None else host
        self.root = Node(None, (), 0)
        self.num_nodes = 0
        self.evictable = 0
        self.locked = 0
        self.in_transit = 0
        self.evicted = 0
        self.dropped = 0
        self.stuck = False
        self.listener: TreeListener | None = None
        self.keeper: NodeKeeper | None = None
        self.now_ps = 0
        self._leaves = DeviceLeaves()

    # --- looking up ----------------------------------------------------------------------------

    def find(self, content: Content, limit: int) -> Match:
        """The longest prefix, within the first `limit` tokens, from which a sequence can continue
        on the device; changes nothing.
        """
        node, at, unlocked, best = self.root, 0, 0, NO_MATCH
        walk = self.second.walk()
        while limit - at >= self._page:
            child = node.children.get(self._first_page(content, at))
            if child is None or not child.on_device:
                break
            same = self._common(content, at, child, limit)
            at += same
            if not child.locks:
                unlocked += same
            if walk.reaches(child, same, whole=same == child.tokens):
                best = Match(at, unlocked)
            if same < child.tokens:
                break
            node = child
        return best

    def look_up(self, content: Content, limit: int) -> TreeMatch:
        """Find the node where the cached prefix ends in either memory, within the first `limit`
        tokens, and mark its path as used.

        A node inside which the prefix ends is split. The result also says how far tokens agree.
        """
        if limit < self._page:
            return TreeMatch(self.root, 0, 0)
        node, at, best, tokens = self.root, 0, self.root, 0
        walk = self.second.walk()
        while limit - at >= self._page:
            child = node.children.get(self._first_page(content, at))
            if child is None:
                break
            same = self._common(content, at, child, limit)
            node = child if same == child.tokens else self.split(child, same)
            at += same
            if walk.reaches(node, same, whole=True):
                best, tokens = node, at
            if node is not child:
                break
        self.second.matched(best)
        self._counter += 1
        level, used = 0, best
        while used.parent is not None:
            self._date(used, self._counter * LEVELS - level)
            level, used = level + 1, used.parent
        return TreeMatch(best, tokens, at)

    def on_device(self, node: Node, tokens: int) -> tuple[Node, int]:
        """(deepest node on the device on the path to `node`, number of tokens down to it). tokens:
        tokens down to `node`.
        """
        while not node.on_device:
            tokens -= node.tokens
            node = node.above
        return node, tokens

    def walk(self, node: Node, content: Content, begin: int, end: int) -> tuple[list[Node], int]:
        """Follow `content` from token `begin`, where `node` ends, to token `end`; split the last
        node there. Returns the nodes, which count as used, and the token where the last one ends.
        """
        way, at = [node], begin
        if node.parent is not None:
            self.use(node)
        while end - at >= self._page:
            child = node.children.get(self._first_page(content, at))
            if child is None:
                break
            self.use(child)
            same = self._common(content, at, child, end)
            at += same
            node = child if same == child.tokens else self.split(child, same)
            way.append(node)
            if node is not child:
                break
        return way, at

    # --- keeping -------------------------------------------------------------------------------

    def insert(
        self, content: Content, tokens: int, places: Places | None = None
    ) -> tuple[Node, int]:
        """Insert the first `tokens` tokens (whole pages), which are on the device. Returns (the
        node where they end, number of tokens that were on the device already); the others become
        evictable.

        places: the tokens that the sequence did not share with the tree, so that the second pool
        may take over their windows or states; None: all tokens.
        """
        if places is None:
            places = Places(0, tokens, 0)
        second, node, at = self.second, self.root, 0
        while tokens - at >= self._page:
            child = node.children.get(self._first_page(content, at))
            if child is None:
                break
            self.use(child)
            same = self._common(content, at, child, tokens)
            node = child if same == child.tokens else self.split(child, same)
            second.passed(self, node, at, places)
            at += same
            if node is not child:
                break
        known, new = at, at < tokens
        if new:
            node = self._hang_leaf(node, content.pieces(at, tokens), tokens - at)
        if self.host.tokens:
            known -= self._brought(node.above if new else node)
        second.inserted(self, node, at, places, new=new)
        return node, known

    def _hang_leaf(self, parent: Node, runs: TokenRuns, tokens: int) -> Node:
        leaf = self._new(parent, runs, tokens)
        parent.children[self._key(runs)] = leaf
        parent.below += 1
        self.evictable += tokens
        self.use(leaf)
        if self.keeper is not None:
            self.keeper.filed(leaf)
        return leaf

    def _brought(self, node: Node) -> int:
        """Give the caller's slots to nodes down to `node` that are only in host memory; returns
        their tokens.
        """
        hosted, tokens = [], 0
        while not node.on_device:
            hosted.append(node)
            node = node.above
        for node in reversed(hosted):
            self.promote(node)
            self.host.list_duplicate(node)
            tokens += node.tokens
        if self.keeper is not None:
            for node in hosted:  # the last of what is filed first
                self.keeper.filed(node)
        return tokens

    def hang(self, parent: Node, runs: TokenRuns, tokens: int) -> Node:
        """Add a child to `parent` that is only in host memory, with room allocated already."""
        node = self._new(parent, runs, tokens)
        node.on_device, node.on_host = False, True
        parent.children[self._key(runs)] = node
        self.use(node)
        return node

    # --- locks ---------------------------------------------------------------------------------

    def lock(self, node: Node) -> None:
        """A sequence locks `node` and all its ancestors (inc_lock_ref)."""
        self._lock(node, 1, 0)

    def unlock(self, node: Node) -> None:
        """A sequence unlocks `node` and all its ancestors (dec_lock_ref)."""
        self._lock(node, -1, 0)

    def hold(self, node: Node) -> None:
        """A copy in flight locks `node` and all its ancestors."""
        self._lock(node, 1, 1)

    def let_go(self, node: Node) -> None:
        """Undo one `hold` of `node`."""
        self._lock(node, -1, -1)

    def _lock(self, node: Node, change: int, by_copies: int) -> None:
        while node.parent is not None:
            before = node.locks
            if node.on_device:
                self._count(node, -node.tokens)
            node.locks += change
            node.copy_locks += by_copies
            if node.on_device:
                self._count(node, node.tokens)
                if self.keeper is not None and not (before and node.locks):
                    self.keeper.turned(node)
            if not node.locks:
                self._offer(node)
            node = node.parent

    def _count(self, node: Node, tokens: int) -> None:
        """Add `tokens` tokens of a node on the device to the evictable or locked count."""
        if not node.locks:
            self.evictable += tokens
        else:
            self.locked += tokens
            if node.locks == node.copy_locks:
                self.in_transit += tokens

    def release_host(self, lock: HostLock) -> None:
        """Release a lock on host memory."""
        for node in lock.nodes:
            node.host_locks.remove(lock)
            self._offer(node)

    def num_shared(self, node: Node | None) -> int:
        """Tokens from the root down to `node` that several sequences hold."""
        tokens = 0
        while node is not None:
            if node.locks > 1:
                tokens += node.tokens
            node = node.parent
        return tokens

    # --- eviction ------------------------------------------------------------------------------

    def evict(self, tokens: int) -> int:
        """Evict whole unlocked leaves from the device until at least `tokens` tokens are gone, or
        none is left. Returns the number of evicted tokens.
        """
        gone, spared = 0, []
        while gone < tokens:
            node = self._leaves.pop()
            if node is None:
                break
            if self._give_up(node):
                gone += node.tokens
            else:
                spared.append(node)
        for node in spared:
            self._offer(node)
        self.stuck = bool(spared)
        self.evicted += gone
        return gone

    def make_second_room(self, units: int) -> int:
        """Evict content of the second pool, the least recently used first, until `units` units are
        free or nothing is left. An unlocked leaf is evicted as a whole, with its KV; returns its
        tokens.
        """
        second, tokens = self.second, 0
        if second.free >= units:
            return 0
        for node in second.recency.from_oldest():
            if node.part_locks:
                continue
            if not self._leaves.may_go(node):
                second.drop(node)
            elif self._give_up(node):
                tokens += node.tokens
            if second.free >= units:
                break
        self.evicted += tokens
        return tokens

    def _give_up(self, node: Node) -> bool:
        """Evict a leaf from the device; False: impossible, as a descendant in host memory is in
        use.
        """
        write_first = self.host.write_first
        if node.on_host or (write_first is not None and write_first(node)):
            self.demote(node)
        else:
            below = [node]
            for each in below:
                if each.locks or each.host_locks or each.in_copy:
                    return False
                below += each.children.values()
            self.dropped += node.tokens
            for each in reversed(below):
                self._forget(each)
        if self.listener is not None:
            self.listener.evicted(node.tokens, self.now_ps - node.used_ps)
        return True

    def evict_host(self, tokens: int) -> int:
        """Evict whole leaves of host memory, the least recently used first, until `tokens` tokens
        are gone or none is left.

        Returns the number of evicted tokens.
        """
        gone = 0
        while gone < tokens:
            node = self.host.leaves.pop()
            if node is None:
                break
            gone += node.tokens
            self._forget(node)
        self.host.evicted += gone
        return gone

    def promote(self, node: Node) -> None:
        """Mark a node in host memory as on the device too; its slots are allocated already."""
        node.above.below += 1
        node.on_device = True
        self._count(node, node.tokens)
        self.host.num_duplicates += node.tokens
        self._offer(node)

    def demote(self, node: Node) -> None:
        """Remove a node in both memories from the device."""
        self._count(node, -node.tokens)
        self.host.num_duplicates -= node.tokens
        self.second.forgotten(node)
        node.on_device = False
        if self.keeper is not None:
            self.keeper.forgotten(node)
        self._offer(node)
        self._left_device(node.above)

    def _left_device(self, parent: Node) -> None:
        """Note that a child of `parent` is no longer on the device."""
        parent.below -= 1
        self._offer(parent)

    def _forget(self, node: Node) -> None:
        """Remove a node from the tree."""
        self.second.forgotten(node)
        if node.on_device:
            self._count(node, -node.tokens)
            if node.on_host:
                self.host.num_duplicates -= node.tokens
            if self.keeper is not None:
                self.keeper.forgotten(node)
        if node.on_host:
            self.host.free += node.tokens
        self.num_nodes -= 1
        parent = node.above
        node.parent = None
        del parent.children[self._key(node.runs)]
        if node.on_device:
            self._left_device(parent)
        else:
            self._offer(parent)

    # --- nodes ---------------------------------------------------------------------------------

    def nodes(self) -> Iterator[Node]:
        """All nodes except the root."""
        stack = list(self.root.children.values())
        while stack:
            node = stack.pop()
            yield node
            stack += node.children.values()

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

    def split(self, node: Node, tokens: int) -> Node:
        """Split `node`: its first `tokens` tokens become a new parent with the same locks, which is
        returned. The rest in `node` counts as used now; the caller may mark the new node as used
        after it.
        """
        parent = node.above
        head, tail = cut(node.runs, tokens)
        upper = self._new(parent, head, tokens)
        upper.locks, upper.copy_locks = node.locks, node.copy_locks
        upper.on_device, upper.below = node.on_device, int(node.on_device)
        parent.children[self._key(head)] = upper
        upper.children[self._key(tail)] = node
        node.parent, node.runs, node.tokens = upper, tail, node.tokens - tokens
        if self.host.tokens:
            self.host.split(upper, node)
        self.use(upper)
        self.use(node)
        if self.keeper is not None and node.on_device:
            self.keeper.split(upper, node)
        self.second.split(upper, node)
        return upper

    def use(self, node: Node) -> None:
        """Mark `node` as the most recently used one."""
        self._counter += 1
        self._date(node, self._counter * LEVELS)

    def _date(self, node: Node, used: int) -> None:
        node.used, node.used_ps = used, self.now_ps
        self._offer(node)

    def _offer(self, node: Node) -> None:
        """Add `node` to the evictable leaves, if it is one."""
        if node.locks:
            return
        if node.on_device:
            self._leaves.offer(node, self.num_nodes)
        else:
            self.host.leaves.offer(node, self.num_nodes)

    # --- checks --------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise InvariantError unless the tree is consistent and its counts are correct."""
        found = {"evictable": 0, "locked": 0, "in_transit": 0, "duplicates": 0, "host": 0}
        offered = self._leaves.offered() | self.host.leaves.offered()
        nodes = list(self.nodes())
        for node in nodes:
            self._check_node(node, offered)
            if node.on_device:
                found["locked" if node.locks else "evictable"] += node.tokens
                found["in_transit"] += node.tokens * (0 < node.locks == node.copy_locks)
                found["duplicates"] += node.tokens * node.on_host
            found["host"] += node.tokens * node.on_host
        counted = {
            "evictable": self.evictable,
            "locked": self.locked,
            "in_transit": self.in_transit,
            "duplicates": self.host.num_duplicates,
        }
        if found | counted != found or len(nodes) != self.num_nodes:
            raise InvariantError(f"a tree of {found} in {len(nodes)} nodes counts {counted}")
        if found["host"] > self.host.used or not 0 <= self.host.free <= self.host.tokens:
            raise InvariantError(f"{found['host']} tokens in host memory, {self.host.free} free")
        self.second.check(nodes)

    def _check_node(self, node: Node, offered: set[int]) -> None:
        parent, length = node.above, sum(length for _, length in node.runs)
        whole = length == node.tokens and length % self._page == 0
        if not whole or not length or parent.children.get(self._key(node.runs)) is not node:
            raise InvariantError(f"a node of {node.tokens} tokens is broken: {node.runs}")
        if not (node.on_device or node.on_host) or (node.on_device and not parent.on_device):
            raise InvariantError(f"a node of {node.tokens} tokens is in no memory: {node.runs}")
        below = sum(child.on_device for child in node.children.values())
        if below != node.below or (parent.parent is not None and parent.locks < node.locks):
            raise InvariantError(f"{below} of {node.below} children, {node.locks} locks")
        leaf = self._leaves.may_go(node) or self.host.leaves.may_go(node)
        if leaf and id(node) not in offered:
            raise InvariantError(f"a leaf can never be evicted: {node.runs}")
