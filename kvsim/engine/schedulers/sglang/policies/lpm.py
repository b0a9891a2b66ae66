"""Schedule policy `lpm`: longest cached prefix first."""

from typing import ClassVar

from kvsim.engine.schedulers.sglang.policies.policy import QueueView, SchedulePolicy, matched
from kvsim.sequence import Sequence


class Lpm(SchedulePolicy):
    """Longest cached prefix first. A request that begins with the same uncached tokens as an
    earlier one is tried last, so that it hits the pages of that one. With more than 128 waiting
    requests the order is that of fcfs.
    """

    looks_up: ClassVar[bool] = True
    most: ClassVar[int | None] = 128
    without_cache: ClassVar[str | None] = "fcfs"

    def order(self, waiting: list[Sequence], view: QueueView) -> list[Sequence]:
        later, entries = matched(waiting, view), view.entries
        return sorted(waiting, key=lambda seq: 1 if seq in later else -entries[seq].matched)
