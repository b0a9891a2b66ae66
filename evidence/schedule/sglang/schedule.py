"""Schedules recorded from a single SGLang engine, as input: engine settings and requests."""

import sys
from collections import deque
from typing import ClassVar

from evidence.schedule.case import Case
from evidence.schedule.sglang.engine import SglangEngine
from evidence.schedule.sglang.request import SglangRequest
from evidence.schedule.sglang.rows import SglangRows
from kvsim.engine.replica import ReplicaSpec
from kvsim.request import Request


class SglangSchedule(Case):
    """A schedule of an SGLang engine, with or without host memory."""

    recognised_by: ClassVar[str] = "max_total_tokens"

    engine: SglangEngine
    requests: tuple[SglangRequest, ...]

    @property
    def sent(self) -> tuple[SglangRequest, ...]:
        """The requests as the engine receives them; one without a priority is the least urgent, as
        in SGLang.
        """
        if not self.engine.priority_scheduling:
            return self.requests
        worst = sys.maxsize if self.engine.low_priority_values_first else -sys.maxsize - 1
        return tuple(
            each
            if "priority" in each.model_fields_set
            else each.model_copy(update={"priority": worst})
            for each in self.requests
        )

    def replica_spec(self) -> ReplicaSpec:
        return self.engine.replica_spec()

    def observer(
        self, by_step: deque[tuple[int, list[Request]]], *, stall_once: bool
    ) -> SglangRows:
        return SglangRows(by_step, preempts=self.engine.may_preempt)
