"""Rows of a schedule recorded from SGLang with HiCache."""

from collections import deque

from evidence.schedule.rows import Row
from evidence.schedule.sglang.hicache_columns import HicacheColumns
from evidence.schedule.sglang.rows import SglangRows
from evidence.schedule.ticks import TICK_PS
from kvsim.engine.executor.hicache import hicache_of
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.engine.schedulers.sglang.scheduler import SglangScheduler
from kvsim.request import Request


class HicacheRows(SglangRows):
    """One row per batch that ran, and one if requests wait and nothing can run.

    The last row has the events after the last batch. storage: whether there is an L3 storage.
    """

    def __init__(self, by_step: deque[tuple[int, list[Request]]], *, storage: bool = False) -> None:
        super().__init__(by_step)
        self._columns = HicacheColumns(storage=storage)
        self._scheduler: SglangScheduler | None = None
        self._stalled = False

    def planning(self, scheduler: Scheduler, now_ps: int) -> None:
        assert isinstance(scheduler, SglangScheduler)
        self._scheduler = scheduler
        self._columns.planning(scheduler)
        super().planning(scheduler, now_ps)

    def planned(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        hicache = hicache_of(scheduler)
        super().planned(scheduler, plan, hicache.copies.now_ps)
        if plan.empty:
            return
        self._stalled = False
        columns = self._columns
        self.rows[-1] |= columns.batch(hicache, plan) | columns.events(hicache)

    def memory(self, scheduler: Scheduler) -> dict[str, int]:
        host = hicache_of(scheduler).pages.tree.host
        return {**super().memory(scheduler), "host_used": host.used}

    def idle(self, scheduler: Scheduler, now_ps: int, *, stalled: bool) -> bool:
        assert isinstance(scheduler, SglangScheduler)
        if stalled and not self._stalled:
            self._stalled = True
            row = self._bare(scheduler, "stall")
            row["stall"] = 1
            self.rows.append(row)
        return super().idle(scheduler, now_ps, stalled=stalled)

    def _bare(self, scheduler: SglangScheduler, mode: str) -> Row:
        """A row for a pass without a batch."""
        hicache = hicache_of(scheduler)
        tree, now_ps = hicache.pages.tree, hicache.copies.now_ps
        row: Row = {
            "step": self.step,
            "t0": now_ps // TICK_PS,
            "t1": now_ps // TICK_PS,
            "mode": mode,
            "prefill": 0,
            "decode": 0,
            "running": len(scheduler.running),
            "waiting": len(scheduler.waiting),
            **self.memory(scheduler),
            "ratio": scheduler.ratio.value,
            "admitted": [],
            "sched": [],
            "first": [],
            "finished": [],
            "evicted": tree.evicted - self._evicted,
            "retracted": self._retracted,
            "aborted": self._aborted,
        }
        self._evicted, self._retracted, self._aborted = tree.evicted, [], []
        return row | self._columns.events(hicache)

    def close(self) -> None:
        """Write the events after the last batch."""
        scheduler = self._scheduler
        if scheduler is not None:
            row = self._bare(scheduler, "none")
            if any(row[field] for field in self._columns.fields):
                self.rows.append(row)
