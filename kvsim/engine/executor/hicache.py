"""Executor of a device with SGLang's hierarchical cache: copies run concurrently with the steps."""

from collections.abc import Iterable

import simpy

from kvsim.engine.connectors.totals import RunTotals
from kvsim.engine.core import EngineCore
from kvsim.engine.engine import Executor
from kvsim.engine.hicache.hicache import Hicache
from kvsim.engine.plan import Plan
from kvsim.engine.run_end import Wake
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.engine.schedulers.sglang.scheduler import SglangScheduler
from kvsim.engine.tier_books import TierBooks
from kvsim.plumbing.errors import InvariantError


def hicache_of(scheduler: Scheduler) -> Hicache:
    """The hierarchical cache of an SGLang scheduler."""
    found = scheduler.hicache if isinstance(scheduler, SglangScheduler) else None
    if not isinstance(found, Hicache):
        raise InvariantError(f"{type(scheduler).__name__} holds no hierarchical cache")
    return found


class HicacheExecutor(Executor):
    """Each layer of a step waits until its KV is loaded. While nothing can run, the engine
    schedules again at the end of each copy.
    """

    def __init__(self, core: EngineCore) -> None:
        super().__init__(core)
        self._hicache = hicache_of(core.scheduler)
        self._ran: Plan | None = None  # since the last schedule()
        self._hicache.tier_books = TierBooks(core.parts.recorder, core.parts.step_time)

    def begin(self) -> bool:
        self._hicache.now_ps = self._core.now_ps
        if self._ran is not None:
            self._hicache.copies.gpu_ps = self._ran.end_ps
            self._ran = None
        return True

    def launch(self, plan: Plan) -> None:
        super().launch(plan)
        if plan.empty:
            return
        copies, stall_ps = self._hicache.copies, plan.stall_ps
        waited_ps = copies.compute(plan.start_ps + stall_ps, plan.first_ps - stall_ps)
        if waited_ps:
            self._hicache.layers_waited(plan, waited_ps)
            plan.stalls.append((waited_ps, self._core.scheduler.usage()))
            plan.first_ps += waited_ps
        copies.gpu_ps = plan.start_ps + plan.first_ps

    def repeatable(self, plan: Plan) -> int:
        """Number of further equal steps, up to the first scheduling pass that finds a finished
        copy.
        """
        more = super().repeatable(plan)
        end_ps = self._hicache.next_ps
        if more and end_ps is not None:
            steps = plan.steps_by(end_ps - plan.start_ps, more + 1)
            more = max(0, min(more, steps - 1 + self._core.steps_ahead))
        return more

    def ran(self, plan: Plan) -> None:
        self._ran = plan

    def rest(self, plan: Plan) -> Iterable[simpy.Event]:
        core, scheduler, now = self._core, self._core.scheduler, self._core.now_ps
        next_ps = now + plan.held_ps if plan.held_ps else self._hicache.next_ps
        if next_ps is None:
            yield from super().rest(plan)
            return
        core.in_flight.clear()
        stalled = scheduler.waiting.head is not None
        if core.observer is None or not core.observer.idle(scheduler, now, stalled=stalled):
            yield from core.sleep(Wake(core.env, next_ps - now))
        yield from core.settle()

    def close(self) -> None:
        if self._hicache.storage is not None:
            self._hicache.storage.close()

    def tier_totals(self) -> RunTotals:
        return self._hicache.totals
