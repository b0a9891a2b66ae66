"""Schedule policy `lof`: longest output first."""

from typing import ClassVar

from kvsim.engine.schedulers.sglang.policies.policy import QueueView, SchedulePolicy
from kvsim.sequence import Sequence


class Lof(SchedulePolicy):
    """Longest output first, by max_tokens. With `enable_priority_scheduling` this order holds
    within each priority.
    """

    by_priority: ClassVar[bool] = True

    def order(self, waiting: list[Sequence], view: QueueView) -> list[Sequence]:
        urgency, wishes = view.priorities.urgency, view.wishes
        return sorted(waiting, key=lambda seq: (urgency(seq), -wishes[seq]))
