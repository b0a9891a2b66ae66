"""Observers that write rows in the form of a recording while the engine is simulated."""

from collections import deque
from collections.abc import Callable
from typing import Any

from kvsim.engine.observer import Observer
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.request import Request

Row = dict[str, Any]


class Rows(Observer):
    """Writes one row per step.

    Requests that arrive by step number are submitted here (by_step: step number, and the requests
    before it). If nothing runs, step numbers advance to the next such arrival, without rows.

    submit: function that receives the requests; set before the engine runs. step: number of the
    next row.
    """

    submit: Callable[[Request], None]

    def __init__(self, by_step: deque[tuple[int, list[Request]]]) -> None:
        self._open: list[tuple[Plan, Row]] = []
        self.rows: list[Row] = []
        self.step = 0
        self._by_step = by_step

    def planning(self, scheduler: Scheduler, now_ps: int) -> None:
        while self._by_step and self._by_step[0][0] <= self.step:
            self._submit_next()

    def _submit_next(self) -> None:
        for request in self._by_step.popleft()[1]:
            self.submit(request)

    def idle(self, scheduler: Scheduler, now_ps: int, *, stalled: bool) -> bool:
        if self._by_step:
            self.step = max(self.step, self._by_step[0][0])
            self._submit_next()
            return True
        return False

    def append(self, row: Row, plan: Plan | None = None) -> None:
        """Write the row of this step. plan: the step's plan, at the end of which the row is
        completed.
        """
        self.rows.append(row)
        self.step += 1
        if plan is not None:
            self._open.append((plan, row))

    def finished(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        for index, (opened, row) in enumerate(self._open):
            if opened is plan:
                row["finished"] = [seq.id for seq in plan.finishing]
                memory = self.memory(scheduler)
                row.update((f"{key}_end", memory[key]) for key in memory)
                self.complete(scheduler, plan, row)
                del self._open[index]
                return

    def drop(self, row: Row) -> None:
        """Remove the row of an iteration in which nothing happened."""
        self.rows.remove(row)
        for step, each in enumerate(self.rows):
            each["step"] = step

    def close(self) -> None:
        """Write the last row."""

    def memory(self, scheduler: Scheduler) -> dict[str, int]:
        """Counts of the pool, in the engine's units."""
        raise NotImplementedError(type(self).__name__)  # every recorded engine overrides this

    def complete(self, scheduler: Scheduler, plan: Plan, row: Row) -> None:
        """Add the fields that are known only at the end of the plan."""
