"""Schedules recorded from a single SGLang engine, as input: engine settings and requests."""

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

    def replica_spec(self) -> ReplicaSpec:
        return self.engine.replica_spec()

    def observer(
        self, by_step: deque[tuple[int, list[Request]]], *, stall_once: bool
    ) -> SglangRows:
        return SglangRows(by_step)
