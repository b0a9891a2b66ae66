"""Priorities of requests under SGLang (--enable-priority-scheduling): the order of urgency, and
which running requests are retracted for a more urgent one (managers/schedule_policy.py,
`preempt_to_schedule`).
"""

from collections.abc import Callable, Iterable, Mapping

from kvsim.engine.schedulers.sglang.entry import QueueEntry
from kvsim.sequence import Sequence

PREEMPTION_THRESHOLD = 10  # SGLang's default


class PriorityRule:
    """The rule for priorities. sign: 1: smaller values are more urgent; -1: larger values; 0:
    priorities are ignored.

    threshold: a running request is retracted for one that is more urgent by more than this; None:
    never.
    """

    def __init__(self, sign: int = 0, threshold: int | None = None) -> None:
        self.sign, self.threshold = sign, threshold

    @property
    def preempts(self) -> bool:
        """Whether running requests may be retracted for more urgent ones."""
        return self.sign != 0 and self.threshold is not None

    def urgency(self, seq: Sequence) -> int:
        """Sort key of a request: the smallest is the most urgent."""
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
    """Requests of `running` to retract so that `newcomer` can start, least urgent first. None are
    retracted if those that are less urgent by more than the threshold do not suffice.

    lack: tokens that the newcomer lacks. freed: gives the tokens that a running request frees.
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
