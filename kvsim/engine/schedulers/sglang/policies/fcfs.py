"""Schedule policy `fcfs`: first come, first served, within each priority."""

from typing import ClassVar

from kvsim.engine.schedulers.sglang.policies.policy import QueueView, SchedulePolicy
from kvsim.engine.schedulers.sglang.priorities import PriorityRule
from kvsim.sequence import Sequence


class Fcfs(SchedulePolicy):
    """First come, first served; a retracted request is queued last. With
    `enable_priority_scheduling` requests of higher priority come first.
    """

    by_priority: ClassVar[bool] = True

    def sorts(self, priorities: PriorityRule) -> bool:
        return priorities.sign != 0

    def order(self, waiting: list[Sequence], view: QueueView) -> list[Sequence]:
        urgency, entries = view.priorities.urgency, view.entries
        return sorted(waiting, key=lambda seq: (urgency(seq), entries[seq].number))
