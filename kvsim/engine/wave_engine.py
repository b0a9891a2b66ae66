"""The engine of one rank of several that step together (see waves.py)."""

from collections.abc import Generator

import simpy

from kvsim.engine.clock import EngineClock
from kvsim.engine.engine import Engine
from kvsim.engine.parts import EngineParts
from kvsim.engine.plan import Plan
from kvsim.plumbing.errors import InvariantError
from kvsim.step import StepShape


class WaveEngine(Engine):
    """An engine that steps in waves together with others."""

    def __init__(self, env: EngineClock, parts: EngineParts) -> None:
        waves = parts.waves
        if waves is None or parts.depth > 1:
            raise InvariantError("an engine of a wave has one step in flight")
        self._waves = waves
        self.dummy_ps = parts.step_time.step_ps(StepShape((), 1, 1, 1))
        super().__init__(env, parts)
        waves.engines.append(self)

    def _run(self) -> Generator[simpy.Event, None, None]:
        yield from ()  # the waves drive it

    def cut(self) -> None:
        """Start a DP wave, if none is in progress."""
        self._waves.rouse()

    @property
    def has_work(self) -> bool:
        """See `WaveMember`."""
        return bool(self.scheduler.running) or self.scheduler.waiting.head is not None

    def planned(self) -> Plan | None:
        """See `WaveMember`."""
        plan = None
        while self.has_work:
            plan = self._plan()
            if not plan.empty or not self._gave_way(plan):
                break
        if plan is not None and plan.empty:
            plan = None
        self.open_books()
        return plan

    def open_books(self) -> None:
        """See `WaveMember`."""
        self._books.open()

    def rested(self, begin_ps: int) -> None:
        """See `WaveMember`."""
        if self.now_ps > begin_ps:
            self._books.idled(begin_ps, self.now_ps)

    def stepped(self, plan: Plan, lasts_ps: int) -> None:
        """See `WaveMember`."""
        plan.first_ps = lasts_ps
        self._commit(plan, 1)
