"""Events: the end of a run of steps, which may be cut short, and the end of a pause."""

import simpy

from kvsim.engine.clock import EngineClock
from kvsim.engine.moments import STEP_ENDS
from kvsim.engine.plan import Plan
from kvsim.plumbing.units import ceil_div


class RunEnd(simpy.Event):
    """The end of a run of steps; moments.py has the order of events at one time.

    A run of `steps` steps, decided at now_ps, begins at begin_ps. It ends at end_ps, after all but
    its last `behind` steps, or, once it is cut, with its current step. The event of a cut run
    occurs twice; the second one has no waiters. rest_ps: after each step; that after the last one
    is not waited for, but a run that is cut in a rest ends with it. With rests `behind` is 0.
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
        """End the run with the step that runs at now_ps."""
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
    """The end of a time that cannot be cut short, after all arrivals at that instant."""

    def __init__(self, env: EngineClock, delay_ps: int) -> None:
        self.env, self.callbacks = env, []
        self._ok, self._value = True, None
        env.schedule(self, STEP_ENDS, delay_ps)


class Naps(simpy.Event):
    """The end of `count` naps of nap_ps each, from now_ps on; or, once cut, of the current nap. A
    cut event occurs twice, as that of a run does.
    """

    def __init__(self, env: EngineClock, now_ps: int, nap_ps: int, count: int) -> None:
        self.env, self.callbacks = env, []
        self._ok, self._value = True, None
        self._clock = env
        self._begin_ps, self._nap_ps = now_ps, nap_ps
        self._end_ps = now_ps + nap_ps * count
        env.schedule(self, STEP_ENDS, nap_ps * count)

    def cut(self, now_ps: int) -> None:
        """End with the nap that runs at now_ps."""
        naps = max(1, ceil_div(now_ps - self._begin_ps + self._clock.late, self._nap_ps))
        end_ps = self._begin_ps + naps * self._nap_ps
        if end_ps < self._end_ps:
            self._end_ps = end_ps
            self.env.schedule(self, STEP_ENDS, end_ps - now_ps)


class Wake(simpy.Event):
    """The end of a time without steps, after all arrivals at that instant; once triggered, at
    once.
    """

    def __init__(self, env: EngineClock, delay_ps: int) -> None:
        super().__init__(env)
        Pause(env, delay_ps).callbacks = [self._end]

    def _end(self, _: simpy.Event) -> None:
        if not self.triggered:
            self.succeed()
