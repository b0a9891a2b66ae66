"""Micro-batches of pipeline stages under SGLang (managers/scheduler_pp_mixin.py, 0.5.23).

With N stages there are N micro-batches, each with a running batch and a last prefill batch. Passes
schedule the micro-batches round-robin, one in each pass. The outputs of the scheduled one have been
processed, those of the others are in flight. So a request decodes once in N passes. Without stages
there is one micro-batch.
"""

from collections.abc import Callable

from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.engine.schedulers.sglang.running_batch import RunningBatch
from kvsim.sequence import Sequence


class Ring:
    """The micro-batches of one scheduler, called places here; `place` makes each of them. at: index
    of the one that is being scheduled.
    """

    def __init__(self, scheduler: Scheduler, num: int, place: Callable[[], RunningBatch]) -> None:
        self._scheduler = scheduler
        self.places = [place() for _ in range(num)]
        self.at = num - 1
        self._of: dict[Plan, RunningBatch] = {}  # of plans in flight
        self._away: list[Sequence] = []

    @property
    def alone(self) -> bool:
        """Whether there is only one micro-batch."""
        return len(self.places) == 1

    def turn(self) -> RunningBatch:
        """Begin the pass of the next micro-batch, and return it. Decoding requests of the others
        are taken out of the batch until the end of the pass.
        """
        places = self.places
        if len(places) == 1:
            return places[0]
        self.at = (self.at + 1) % len(places)
        place, batch = places[self.at], self._scheduler.batch
        mine = {*place.members, *place.prompts} - {place.chunked}
        decoding = (seq for seq in self._scheduler.running if seq.decoding)
        self._away = [seq for seq in decoding if seq not in mine]
        for seq in self._away:
            batch.leave(seq)
        return place

    def decided(self, plan: Plan) -> None:
        """End the pass that made `plan`, and put the decoding requests of the other micro-batches
        back.
        """
        if len(self.places) == 1:
            return
        place, scheduler = self.places[self.at], self._scheduler
        if plan.num_paused:
            plan.num_paused = 0
            plan.passed_over = [seq for seq in place.members if seq.decoding]
        plan.passed_over = [*plan.passed_over, *self._away]
        for seq in self._away:
            scheduler.batch.join(seq, seq.num_computed)
        self._away = []

    def launched(self, plan: Plan) -> None:
        """Note that `plan` is launched, with outputs of the micro-batch that is being scheduled."""
        self._of[plan] = self.places[self.at]

    def returned(self, plan: Plan, done: list[Sequence]) -> None:
        """Note that the outputs of `plan` are processed, and that requests `done` have ended with
        them.
        """
        place = self._of.pop(plan, None)
        if place is not None:
            place.finished += done
