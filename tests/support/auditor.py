"""An observer that checks the books at every event."""

from kvsim.engine.observer import Observer
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.memory.ledger import check_sum


class Auditor(Observer):
    """Checks the books of an allocator at each event of a run."""

    def __init__(self) -> None:
        self.events = 0

    def _audit(self, scheduler: Scheduler) -> None:
        self.events += 1
        scheduler.allocator.check()
        check_sum(scheduler.usage(), scheduler.allocator.capacity_bytes)

    def planning(self, scheduler: Scheduler, now_ps: int) -> None:
        self._audit(scheduler)

    def planned(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        self._audit(scheduler)

    def finished(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        self._audit(scheduler)
