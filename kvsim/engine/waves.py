"""Data-parallel ranks in lockstep: each has its own attention, and all share the experts.

SGLang's data-parallel attention, one step at a time: every step of a wave takes as long as that of
the slowest rank (vLLM's ranks: ranks.py). A rank without work runs a dummy step. Ranks agree on
whether any has work in the first step of a wave and then every sync_steps steps. A wave ends when
no rank has any. The next request starts a wave of all ranks.
"""

from collections.abc import Generator

import simpy

from kvsim.engine.clock import EngineClock
from kvsim.engine.engine import Engine
from kvsim.engine.moments import PLANS, moment
from kvsim.engine.plan import Plan
from kvsim.engine.run_end import Pause
from kvsim.plumbing.errors import InvariantError
from kvsim.step import StepShape


class Rank:
    """An engine that `Waves` steps in lockstep, instead of a loop of its own. dummy_ps: duration of
    a dummy step.
    """

    def __init__(self, engine: Engine) -> None:
        core = self._core = engine.core
        if core.steps_ahead:
            raise InvariantError("an engine of a wave has one step in flight")
        self._engine = engine
        self.dummy_ps = core.parts.step_time.step_ps(StepShape((), 1, 1, 1))

    @property
    def has_work(self) -> bool:
        """Whether the rank has waiting or running requests."""
        scheduler = self._core.scheduler
        return bool(scheduler.running) or scheduler.waiting.head is not None

    def planned(self) -> Plan | None:
        """Schedule the rank's part of the next step; None: it runs a dummy step."""
        plan = None
        while self.has_work:
            plan = self._engine.plan()
            if not plan.empty or not self._core.gave_way(plan):
                break
        self._core.books.open()
        return None if plan is None or plan.empty else plan

    def rests(self, wake: simpy.Event) -> None:
        """Begin an idle time, which ends with `wake`; an arrival triggers it."""
        self._core.books.open()
        self._core.wake = wake

    def rested(self, begin_ps: int) -> None:
        """Record that the rank computed nothing since begin_ps."""
        core = self._core
        core.wake = None
        if core.now_ps > begin_ps:
            core.books.idled(begin_ps, core.now_ps)

    def stepped(self, plan: Plan, lasts_ps: int) -> None:
        """Process the outputs of `plan`. lasts_ps: duration of the slowest rank's step."""
        plan.first_ps = lasts_ps
        self._engine.commit(plan, 1)


class Waves:
    """Steps all engines of one server in lockstep. sync_steps: steps between two agreements.

    one_step: each has one step in flight, and no connector. num_waves, num_steps: counts so far.
    num_dummy_steps: dummy steps so far, summed over ranks.
    """

    one_step = True

    def __init__(self, env: EngineClock, sync_steps: int) -> None:
        self._env, self._sync_steps = env, sync_steps
        self._ranks: list[Rank] = []
        self.num_waves = self.num_steps = self.num_dummy_steps = 0
        env.process(self._run())

    def executor(self, *, connected: bool) -> None:
        """None: its ranks have the executor of an engine that steps alone."""

    def join(self, engine: Engine) -> None:
        """Add an engine, which has not started, as a rank."""
        self._ranks.append(Rank(engine))

    def _run(self) -> Generator[simpy.Event, None, None]:
        while True:
            if not self._anyone():
                begin_ps = int(self._env.now)
                wake = self._env.event()
                for rank in self._ranks:
                    rank.rests(wake)
                yield wake
                for rank in self._ranks:
                    rank.rested(begin_ps)
            yield moment(self._env, 0, PLANS)  # after all that happens at this instant
            yield from self._wave()

    def _wave(self) -> Generator[simpy.Event, None, None]:
        self.num_waves += 1
        steps = 0
        while True:
            begin_ps = int(self._env.now)
            plans = [rank.planned() for rank in self._ranks]
            if steps == 0 and not self._anyone():
                return  # the arrivals were refused
            lasts_ps = max(
                rank.dummy_ps if plan is None else plan.first_ps
                for rank, plan in zip(self._ranks, plans, strict=True)
            )
            yield Pause(self._env, lasts_ps)
            for rank, plan in zip(self._ranks, plans, strict=True):
                if plan is None:
                    self.num_dummy_steps += 1
                    rank.rested(begin_ps)
                else:
                    rank.stepped(plan, lasts_ps)
            steps += 1
            self.num_steps += 1
            agree = steps == 1 or steps % self._sync_steps == 0
            if agree and not self._anyone():
                return
            yield moment(self._env, 0, PLANS)

    def _anyone(self) -> bool:
        return any(rank.has_work for rank in self._ranks)
