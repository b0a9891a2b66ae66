"""SGLang's data-parallel attention in lockstep: attention is separate, and all ranks share the
experts.

Every step of a wave lasts as long as that of the slowest rank. A rank without work runs a dummy
step. Ranks agree on whether any has work in the first step of a wave and then every sync_steps
steps. A wave ends when no rank has work. The next request starts a wave of all ranks. (For vLLM's
ranks see ranks.py.)
"""

from collections.abc import Generator
from typing import NamedTuple

import simpy

from kvsim.engine.clock import EngineClock
from kvsim.engine.engine import Engine
from kvsim.engine.moments import PLANS, moment
from kvsim.engine.plan import Plan
from kvsim.engine.run_end import Pause
from kvsim.step import StepShape


class Rank:
    """An engine that `Waves` steps in lockstep, instead of a loop of its own. dummy_ps: duration of
    a dummy step.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine, self._core = engine, engine.core
        self.dummy_ps = self._core.parts.step_time.step_ps(StepShape((), 1, 1, 1))

    @property
    def steps_ahead(self) -> int:
        """Steps launched before the oldest has returned: 1 under the overlap schedule, else 0."""
        return self._core.steps_ahead

    @property
    def has_work(self) -> bool:
        """Whether the rank has waiting or running requests."""
        scheduler = self._core.scheduler
        return bool(scheduler.running) or scheduler.waiting.head is not None

    def planned(self) -> Plan:
        """Schedule the rank's part of the next step; an empty plan is a dummy step."""
        plan = Plan()
        while self.has_work:
            plan = self._engine.plan()
            if not plan.empty or not self._core.gave_way(plan):
                break
        self._core.books.open()
        return plan

    def passes_idle(self) -> None:
        """Run a pass of the scheduler at the end of a wave, when no rank has work."""
        self._engine.plan()

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

    def launched(self, plan: Plan, start_ps: int, lasts_ps: int) -> None:
        """Set the times of `plan`: it starts at start_ps and lasts lasts_ps, the duration of the
        slowest rank's step.
        """
        if not plan.empty:
            plan.start_ps, plan.first_ps = start_ps, lasts_ps
        if self._core.observer is not None:
            now_ps, end_ps = self._core.now_ps, start_ps + lasts_ps
            self._core.observer.launched_together(self._core.scheduler, plan, now_ps, end_ps)

    def stepped(self, done: Plan, newest: Plan, start_ps: int) -> None:
        """Process the outputs of `done`, which started at start_ps. newest: the plan launched last;
        equal to `done` if one step is in flight at a time.
        """
        core, ahead = self._core, self._core.steps_ahead
        if not done.empty:
            self._engine.commit(newest, 1)
            return
        self.rested(start_ps)
        core.finished(done, core.now_ps)
        if ahead and not newest.empty:
            core.in_flight.append(newest)

    def queued(self, plan: Plan) -> None:
        """Add `plan` to the steps in flight; the next step is scheduled at once."""
        if not plan.empty:
            self._core.in_flight.append(plan)


class GroupStep(NamedTuple):
    """One step of all ranks: the plan of each, and its start and end in ps."""

    plans: list[Plan]
    start_ps: int
    end_ps: int


class Waves:
    """Steps all engines of one server in lockstep. sync_steps: steps between two agreements.

    Under SGLang's overlap schedule all ranks launch a step, and then process the outputs of the
    previous one.

    no_tiers: ranks have no KV connector. num_waves, num_steps: number of waves and steps so far.
    num_dummy_steps: dummy steps so far, summed over ranks.
    """

    no_tiers = True

    def __init__(self, env: EngineClock, sync_steps: int) -> None:
        self._env, self._sync_steps = env, sync_steps
        self._ranks: list[Rank] = []
        self.num_waves = self.num_steps = self.num_dummy_steps = 0
        env.process(self._run())

    def executor(self, *, connected: bool) -> None:
        """None: `Waves` steps its ranks itself, so that no executor is needed."""

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
        steps, overlaps = 0, bool(self._ranks[0].steps_ahead)
        flight: GroupStep | None = None
        while True:
            plans = [rank.planned() for rank in self._ranks]
            if steps == 0 and flight is None and not self._anyone():
                return  # the arrivals were refused
            launched = None
            if flight is None or not all(plan.empty for plan in plans):
                launched = self._launch(plans, flight)
            if flight is None and overlaps:
                for rank, plan in zip(self._ranks, plans, strict=True):
                    rank.queued(plan)
                flight = launched
                continue
            done = flight or launched
            assert done is not None
            yield Pause(self._env, done.end_ps - int(self._env.now))
            for rank, before, plan in zip(self._ranks, done.plans, plans, strict=True):
                rank.stepped(before, plan, done.start_ps)
            steps += 1
            self.num_steps += 1
            flight = launched if overlaps else None
            agree = steps == 1 or steps % self._sync_steps == 0
            if flight is None and agree and not self._anyone():
                for rank in self._ranks:
                    rank.passes_idle()
                return
            yield moment(self._env, 0, PLANS)

    def _launch(self, plans: list[Plan], before: GroupStep | None) -> GroupStep:
        """Launch the ranks' plans as one step, which starts at the end of the step `before`; None:
        it starts now.
        """
        start_ps = int(self._env.now) if before is None else before.end_ps
        lasts_ps = max(
            rank.dummy_ps if plan.empty else plan.first_ps
            for rank, plan in zip(self._ranks, plans, strict=True)
        )
        for rank, plan in zip(self._ranks, plans, strict=True):
            rank.launched(plan, start_ps, lasts_ps)
        self.num_dummy_steps += sum(plan.empty for plan in plans)
        return GroupStep(plans, start_ps, start_ps + lasts_ps)

    def _anyone(self) -> bool:
        return any(rank.has_work for rank in self._ranks)
