"""Micro-batches of pipeline stages under SGLang (managers/scheduler_pp_mixin.py, 0.5.23).

Each of N places has a running batch and a last prefill batch of its own. Places take turns: a pass
schedules one of them alone. Its last outputs have been processed by then, those of the others are
in flight. So a request decodes once in N passes. Without stages there is one place.
"""

from collections.abc import Callable

from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.engine.schedulers.sglang.running_batch import RunningBatch
from kvsim.sequence import Sequence


class Ring:
    """The places of one scheduler, each made by `place`. at: index of the one that is scheduled
    now.
    """

    def __init__(self, scheduler: Scheduler, num: int, place: Callable[[], RunningBatch]) -> None:
        self._scheduler = scheduler
        self.places = [place() for _ in range(num)]
        self.at = num - 1
        self._of: dict[Plan, RunningBatch] = {}  # of plans in flight
        self._away: list[Sequence] = []

    @property
    def alone(self) -> bool:
        """Whether there is one place."""
        return len(self.places) == 1

    def turn(self) -> RunningBatch:
        """Begin the pass of the next place: decoding requests of the others rest."""
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
        """End the pass that made `plan`; the requests that rested may decode again."""
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
        """`plan` is launched: its outputs belong to this place."""
        self._of[plan] = self.places[self.at]

    def returned(self, plan: Plan, done: list[Sequence]) -> None:
        """The outputs of `plan` are processed; requests `done` have ended with them."""
        place = self._of.pop(plan, None)
        if place is not None:
            place.finished += done
