"""Engines that step together: ranks of data-parallel attention before shared experts.

vLLM 0.33 (v1/engine/core.py, DPEngineCoreProc): every step of a wave takes as long as that of the
slowest rank. A rank without work runs a dummy step. Ranks agree on whether any has work in the
first step of a wave and then every sync_steps steps. A wave ends when no rank has any. The next
request starts a wave of all ranks.
"""

from collections.abc import Generator
from typing import Protocol

import simpy

from kvsim.engine.clock import EngineClock
from kvsim.engine.moments import PLANS, moment
from kvsim.engine.plan import Plan
from kvsim.engine.run_end import Pause


class WaveMember(Protocol):
    """One of the engines that step together. dummy_ps: how long a step without work lasts."""

    dummy_ps: int

    @property
    def has_work(self) -> bool:
        """Whether it has requests that have not left."""
        ...

    def planned(self) -> Plan | None:
        """The rank's part of the next step; None: a dummy step."""
        ...

    def open_books(self) -> None:
        """Time is about to pass."""
        ...

    def rested(self, begin_ps: int) -> None:
        """Time has passed since begin_ps, in which it computed nothing."""
        ...

    def stepped(self, plan: Plan, lasts_ps: int) -> None:
        """The step is over, which lasted as long as that of the slowest rank."""
        ...


class Waves:
    """The steps of all engines of one server. sync_steps: between two agreements.

    num_waves, num_steps: so far. num_dummy_steps: of ranks that had nothing to compute.
    """

    def __init__(self, env: EngineClock, sync_steps: int) -> None:
        self._env, self._sync_steps = env, sync_steps
        self.engines: list[WaveMember] = []
        self._wake: simpy.Event | None = None
        self.num_waves = self.num_steps = self.num_dummy_steps = 0
        env.process(self._run())

    def rouse(self) -> None:
        """Wake the ranks: a request has come."""
        if self._wake is not None and not self._wake.triggered:
            self._wake.succeed()

    def _run(self) -> Generator[simpy.Event, None, None]:
        while True:
            if not self._anyone():
                begin_ps = int(self._env.now)
                for engine in self.engines:
                    engine.open_books()
                self._wake = self._env.event()
                yield self._wake
                self._wake = None
                for engine in self.engines:
                    engine.rested(begin_ps)
            yield moment(self._env, 0, PLANS)  # after all that happens at this instant
            yield from self._wave()

    def _wave(self) -> Generator[simpy.Event, None, None]:
        self.num_waves += 1
        steps = 0
        while True:
            begin_ps = int(self._env.now)
            plans = [engine.planned() for engine in self.engines]
            if steps == 0 and not self._anyone():
                return  # the arrivals were refused
            lasts_ps = max(
                engine.dummy_ps if plan is None else plan.first_ps
                for engine, plan in zip(self.engines, plans, strict=True)
            )
            yield Pause(self._env, lasts_ps)
            for engine, plan in zip(self.engines, plans, strict=True):
                if plan is None:
                    self.num_dummy_steps += 1
                    engine.rested(begin_ps)
                else:
                    engine.stepped(plan, lasts_ps)
            steps += 1
            self.num_steps += 1
            agree = steps == 1 or steps % self._sync_steps == 0
            if agree and not self._anyone():
                return
            yield moment(self._env, 0, PLANS)

    def _anyone(self) -> bool:
        return any(engine.has_work for engine in self.engines)
