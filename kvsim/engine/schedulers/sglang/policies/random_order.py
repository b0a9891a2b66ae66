"""Schedule policy `random`: the queue is shuffled in every pass."""

from random import Random

from kvsim.engine.schedulers.sglang.policies.policy import QueueView, SchedulePolicy
from kvsim.sequence import Sequence


class RandomOrder(SchedulePolicy):
    """A random order in every pass, the same in every run. The orders differ from SGLang's, since
    its random generator is also used elsewhere.
    """

    def order(self, waiting: list[Sequence], view: QueueView) -> list[Sequence]:
        shuffled = list(waiting)
        Random(view.passes).shuffle(shuffled)
        return shuffled
