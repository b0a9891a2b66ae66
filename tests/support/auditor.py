"""An observer that checks the books at every event."""

from kvsim.engine.engine import Engine
from kvsim.engine.plan import Plan
from kvsim.memory.ledger import check_sum


class Auditor:
    """Checks the books of an allocator at each event of a run."""

    engine: Engine

    def __init__(self) -> None:
        self.events = 0

    def _audit(self) -> None:
        self.events += 1
        scheduler = self.engine.scheduler
        scheduler.allocator.check()
        check_sum(scheduler.usage(), scheduler.allocator.capacity_bytes)

    def planning(self, now_ps: int) -> None:
        self._audit()

    def planned(self, plan: Plan, now_ps: int) -> None:
        self._audit()

    def finished(self, plan: Plan, now_ps: int) -> None:
        self._audit()

    def idle(self, now_ps: int, *, stalled: bool) -> bool:
        assert not stalled
        return False
