"""The engine with SGLang's hierarchical cache: copies run concurrently with the steps, on the same
clock.
"""

from collections.abc import Generator

import simpy

from kvsim.engine.clock import EngineClock
from kvsim.engine.connectors.totals import RunTotals
from kvsim.engine.engine import Engine
from kvsim.engine.hicache.hicache import Hicache
from kvsim.engine.parts import EngineParts
from kvsim.engine.plan import Plan
from kvsim.engine.run_end import Wake
from kvsim.engine.schedulers.sglang.scheduler import SglangScheduler
from kvsim.engine.tier_books import TierBooks


class HicacheEngine(Engine):
    """The engine of a scheduler with such a cache. While nothing can run it looks again at each end
    of a copy.
    """

    def __init__(self, env: EngineClock, parts: EngineParts) -> None:
        super().__init__(env, parts)
        self.hierarchical.tier_books = TierBooks(parts.recorder, parts.step_time)

    @property
    def hierarchical(self) -> Hicache:
        """The scheduler's hierarchical cache."""
        assert isinstance(self.scheduler, SglangScheduler)
        assert isinstance(self.scheduler.hicache, Hicache)
        return self.scheduler.hicache

    def tier_totals(self) -> RunTotals:
        return self.hierarchical.totals

    def _run(self) -> Generator[simpy.Event, None, None]:
        yield from super()._run()
        if self.hierarchical.storage is not None:
            self.hierarchical.storage.close()

    def _plan(self) -> Plan:
        self.hierarchical.now_ps = self.now_ps
        return super()._plan()

    def _time(self, plan: Plan) -> None:
        """The step waits for the layers that it loads."""
        super()._time(plan)
        copies, stall_ps = self.hierarchical.copies, plan.stall_ps
        waited_ps = copies.compute(plan.start_ps + stall_ps, plan.first_ps - stall_ps)
        if waited_ps:
            self.hierarchical.layers_waited(plan, waited_ps)
            plan.stalls.append((waited_ps, self.scheduler.usage()))
            plan.first_ps += waited_ps
        copies.gpu_ps = plan.start_ps + plan.first_ps

    def _repeatable(self, plan: Plan) -> int:
        """Steps follow up to the first pass that takes note of a copy."""
        more = super()._repeatable(plan)
        end_ps = self.hierarchical.next_ps
        if more and end_ps is not None:
            steps = plan.steps_by(end_ps - plan.start_ps, more + 1)
            more = max(0, min(more, steps - 1 + self._behind))
        return more

    def _commit(self, plan: Plan, steps: int) -> None:
        super()._commit(plan, steps)
        if steps > 1:
            self.hierarchical.copies.gpu_ps = plan.end_ps

    def _idle(self, plan: Plan) -> Generator[simpy.Event, None, None]:
        scheduler, now = self.scheduler, self.now_ps
        next_ps = now + plan.held_ps if plan.held_ps else self.hierarchical.next_ps
        if next_ps is None:
            yield from super()._idle(plan)
            return
        stalled = scheduler.waiting.head is not None
        if self._observer is not None and self._observer.idle(scheduler, now, stalled=stalled):
            return
        self._books.open()
        self._wake = Wake(self.env, next_ps - now)
        yield self._wake
        self._wake = None
        self._books.idled(now, self.now_ps)
