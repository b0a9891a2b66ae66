"""KV memory as SGLang's HiCache keeps it (0.5.23): pages of one pool, a radix tree over them and
over a pool of host memory, and the copies between the two.

Who moves the clock submits the copies and says when they have ended; here only their effect on both
memories is kept.
"""

from kvsim.memory.allocator import Admission, Demand
from kvsim.memory.parts import IN_TRANSIT, Parts
from kvsim.memory.radix.allocator import RadixAllocator
from kvsim.memory.radix.decoders import PageMoves
from kvsim.memory.radix.holds import Slots
from kvsim.memory.radix.node import HostLoad, Node
from kvsim.memory.radix.radix_host import RadixHost
from kvsim.memory.radix.tree import RadixTree
from kvsim.plumbing.errors import InputError, InvariantError
from kvsim.sequence import Sequence

FEWEST_LOADED = 10  # tokens: shorter hits in host memory are computed again (0.5.23)


class HicacheAllocator(RadixAllocator):
    """backup: what goes to host memory. host_hit_tokens: of those hit, loaded."""

    def __init__(
        self,
        capacity_bytes: int,
        token_bytes: int,
        page_size: int,
        *,
        host_tokens: int,
        write_threshold: int | None,
    ) -> None:
        super().__init__(
            capacity_bytes,
            token_bytes,
            page_size,
            caching=True,
            tree=RadixTree(page_size, host=RadixHost(host_tokens)),
            write_threshold=write_threshold,
        )
        self._writes_back = write_threshold is None
        self._loads: list[HostLoad] = []
        self.host_hit_tokens = 0

    # --- loading back --------------------------------------------------------------------------

    def slots(self, seq: Sequence) -> Slots:
        """The record of `seq`."""
        return self._holds.slots(seq)

    def anchor(self, seq: Sequence) -> tuple[Node, int]:
        """Where what is known of a waiting `seq` ends, in either memory, and after how many tokens;
        it counts as used.
        """
        found = self.tree.look_up(self.slots(seq).content, seq.num_tokens - 1)
        return found.node, found.tokens

    def load_back(self, seq: Sequence) -> int:
        """Take slots for all that a pinned `seq` hits in host memory, and queue the copy; nothing
        if it is short, or if evicting makes too little room. What another load of this pass brings
        is on the device already. Returns how many tokens are on the device for it.
        """
        slots, tree = self.slots(seq), self.tree
        tokens, anchor = slots.host_hit, slots.anchor
        slots.host_hit = 0
        if tokens < FEWEST_LOADED or anchor is None:
            return 0
        tree.hold(anchor)
        self.make_room(tokens)
        if self.free < tokens:
            tree.let_go(anchor)
            return 0
        self.free -= tokens
        load = HostLoad(anchor, tokens)
        node = anchor
        while not node.on_device:
            load.nodes.append(node)
            node = node.above
        for node in reversed(load.nodes):
            node.load = load
            tree.promote(node)
            if tree.keeper is not None:
                tree.keeper.brought(node, seq.id)
        load.host_lock = tree.host.lock(anchor)
        self._holds.extend(slots, anchor, tokens)
        slots.loaded = tokens
        self._loads.append(load)
        return tokens

    def take_loads(self) -> list[HostLoad]:
        """All loads queued since the last call, which are one copy."""
        loads, self._loads = self._loads, []
        return loads

    def loaded(self, load: HostLoad) -> None:
        """The scheduler takes note that a load has ended."""
        for node in load.nodes:  # from the anchor upwards
            node.load = None
            self.tree.host.list_duplicate(node)
        self.tree.release_host(load.host_lock)
        self.tree.let_go(load.anchor)

    @property
    def num_queued(self) -> tuple[int, int]:
        """Nodes to be written, and loads, that are not submitted."""
        return self.backup.num_queued, len(self._loads)

    # --- admission and release -----------------------------------------------------------------

    def admit(self, seq: Sequence, demand: Demand) -> Admission | None:
        admission = super().admit(seq, demand)
        if admission is not None and not seq.num_preemptions:
            self.host_hit_tokens += self.slots(seq).loaded
        return admission

    @property
    def steps_on_its_own(self) -> bool:
        return self._writes_back and bool(self.tree.evictable)

    def tokens_for_step(self) -> int:
        # What could be evicted was, when room was made; other tokens may count as evictable, but
        # have something below them that a copy needs.
        return self.free

    def _take(self, tokens: int) -> None:
        try:
            super()._take(tokens)
        except InvariantError as fault:
            raise self._out_of_memory(fault) from None

    def _advance_decoders(self, steps: int, moves: PageMoves) -> None:
        try:
            super()._advance_decoders(steps, moves)
        except InvariantError as fault:
            raise self._out_of_memory(fault) from None

    def _out_of_memory(self, fault: InvariantError) -> Exception:
        """What a lack of pages comes from: a fault of kvsim's, or one that SGLang ends with."""
        if not self.tree.stuck:
            return fault
        return InputError(
            "host memory is full of what is being written to the storage, and the device cannot "
            "evict what that belongs to: SGLang 0.5.23 ends with an error here",
            where="allocator.hicache_write_policy",
            value="write_back",
            limit=f"{self.tree.host.tokens} tokens of host memory",
            remedy="raise hicache_ratio, or take write_through",
        )

    def release(self, seq: Sequence) -> None:
        slots = self.slots(seq)
        super().release(seq)
        slots.filed = slots.host_hit = 0
        slots.anchor = None

    def steps_without_copies(self, limit: int) -> int:
        """For how many decode steps, at most `limit`, nothing is written to make room."""
        if not self._writes_back or not self.tree.evictable:
            return limit
        return self._steps_without_eviction(limit)

    # --- the books -----------------------------------------------------------------------------

    @property
    def saved_bytes(self) -> int | None:
        held = self.tree.locked - self.tree.in_transit
        return (self._holds.protected - held) * self.token_bytes

    @property
    def parts(self) -> Parts:
        copied, parts = self.tree.in_transit, super().parts
        return (*parts, (IN_TRANSIT, copied * self.token_bytes)) if copied else parts

    @property
    def host_used(self) -> int:
        """Tokens of host memory that are taken."""
        return self.tree.host.used
