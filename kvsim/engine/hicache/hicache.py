"""SGLang's hierarchical cache as a part of its scheduler.

Each pass processes ended copies, loads the host hits of admitted requests, and may wait for copies
of evicted pages.
"""

from collections.abc import Iterable

from kvsim.engine.connectors.totals import FROM_HOST, TO_HOST, RunTotals, TierTotals
from kvsim.engine.hicache.copies import TierCopies
from kvsim.engine.hicache.storage import Storage
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.sglang.parts import HicachePart
from kvsim.engine.tier_books import TierBooks
from kvsim.memory.radix.allocator import RadixAllocator
from kvsim.results.tier_hits import TierHit
from kvsim.sequence import Sequence


class Hicache(HicachePart):
    """The hierarchical cache of one scheduler. pages: the radix allocator.

    copies: between device and host memory. storage: the L3 storage; None without one. Both are set
    before the first pass. tier_books: accounting of hits. now_ps: when the pass begins. The engine
    sets both.
    """

    copies: TierCopies

    def __init__(self, pages: RadixAllocator) -> None:
        self.pages = pages
        self.storage: Storage | None = None
        self.tier_books: TierBooks | None = None
        self.now_ps = 0
        self._loading = False
        self._arrived: list[Sequence] = []
        self._retracted: list[Sequence] = []  # in this pass, and not looked up since

    @property
    def busy(self) -> bool:
        return self.copies.busy or (self.storage is not None and self.storage.busy)

    @property
    def next_ps(self) -> int | None:
        """When the next copy or storage batch in flight ends, in ps; None: nothing is in flight."""
        ends = [self.copies.next_ps, self.storage.next_ps if self.storage is not None else None]
        return min((end for end in ends if end is not None), default=None)

    @property
    def copied_bytes(self) -> int:
        return self.copies.link.out.num_bytes + self.copies.link.back.num_bytes

    @property
    def loading(self) -> bool:
        return self._loading

    @property
    def totals(self) -> RunTotals:
        """Totals of host memory and L3 storage so far."""
        copies, pages, storage = self.copies, self.pages, self.storage
        out, back = copies.link.out, copies.link.back
        host = TierTotals(
            "hicache",
            pages.tree.host.tokens * pages.token_bytes,
            out.num_bytes,
            back.num_bytes,
            out.busy_ps,
            back.busy_ps,
            pages.backup.num_failed,
            ((TO_HOST, out.log), (FROM_HOST, back.log)),
        )
        return RunTotals(
            (host,) if storage is None else (host, storage.totals),
            hit_tokens=pages.host_hit_tokens,
            awaited_hit_tokens=0,
            num_waits=0 if storage is None else storage.num_waits,
            wait_ps=0 if storage is None else storage.waited_ps,
            held_up_ps=copies.blocked_total_ps + copies.waited_total_ps,
            storage_hit_tokens=0 if self.tier_books is None else self.tier_books.storage_hit_tokens,
            recompute_ps=0 if self.tier_books is None else self.tier_books.recompute_ps,
        )

    # --- a pass ---------------------------------------------------------------------------------

    def arrived(self, seq: Sequence) -> bool:
        if self.storage is None:
            return False
        self._arrived.append(seq)
        return True

    def begin(self, queue: Iterable[Sequence], head: Sequence | None) -> None:
        copies, storage = self.copies, self.storage
        copies.now_ps = self.now_ps
        self._loading = False
        if storage is not None:
            storage.serve(self.now_ps)
            for seq in self._arrived:
                storage.look_up(seq)
            self._arrived.clear()
        copies.begin(self.now_ps)
        if storage is not None:
            storage.begin(queue, head)

    def end(self, plan: Plan) -> None:
        self._look_up_retracted()  # in a pass without decoding requests
        if self.tier_books is not None:
            self._book(plan, self.tier_books)
        if self.storage is not None:
            self.storage.admitted(seq for seq, _, _ in plan.admitted)
        plan.held_ps += self.copies.now_ps - self.now_ps

    def _book(self, plan: Plan, books: TierBooks) -> None:
        """Record host hits of the admitted requests, and how long lookups delayed them."""
        storage = self.storage
        for seq, cached, _ in plan.admitted:
            loaded = self.pages.slots(seq).loaded
            if loaded:
                brought = 0 if storage is None else min(storage.brought.get(seq, 0), loaded)
                books.found(seq, TierHit(cached - loaded, loaded, brought))
            if storage is not None and seq in storage.waits_ps:
                books.waited(seq, storage.waits_ps[seq])

    def layers_waited(self, plan: Plan, wait_ps: int) -> None:
        """Record that the layers of the step waited wait_ps in all for loads of admitted
        requests.
        """
        if self.tier_books is not None:
            for seq, _, _ in plan.admitted:
                if self.pages.slots(seq).loaded:
                    self.tier_books.waited(seq, wait_ps)

    def skips(self, seq: Sequence) -> bool:
        storage, pages = self.storage, self.pages
        if storage is None:
            return False
        if storage.passes_over(seq):
            return True
        tokens = pages.room.pin(seq) + pages.slots(seq).host_hit
        pages.room.unpin(seq)
        return storage.lost_match(seq, tokens)

    def host_hit(self, seq: Sequence) -> int:
        return self.pages.slots(seq).host_hit

    def load_back(self, seq: Sequence) -> bool:
        return self.copies.loads.load_back(seq) > 0

    def submit_loads(self, *, for_step: bool = True) -> None:
        self._loading = self.copies.loads.num_queued > 0
        self.copies.submit_loads(for_step=for_step)

    @property
    def loads_end_ps(self) -> int:
        return self.copies.loads_end_ps

    def room_made(self) -> None:
        # They wait again once all are retracted that must be, and what that evicts is gone by then.
        self._look_up_retracted()

    def retracted(self, seq: Sequence) -> None:
        self._retracted.append(seq)

    def _look_up_retracted(self) -> None:
        if self.storage is not None:
            for seq in self._retracted:
                self.storage.came_back(seq)
        self._retracted.clear()

    def left(self, seq: Sequence) -> None:
        if self.storage is not None:
            self.storage.left(seq)

    # --- the life of a plan ---------------------------------------------------------------------

    def returns_quietly(self, plan: Plan) -> bool:
        # What a prompt leaves in the tree is written, from the next pass on.
        return not plan.chunks

    def quiet_steps(self, limit: int) -> int:
        counting = self.storage is not None and self.storage.counts_passes
        if counting or self.pages.backup.num_queued:
            return 0
        return self.pages.steps_without_copies(limit)
