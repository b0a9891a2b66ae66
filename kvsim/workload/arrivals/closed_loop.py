"""A closed loop: a fixed number of users; each waits for an answer before the next request."""

from typing import Annotated

import numpy as np
from pydantic import NonNegativeFloat, PositiveInt

from kvsim.plumbing.choice import OneOf
from kvsim.workload.arrivals.process import ArrivalOptions, Schedule, ps
from kvsim.workload.durations import DURATIONS, DurationOptions


class ClosedLoop(ArrivalOptions):
    """A closed loop of num_users users. Each sends a request, waits for the answer, thinks for
    `think`, and sends the next request of the list.

    ramp_s: seconds over which the users' first requests are spread evenly.
    """

    num_users: PositiveInt
    think: Annotated[DurationOptions, OneOf(DURATIONS, "workload.arrivals.think")]
    ramp_s: NonNegativeFloat = 0.0

    def schedule(self, count: int, rng: np.random.Generator) -> Schedule:
        """The first num_users starts wait for no other. Each later one waits until any user is
        free; its `after` is the start num_users earlier, which gives the order only.
        """
        index = np.arange(count)
        first = np.minimum(index, self.num_users - 1)
        think_ps = ps(self.think.draw_s(count, rng))
        think_ps[: self.num_users] = 0
        return Schedule(
            arrival_ps=ps(first * (self.ramp_s / self.num_users)),
            after=np.where(index < self.num_users, -1, index - self.num_users),
            think_ps=think_ps,
        )

    def notes(self, count: int) -> list[str]:
        """A note if there are more users than starts, since the extra users have no effect."""
        if self.num_users < count:
            return []
        idle = self.num_users - count
        return [
            f"the closed loop has {self.num_users:,} users and {count:,} starts for them, so "
            + (f"{idle:,} of them never ask and " if idle else "")
            + "no user starts twice"
        ]
