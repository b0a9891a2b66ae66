"""Rows of a schedule recorded from vLLM; memory is counted in blocks."""

from collections import deque
from typing import Any

from evidence.schedule.rows import Row, Rows
from evidence.schedule.ticks import TICK_PS
from kvsim.engine.limits.special import SpecialLimits
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.continuous import ContinuousScheduler
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.memory.paged.allocator import PagedAllocator
from kvsim.request import Request


class VllmRows(Rows):
    """One row per call of `schedule()` that scheduled or preempted something.

    stall_once: a queue that cannot start gets one row even if further requests arrive; otherwise
    one row per arrival. encodes: whether rows list the encoder's inputs and the use of its cache.
    by_group: whether rows count each sequence's blocks per KV cache group.
    """

    def __init__(
        self,
        by_step: deque[tuple[int, list[Request]]],
        *,
        stall_once: bool,
        by_group: bool,
        encodes: bool = False,
    ) -> None:
        super().__init__(by_step)
        self._encodes = encodes
        self._stall_once = stall_once
        self._by_group = by_group
        self._evicted = 0

    def planned(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        if not plan.empty or plan.preempted:
            self._add_row(scheduler, plan, now_ps)
        assert isinstance(scheduler, ContinuousScheduler)
        if scheduler.in_flight.stages > 1:
            return
        if self._open and self._open[0][0].empty and self._open[0][0] is not plan:
            # Two in flight: it returns one schedule later.
            self.finished(scheduler, self._open[0][0], now_ps)

    def _add_row(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        pool = _blocks(scheduler).pool
        sched = self._scheduled(scheduler, plan)
        row: Row = {
            "step": self.step,
            "t0": now_ps // TICK_PS,
            "t1": (plan.start_ps + plan.duration_ps(1)) // TICK_PS,
            "prefill": sum(new for _, new, kind, _, _ in sched if kind == "p"),
            "decode": sum(kind == "d" for _, _, kind, _, _ in sched),
            "running": len(scheduler.running),
            "waiting": len(scheduler.waiting),
            **self.memory(scheduler),
            "evicted": pool.num_evicted - self._evicted,
            "preempted": [seq.id for seq in plan.preempted],
            "admitted": [[seq.id, hits, int(resumed)] for seq, hits, resumed in plan.admitted],
            "sched": sched,
            "first": [c.seq.id for c in plan.chunks if c.samples and c.seq.num_outputs == 1],
            "finished": [],
        }
        allocator = _blocks(scheduler)
        if self._by_group and not allocator.one_table:
            held = {seq.id: allocator.held_blocks(seq) for seq in scheduler.running}
            row["held"] = [[entry[0], held[entry[0]]] for entry in sched]
        if self._encodes:
            row |= _encoder_rows(scheduler)
        if _drafts(scheduler):
            row["drafts"] = [[chunk.seq.id, chunk.drafts] for chunk in plan.chunks if chunk.drafts]
        self._evicted = pool.num_evicted
        self.append(row, plan)

    def _scheduled(self, scheduler: Scheduler, plan: Plan) -> list[list[Any]]:
        allocator = _blocks(scheduler)
        chunks = {chunk.seq: chunk for chunk in plan.chunks}
        sched = []
        for seq in scheduler.running:
            if seq in chunks:
                chunk = chunks[seq]
                kind = "d" if chunk.is_decode else "p"
                entry = [seq.id, chunk.new_tokens, kind, chunk.prior_tokens]
            elif scheduler.took_token(seq, plan) and seq.decoding:
                entry = [seq.id, 1, "d", scheduler.batch.slots(seq) - 1]
            elif scheduler.took_token(seq, plan) or seq in plan.finishing:
                entry = [seq.id, 1, "d", seq.num_computed - 1]
            else:
                continue
            sched.append([*entry, allocator.table_length(seq)])
        return sched

    def complete(self, scheduler: Scheduler, plan: Plan, row: Row) -> None:
        if _drafts(scheduler):
            judged = (chunk for chunk in plan.chunks if chunk.drafts and chunk.samples)
            row["accepted"] = [[chunk.seq.id, chunk.accepted] for chunk in judged]

    def memory(self, scheduler: Scheduler) -> dict[str, int]:
        pool = _blocks(scheduler).pool
        used = pool.num_blocks - 1 - pool.num_free
        return {"used": used, "free": pool.num_free, "cached_free": pool.num_cached_free}

    def idle(self, scheduler: Scheduler, now_ps: int, *, stalled: bool) -> bool:
        known = self._stall_once and bool(self.rows) and "stall" in self.rows[-1]
        if stalled and not known:
            self._stall_row(scheduler, now_ps // TICK_PS)
        return super().idle(scheduler, now_ps, stalled=stalled)

    def _stall_row(self, scheduler: Scheduler, now: int) -> None:
        self.append(
            {
                **dict.fromkeys(("prefill", "decode", "running", "evicted"), 0),
                **{key: [] for key in ("preempted", "admitted", "sched", "first", "finished")},
                "step": self.step,
                "t0": now,
                "t1": now,
                "waiting": len(scheduler.waiting),
                **self.memory(scheduler),
                "stall": 1,
            }
        )


def _drafts(scheduler: Scheduler) -> bool:
    """Whether the scheduler uses speculative decoding."""
    return isinstance(scheduler, ContinuousScheduler) and scheduler.drafter.verifies


def _encoder_rows(scheduler: Scheduler) -> Row:
    """The step's encoder inputs by request, and the tokens of the encoder cache that are free and
    freeable.
    """
    limits = scheduler.special_limits
    assert isinstance(limits, SpecialLimits)
    cache = limits.encoder_cache
    encoding = [[seq.id, cache.encoding[seq]] for seq in scheduler.running if seq in cache.encoding]
    return {"encoder": encoding, "encoder_free": [cache.free_tokens, cache.freeable_tokens]}


def _blocks(scheduler: Scheduler) -> PagedAllocator:
    """The allocator of a recorded engine."""
    allocator = scheduler.allocator
    assert isinstance(allocator, PagedAllocator)
    return allocator
