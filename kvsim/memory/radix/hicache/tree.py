"""The radix tree over device and host memory that SGLang's HiCache keeps KV in
(mem_cache/unified_cache, 0.5.23).

On the device the tree is closed upwards: below a node that is off the device nothing is on it. A
lookup walks through nodes in either memory. What the device evicts stays in host memory where there
is a copy (demoted), and is forgotten where there is none (dropped).
"""

from heapq import heappop, heappush

from kvsim.memory.radix.hicache.node import TierNode, tier_node
from kvsim.memory.radix.hicache.tiers import TierTree
from kvsim.memory.radix.node import Content, Node
from kvsim.request import TokenRuns


class HicacheTree(TierTree):
    """A radix tree over device and host memory."""

    # --- looking up ----------------------------------------------------------------------------

    def _child(self, node: Node, content: Content, at: int) -> Node | None:
        child = super()._child(node, content, at)
        return child if child is not None and tier_node(child).on_device else None

    def on_device(self, node: Node, tokens: int) -> tuple[TierNode, int]:
        """The deepest node on the device on the path to `node`, which ends after `tokens` tokens;
        and after how many tokens it ends itself.
        """
        above = tier_node(node)
        while not above.on_device:
            tokens -= above.tokens
            above = tier_node(above.parent)
        return above, tokens

    def walk(
        self, node: TierNode, content: Content, begin: int, end: int
    ) -> tuple[list[TierNode], int]:
        """The nodes from `node`, which ends after `begin` tokens of `content`, along `content` up
        to token `end`, split there; they count as used. And the token where the last of them ends.
        """
        way, at = [node], begin
        if node.parent is not None:
            self._use(node)
        while end - at >= self._page:
            child = node.children.get(self._first_page(content, at))
            if child is None:
                break
            self._use(child)
            same = self._common(content, at, child, end)
            at += same
            node = tier_node(child if same == child.tokens else self._split(child, same))
            way.append(node)
            if node is not child:
                break
        return way, at

    # --- keeping -------------------------------------------------------------------------------

    def insert(self, content: Content, tokens: int) -> tuple[Node, int]:
        """As of a tree over one memory. What was known in host memory alone takes the caller's
        slots too, and does not count as known.
        """
        end, known = super().insert(content, tokens)
        node, hosted = tier_node(end), []
        if known < tokens:
            tier_node(node.parent).below += 1
            node = tier_node(node.parent)
        while not node.on_device:
            hosted.append(node)
            node = tier_node(node.parent)
        for node in reversed(hosted):
            self.promote(node)
            self.list_duplicate(node)
            known -= node.tokens
        if self.keeper is not None:
            for node in hosted:  # the last of what is filed first
                self.keeper.filed(node)
        return end, known

    def hang(self, parent: TierNode, runs: TokenRuns, tokens: int) -> TierNode:
        """A new node in host memory alone, for which room is taken already."""
        node = tier_node(self._new(parent, runs, tokens))
        node.on_device, node.on_host = False, True
        parent.children[self._key(runs)] = node
        self._use(node)
        return node

    # --- giving up -----------------------------------------------------------------------------

    def evict(self, tokens: int) -> int:
        """As of a tree over one memory; a node with a copy in host memory stays known there."""
        gone, spared = 0, []
        while gone < tokens and self._leaves:
            entry = heappop(self._leaves)
            if not self._device_leaf(entry):
                continue
            node = tier_node(entry[1])
            if not self._give_up(node):
                spared.append(entry)
                continue
            gone += node.tokens
            if self.listener is not None:
                self.listener.evicted(node.tokens, self.now_ps - node.used_ps)
        for entry in spared:
            heappush(self._leaves, entry)
        self.stuck = bool(spared)
        self.evicted += gone
        return gone

    def _give_up(self, node: TierNode) -> bool:
        """A leaf of the device leaves it; False: it cannot, for something below is in use."""
        if node.on_host or (self.write_first is not None and self.write_first(node)):
            self.demote(node)
            return True
        below = [node]
        for each in below:
            if each.locks or each.host_locks or each.in_copy:
                return False
            below += [tier_node(child) for child in each.children.values()]
        self.dropped += node.tokens
        for each in reversed(below):
            self._forget(each)
        return True

    def evict_host(self, tokens: int) -> int:
        """Forget whole leaves of host memory, the one last used longest ago first, until so many
        tokens are gone or none is left. Returns how many went.
        """
        gone = 0
        while gone < tokens and self._host_leaves:
            entry = heappop(self._host_leaves)
            if self._host_leaf(entry):
                gone += entry[1].tokens
                self._forget(tier_node(entry[1]))
        self.host_evicted += gone
        return gone
