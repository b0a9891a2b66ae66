"""Schedule policy `dfs-weight`: depth first through the radix tree."""

from typing import ClassVar

from kvsim.engine.schedulers.sglang.policies.policy import QueueView, SchedulePolicy, matched
from kvsim.sequence import Sequence


class DfsWeight(SchedulePolicy):
    """Order of a depth-first walk through the radix tree, branches with more waiting requests
    first. So requests that share a prefix follow each other.
    """

    looks_up: ClassVar[bool] = True
    without_cache: ClassVar[str | None] = "fcfs"

    def order(self, waiting: list[Sequence], view: QueueView) -> list[Sequence]:
        matched(waiting, view)
        return view.room.depth_first(waiting)
