"""Rows of one data-parallel attention rank of SGLang: one row for each step of all ranks."""

from collections import deque

from evidence.schedule.sglang.rows import SglangRows
from evidence.schedule.ticks import TICK_PS
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.engine.schedulers.sglang.scheduler import SglangScheduler


class AttentionRankRows(SglangRows):
    """Rows of one rank. A dummy step, in which only other ranks compute, has mode `idle`."""

    def __init__(self) -> None:
        super().__init__(deque())

    def launched_together(self, scheduler: Scheduler, plan: Plan, now_ps: int, end_ps: int) -> None:
        assert isinstance(scheduler, SglangScheduler)
        if plan.empty:
            self.append(self.row(scheduler, plan, now_ps, []), plan)
            self.rows[-1] |= {"mode": "idle", "own": 0}
        else:
            self.rows[-1]["own"] = self._own
        self.rows[-1]["t1"] = end_ps // TICK_PS

    def planned(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        super().planned(scheduler, plan, now_ps)
        self._own = plan.duration_ps(1) // TICK_PS
