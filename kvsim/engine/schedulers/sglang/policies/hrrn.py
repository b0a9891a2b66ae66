"""Schedule policy `hrrn`: highest response ratio next, where waiting time is counted in prompt
tokens.
"""

from math import inf
from typing import ClassVar

from kvsim.engine.schedulers.sglang.policies.policy import QueueView, SchedulePolicy, matched
from kvsim.sequence import Sequence


class Hrrn(SchedulePolicy):
    """Highest response ratio next. The ratio is the number of prompt tokens that the engine
    launched while the request waited, divided by the request's own uncached tokens. With more than
    128 waiting requests the order is that of fcfs.
    """

    looks_up: ClassVar[bool] = True
    most: ClassVar[int | None] = 128
    without_cache: ClassVar[str | None] = "fcfs"
    ages: ClassVar[bool] = True

    def order(self, waiting: list[Sequence], view: QueueView) -> list[Sequence]:
        later = matched(waiting, view)

        def place(seq: Sequence) -> tuple[float, str]:
            entry = view.entries[seq]
            uncached = seq.prompt_tokens - entry.matched
            if seq in later or uncached <= 0:
                return (inf if seq in later else -inf), seq.id
            return -((view.prefilled_tokens - entry.prefilled_tokens) / uncached), seq.id

        return sorted(waiting, key=place)
