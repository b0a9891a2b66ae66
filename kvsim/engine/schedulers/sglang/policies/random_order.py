"""Shuffles the queue in every pass."""

from random import Random

from kvsim.engine.schedulers.sglang.policies.policy import QueueView, SchedulePolicy
from kvsim.sequence import Sequence


class RandomOrder(SchedulePolicy):
    """A random order in every pass, the same one in every run. SGLang's own generator also serves
    others, so that its orders cannot be repeated.
    """

    def order(self, waiting: list[Sequence], view: QueueView) -> list[Sequence]:
        shuffled = list(waiting)
        Random(view.passes).shuffle(shuffled)
        return shuffled
