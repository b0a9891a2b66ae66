"""Depth first through the radix tree, branches with more waiting requests first."""

from typing import ClassVar

from kvsim.engine.schedulers.sglang.policies.policy import QueueView, SchedulePolicy, matched
from kvsim.sequence import Sequence


class DfsWeight(SchedulePolicy):
    """Depth first through the radix tree, branches with more waiting requests first, so that
    requests of one branch follow each other.
    """

    looks_up: ClassVar[bool] = True
    without_cache: ClassVar[str | None] = "fcfs"

    def order(self, waiting: list[Sequence], view: QueueView) -> list[Sequence]:
        matched(waiting, view)
        return view.room.depth_first(waiting)
