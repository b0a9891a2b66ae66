"""Rows of a schedule recorded from SGLang; memory is counted in tokens."""

from collections import deque
from typing import Any

from evidence.schedule.rows import Row, Rows
from evidence.schedule.ticks import TICK_PS
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.engine.schedulers.sglang.scheduler import SglangScheduler
from kvsim.memory.radix.allocator import RadixAllocator
from kvsim.plumbing.errors import InputError
from kvsim.request import Request
from kvsim.sequence import Sequence


class SglangRows(Rows):
    """One row per batch that ran. preempts: rows list requests that were retracted for more urgent
    ones.
    """

    def __init__(
        self, by_step: deque[tuple[int, list[Request]]], *, preempts: bool = False
    ) -> None:
        super().__init__(by_step)
        self._preempts = preempts
        self._preempted: list[str] = []
        self._evicted = 0
        self._retracted: list[str] = []
        self._aborted: list[str] = []
        self._begun: set[Sequence] = set()

    def aborted(self, scheduler: Scheduler, plan: Plan) -> list[str]:
        """Ids of sequences that ended with an error in the pass that made `plan`."""
        return [seq.id for seq, _ in plan.failed]

    def planned(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        assert isinstance(scheduler, SglangScheduler)
        displaced = scheduler.prompts.displaced
        self._preempted += [seq.id for seq in displaced]
        self._retracted += [seq.id for seq in plan.preempted if seq not in displaced]
        self._aborted += self.aborted(scheduler, plan)
        if scheduler.engine_faults:
            raise InputError(
                "SGLang 0.5.23 cuts a second prompt in one pass here, and then takes the first for "
                "whole: a fault that is not followed",
                where="engine.chunked_prefill_size",
                value=f"step {self.step}",
                remedy="take chunks of whole pages, not mixed, or ignore_eos for all or none",
            )
        if plan.empty:
            return
        members = scheduler.members(plan)
        self.append(self.row(scheduler, plan, now_ps, members), plan)

    def row(
        self, scheduler: SglangScheduler, plan: Plan, now_ps: int, members: list[Sequence]
    ) -> Row:
        """The row of a step. members: the requests that it computes."""
        tree = _radix(scheduler).tree
        sched = [
            [*_scheduled(scheduler, plan, seq), *self.scheduled(scheduler, seq)] for seq in members
        ]
        prompts, decodes = [[e for e in sched if e[2] == kind] for kind in "pd"]
        unfinished = {*members, *scheduler.decoders}
        row: Row = {
            "step": self.step,
            "t0": now_ps // TICK_PS,
            "t1": (plan.start_ps + plan.duration_ps(1)) // TICK_PS,
            "mode": "decode" if not prompts else "mixed" if decodes else "extend",
            "prefill": sum(entry[1] for entry in prompts),
            "decode": len(decodes),
            "running": sum(not seq.finished for seq in unfinished),
            "waiting": len(scheduler.waiting),
            **self.memory(scheduler),
            "ratio": scheduler.ratio.value,
            "admitted": [
                [seq.id, hits, int(again), *self.admitted(seq)]
                for seq, hits, again in plan.admitted
            ],
            "sched": sched,
            "first": [],
            "finished": [],
            "evicted": tree.evicted - self._evicted,
            "retracted": self._retracted,
            "aborted": self._aborted,
        }
        if self._preempts:
            row["preempted"], self._preempted = self._preempted, []
        self._evicted, self._retracted, self._aborted = tree.evicted, [], []
        return row

    def admitted(self, seq: Sequence) -> list[Any]:
        """Further fields of an admitted request in a row."""
        return []

    def scheduled(self, scheduler: Scheduler, seq: Sequence) -> list[Any]:
        """Further fields of a sequence in the batch."""
        return []

    def complete(self, scheduler: Scheduler, plan: Plan, row: Row) -> None:
        began = [c.seq for c in plan.chunks if c.samples and c.seq not in self._begun]
        self._begun.update(began)
        row["first"] = [seq.id for seq in began]

    def memory(self, scheduler: Scheduler) -> dict[str, int]:
        radix = _radix(scheduler)
        free = radix.pool.available_tokens()
        return {
            "used": radix.pool_tokens - free,
            "free": free,
            "cached_free": radix.tree.evictable,
            "locked": radix.tree.locked,
        }


def _scheduled(scheduler: Scheduler, plan: Plan, seq: Sequence) -> list[Any]:
    """The entry of a sequence in the batch: [id, new tokens, kind, computed tokens, allocated
    tokens].
    """
    held = scheduler.allocator.granted_tokens(seq)
    for chunk in plan.chunks:
        if chunk.seq is seq:
            kind = "d" if chunk.is_decode else "p"
            return [seq.id, chunk.new_tokens, kind, chunk.prior_tokens, held]
    slots = scheduler.batch.slots(seq) if seq.decoding else seq.num_computed
    return [seq.id, 1, "d", slots - 1, held]


def _radix(scheduler: Scheduler) -> RadixAllocator:
    """The allocator of a recorded engine."""
    allocator = scheduler.allocator
    assert isinstance(allocator, RadixAllocator)
    return allocator
