"""SGLang's scheduler with its hierarchical cache: the pass takes note of copies, loads what it
admits, and may wait for what it evicts.
"""

from typing import Any

from kvsim.engine.connectors.totals import FROM_HOST, TO_HOST, RunTotals, TierTotals
from kvsim.engine.hicache.admission import HicacheAdmission
from kvsim.engine.hicache.copies import TierCopies
from kvsim.engine.hicache.storage import Storage
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.sglang.admission import Newcomer
from kvsim.engine.schedulers.sglang.budget import Budget
from kvsim.engine.schedulers.sglang.scheduler import SglangScheduler
from kvsim.engine.tier_books import TierBooks
from kvsim.memory.radix.allocator import RadixAllocator
from kvsim.results.tier_hits import TierHit
from kvsim.sequence import Sequence


class HicacheScheduler(SglangScheduler):
    """pages: the allocator.

    copies: between device and host memory; storage: L3, if there is one; both are set before the
    first pass. tier_books, and now_ps, when the pass begins, are set by the engine.
    """

    copies: TierCopies
    storage: Storage | None = None
    tier_books: TierBooks | None = None
    now_ps: int = 0

    def __init__(self, allocator: RadixAllocator, *rest: Any, **options: Any) -> None:
        super().__init__(allocator, *rest, **options)
        self.pages = allocator
        self._arrived: list[Sequence] = []
        self._retracted: list[Sequence] = []  # in this pass, and not looked up since
        self._skipped = False  # somebody was passed over in this pass

    @property
    def expects_more(self) -> bool:
        return self.copies.busy or (self.storage is not None and self.storage.busy)

    @property
    def next_ps(self) -> int | None:
        """When the next copy or storage batch in flight ends, in ps; None: nothing is in flight."""
        ends = [self.copies.next_ps, self.storage.next_ps if self.storage is not None else None]
        return min((end for end in ends if end is not None), default=None)

    @property
    def swapped_bytes(self) -> int:
        return self.copies.link.out.num_bytes + self.copies.link.back.num_bytes

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

    def add(self, seq: Sequence) -> bool:
        changes = super().add(seq)
        if self.storage is None:
            return changes
        self._arrived.append(seq)
        return True

    def schedule(self) -> Plan:
        copies, storage = self.copies, self.storage
        copies.now_ps = self.now_ps
        if storage is not None:
            storage.serve(self.now_ps)
            for seq in self._arrived:
                storage.look_up(seq)
            self._arrived.clear()
        copies.begin(self.now_ps)
        if storage is not None:
            storage.begin(self._queue, self.waiting.head)
        plan = super().schedule()
        self._look_up_retracted()  # of a pass in which nobody decodes
        if self.tier_books is not None:
            self._book(plan, self.tier_books)
        if storage is not None:
            storage.admitted(seq for seq, _, _ in plan.admitted)
        plan.held_ps = copies.now_ps - self.now_ps
        return plan

    def _book(self, plan: Plan, books: TierBooks) -> None:
        """Count the admitted requests' hits in host memory, and their delay by lookups."""
        storage = self.storage
        for seq, cached, _ in plan.admitted:
            loaded = self.pages.slots(seq).loaded
            if loaded:
                brought = 0 if storage is None else min(storage.brought.get(seq, 0), loaded)
                books.found(seq, TierHit(cached - loaded, loaded, brought))
            if storage is not None and seq in storage.waits_ps:
                books.waited(seq, storage.waits_ps[seq])

    def layers_waited(self, plan: Plan, wait_ps: int) -> None:
        """The layers of the step waited for loads of admitted requests, wait_ps in all."""
        if self.tier_books is not None:
            for seq, _, _ in plan.admitted:
                if self.pages.slots(seq).loaded:
                    self.tier_books.waited(seq, wait_ps)

    def _admission(self, budget: Budget, ratio: float) -> HicacheAdmission:
        wishes = self._outputs.wishes
        admission = HicacheAdmission(self.room, budget, wishes, ratio, self._spans, cached=True)
        admission.loads, admission.storage = self.copies.loads, self.storage
        return admission

    def _compute_prompts(self, plan: Plan, more: int, taken: list[Newcomer]) -> None:
        self.copies.submit_loads()
        if self.storage is not None:
            self._queue.bring_forward(newcomer.seq for newcomer in taken)
        super()._compute_prompts(plan, more, taken)

    def _retract(self, seq: Sequence, plan: Plan) -> None:
        lone = len(self.decoders) == 1  # it ends, as nobody else can give way
        super()._retract(seq, plan)
        if not lone:
            self._retracted.append(seq)
        elif self.storage is not None:
            self.storage.left(seq)

    def _room_made(self) -> None:
        # They wait again once all are retracted that must be, and what that evicts is gone by then.
        self._look_up_retracted()

    def _look_up_retracted(self) -> None:
        if self.storage is not None:
            for seq in self._retracted:
                self.storage.came_back(seq)
        self._retracted.clear()

    def _leave(self, seq: Sequence) -> None:
        super()._leave(seq)
        if self.storage is not None:
            self.storage.left(seq)

    def returns_quietly(self, plan: Plan) -> bool:
        # What a prompt leaves in the tree is written, from the next pass on.
        return not plan.chunks and super().returns_quietly(plan)

    def repeatable(self, plan: Plan, limit: int) -> int:
        counting = self.storage is not None and self.storage.counts_passes
        if self.pages.backup.num_queued or counting:
            return 0
        return self.pages.steps_without_copies(super().repeatable(plan, limit))
