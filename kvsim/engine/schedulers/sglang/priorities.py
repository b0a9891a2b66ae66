"""Priorities of requests under SGLang (--enable-priority-scheduling): which waiting one is urgent,
and which running ones leave for it (managers/schedule_policy.py, `preempt_to_schedule`).
"""

from collections.abc import Callable, Iterable, Mapping

from kvsim.engine.schedulers.sglang.entry import QueueEntry
from kvsim.sequence import Sequence

PREEMPTION_THRESHOLD = 10  # SGLang's default


class PriorityRule:
    """How priorities count. sign: 1: smaller values first; -1: larger ones; 0: they do not count.

    threshold: a running request leaves for one that is more urgent by more than this; None: it
    never does.
    """

    def __init__(self, sign: int = 0, threshold: int | None = None) -> None:
        self.sign, self.threshold = sign, threshold

    @property
    def preempts(self) -> bool:
        """Whether running requests may leave for more urgent ones."""
        return self.sign != 0 and self.threshold is not None

    def urgency(self, seq: Sequence) -> int:
        """Sort key: lower is more urgent."""
        return self.sign * seq.priority


NO_PRIORITIES = PriorityRule()


def leaving(
    rule: PriorityRule,
    newcomer: Sequence,
    running: Iterable[Sequence],
    entries: Mapping[Sequence, QueueEntry],
    lack: float,
    freed: Callable[[Sequence], float],
) -> list[Sequence]:
    """Requests of `running` that leave so that `newcomer` may start, least urgent first; none if
    too few are less urgent by more than the threshold.

    lack: tokens that the newcomer lacks. freed: gives the tokens that count for a running one.
    """
    chosen: list[Sequence] = []
    if rule.threshold is None:
        return chosen
    worst_first = sorted(running, key=lambda s: (-rule.urgency(s), -entries[s].number))
    for seq in worst_first:
        if rule.urgency(seq) - rule.urgency(newcomer) <= rule.threshold:
            break
        chosen.append(seq)
        lack -= freed(seq)
        if lack <= 0:
            return chosen
    return []
