"""The accounting of engines that wait while steps compute: pipeline stages with copies, and
data-parallel ranks that compute together.

The engine schedules while earlier steps compute, and processes their outputs some time after their
end. So memory is recorded between successive reads of the ledger, in order of time. A token's time
is the time at which its output is processed.
"""

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kvsim.engine.books import Books
from kvsim.engine.plan import Plan
from kvsim.memory.ledger import Usage
from kvsim.memory.parts import Parts

if TYPE_CHECKING:
    from kvsim.engine.core import EngineCore

Reading = tuple[Usage, int, int, Parts]
MOST_LATE_OUTPUTS = 4096


class StagedBooks(Books):
    """Records the time up to each reading of the memory ledger.

    If the ledger is read several times in one step, only the last part counts as a step; the others
    count as time without one.
    """

    def __init__(self, core: "EngineCore") -> None:
        super().__init__(core.scheduler, core.parts.recorder)
        self._core = core
        self._booked_ps = core.now_ps  # all before is in the recorder
        self._steps: deque[Plan] = deque()  # not booked to their end
        self._came_ps: dict[int, int] = {}  # of outputs processed after their step: by its end
        self._read = self._reading()

    def planned(self, plan: Plan, token_ps: int) -> None:
        super().planned(plan, token_ps)
        if not plan.empty:
            self._steps.append(plan)

    def open(self) -> None:
        waiting = self._num_waiting
        super().open()
        found = self._reading()
        if found != self._read:
            opened, self._num_waiting = self._num_waiting, waiting
            self._book_until(self._core.now_ps)
            self._read, self._num_waiting = found, opened
        elif self._booked_ps < self._core.now_ps:  # the row goes on
            self._num_waiting = waiting

    def _reading(self) -> Reading:
        return self._usage, len(self._scheduler.running), self._saved_bytes, self._parts

    def idled(self, start_ps: int, end_ps: int) -> None:
        self._book_until(end_ps)

    def last_step(self, done: Plan, ahead: Iterable[Plan]) -> None:
        self._book_until(done.end_ps)
        begin_ps, end_ps, now = done.last_start_ps, done.end_ps, self._core.now_ps
        came_ps = self._came_ps
        done.late = {seq: came_ps.get(since, since) for seq, since in done.late.items()}
        if done.late_batch is not None:
            since_ps = done.late_batch.since_ps
            done.late_batch.since_ps = came_ps.get(since_ps, since_ps)
        begin_ps = came_ps.get(begin_ps, begin_ps)
        self._tokens(done, begin_ps, 1, now - begin_ps, 0)
        self.came(end_ps, now)

    def came(self, end_ps: int, now_ps: int) -> None:
        """Note that the output of a step that ended at end_ps is processed at now_ps."""
        if now_ps != end_ps:
            self._came_ps[end_ps] = now_ps
            if len(self._came_ps) > MOST_LATE_OUTPUTS:
                self._forget()

    def _forget(self) -> None:
        """Drop the output times at which no gap between tokens can begin any more."""
        flying = [plan for plan in self._core.in_flight if not plan.empty]
        begins = {self._booked_ps, *(plan.last_start_ps for plan in flying)}
        begins |= self._pauses.since_ps()
        for plan in flying:
            begins.update(plan.late.values())
            if plan.late_batch is not None:
                begins.add(plan.late_batch.since_ps)
        self._came_ps = {end_ps: at for end_ps, at in self._came_ps.items() if end_ps in begins}

    def spaced(self, plan: Plan, start_ps: int, step_ps: int, token_ps: int) -> None:
        if self._steps and self._steps[0] is plan:
            self._steps.popleft()
        super().spaced(plan, start_ps, step_ps, token_ps)
        self._booked_ps, self._read = start_ps + step_ps, self._reading()

    def _book_until(self, end_ps: int) -> None:
        """Record the time up to end_ps with the last reading, split at the steps that compute in
        it.
        """
        steps = self._steps
        while steps and steps[0].start_ps < end_ps:
            step = steps[0]
            self._row(step.start_ps, None)
            self._row(min(step.end_ps, end_ps), step)
            if step.end_ps > end_ps:
                return
            steps.popleft()
        self._row(end_ps, None)

    def _row(self, end_ps: int, step: Plan | None) -> None:
        """Record the time up to end_ps, in which `step` computes. Slots of later steps count as
        reserved.
        """
        start_ps = self._booked_ps
        ends = step is not None and step.end_ps == end_ps
        if end_ps <= start_ps and not ends:
            return
        usage, running, saved_bytes, parts = self._read
        for plan in self._steps:
            if plan is not step:
                usage = self._before_return(usage, plan)
        rest = running, self._num_waiting, saved_bytes, parts
        self._recorder.interval(start_ps, int(ends), end_ps - start_ps, 0, usage, None, *rest)
        if ends and step is not None and step.outside:
            self._recorder.outside_steps += 1
        self._booked_ps = end_ps
