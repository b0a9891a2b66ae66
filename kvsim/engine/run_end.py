"""simpy events for the end of a run of steps, which may be cut short, and for the end of a
sleep.
"""

import simpy

from kvsim.engine.clock import EngineClock
from kvsim.engine.moments import STEP_ENDS
from kvsim.engine.plan import Plan
from kvsim.plumbing.units import ceil_div


class RunEnd(simpy.Event):
    """The end of a run of `steps` steps; moments.py has the order of events at one instant.

    The run is decided at now_ps and begins at begin_ps. The event occurs at end_ps, when all but
    its last `behind` steps are over; those are still in flight. Once cut, it occurs at the end of
    the current step. A cut event is scheduled twice; the second time it has no waiters. rest_ps:
    sleep after each step. The event does not wait for the sleep after the last step, but a run cut
    in a sleep ends with it. If rest_ps is not 0, `behind` is 0.
    """

    def __init__(
        self,
        env: EngineClock,
        plan: Plan,
        steps: int,
        behind: int,
        now_ps: int,
        begin_ps: int,
        end_ps: int,
        rest_ps: int,
    ) -> None:
        # All that simpy.Event sets, and that it is scheduled.
        self.env, self.callbacks = env, []
        self._ok, self._value = True, None
        self._clock = env
        self.steps = steps
        self._plan, self._behind = plan, behind
        self._begin_ps, self._end_ps, self._rest_ps = begin_ps, end_ps, rest_ps
        env.schedule(self, STEP_ENDS, end_ps - now_ps)

    def cut(self, now_ps: int) -> None:
        """End the run with the step that is computing at now_ps."""
        late_ps = max(0, now_ps - self._begin_ps + self._clock.late)
        plan, behind, rest_ps = self._plan, self._behind, self._rest_ps
        self.steps = max(1, behind + plan.steps_by(late_ps, self.steps, rest_ps))
        end_ps = self._begin_ps + plan.duration_ps(self.steps - behind)
        if rest_ps:
            end_ps += rest_ps * (self.steps - 1)
            if self._begin_ps + late_ps > end_ps:
                end_ps += rest_ps
        if end_ps < self._end_ps:
            self._end_ps = end_ps
            self.env.schedule(self, STEP_ENDS, end_ps - now_ps)


class Pause(simpy.Event):
    """The end of a time that cannot be cut short; it occurs after all arrivals at that instant."""

    def __init__(self, env: EngineClock, delay_ps: int) -> None:
        self.env, self.callbacks = env, []
        self._ok, self._value = True, None
        env.schedule(self, STEP_ENDS, delay_ps)


class Naps(simpy.Event):
    """The end of `count` sleeps of nap_ps each from now_ps on, or, once cut, of the current sleep.

    A cut event is scheduled twice, as in `RunEnd`.
    """

    def __init__(self, env: EngineClock, now_ps: int, nap_ps: int, count: int) -> None:
        self.env, self.callbacks = env, []
        self._ok, self._value = True, None
        self._clock = env
        self._begin_ps, self._nap_ps = now_ps, nap_ps
        self._end_ps = now_ps + nap_ps * count
        env.schedule(self, STEP_ENDS, nap_ps * count)

    def cut(self, now_ps: int) -> None:
        """End with the sleep that is in progress at now_ps."""
        naps = max(1, ceil_div(now_ps - self._begin_ps + self._clock.late, self._nap_ps))
        end_ps = self._begin_ps + naps * self._nap_ps
        if end_ps < self._end_ps:
            self._end_ps = end_ps
            self.env.schedule(self, STEP_ENDS, end_ps - now_ps)


class Wake(simpy.Event):
    """The end of a time without steps: after all arrivals at that instant, or at once if triggered
    before.
    """

    def __init__(self, env: EngineClock, delay_ps: int) -> None:
        super().__init__(env)
        Pause(env, delay_ps).callbacks = [self._end]

    def _end(self, _: simpy.Event) -> None:
        if not self.triggered:
            self.succeed()
