"""Schedules recorded from SGLang with pipeline stages."""

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import Field

from evidence.schedule.sglang.rows import SglangRows
from evidence.schedule.sglang.schedule import SglangSchedule
from evidence.schedule.ticks import TICK_PS, TickCost
from kvsim.engine.plan import Plan
from kvsim.engine.replica import ReplicaSpec
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.engine.schedulers.sglang.scheduler import SglangScheduler
from kvsim.request import Request
from kvsim.step_time.form import StepTime
from kvsim.step_time.stages import StageTimes


class MicroBatchRows(SglangRows):
    """Rows with the index of each micro-batch, its end on each of `stages` stages, and the time at
    which its outputs are processed.
    """

    def __init__(
        self, by_step: deque[tuple[int, list[Request]]], cost: TickCost, stages: int
    ) -> None:
        super().__init__(by_step)
        self._cost, self._ends_ps = cost, [0] * stages

    def planned(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        super().planned(scheduler, plan, now_ps)
        if plan.empty:
            return
        assert isinstance(scheduler, SglangScheduler)
        end_ps, step_ps = now_ps, self._cost.step_ps(plan.shape())
        for stage, free_ps in enumerate(self._ends_ps):
            end_ps = self._ends_ps[stage] = max(end_ps, free_ps) + step_ps
        ends = [each // TICK_PS for each in self._ends_ps]
        self.rows[-1] |= {"mb": scheduler.ring.at, "ends": ends}

    def finished(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        for opened, row in self._open:
            if opened is plan:
                row["seen"] = now_ps // TICK_PS
        super().finished(scheduler, plan, now_ps)


class MicroBatchCase(SglangSchedule):
    """A schedule with `stages` pipeline stages. Each stage takes the cost of a step in the case."""

    stages: int = Field(ge=2, le=64)
    pp_max_micro_batch_size: int | None = Field(None, ge=1)

    @classmethod
    def recognises(cls, table: Mapping[str, Any]) -> bool:
        return super().recognises(table) and "stages" in table

    def replica_spec(self) -> ReplicaSpec:
        spec = super().replica_spec()
        update = {"pp_max_micro_batch_size": self.pp_max_micro_batch_size}
        scheduler = spec.scheduler.model_copy(update=update)
        return replace(spec, scheduler=scheduler, stages=self.stages)

    def step_time(self) -> StepTime:
        cost, stages = super().step_time(), self.stages
        return StageTimes([cost] * stages, 0, [0] * (stages - 1))

    def observer(
        self, by_step: deque[tuple[int, list[Request]]], *, stall_once: bool
    ) -> MicroBatchRows:
        return MicroBatchRows(by_step, TickCost(self.cost), self.stages)
