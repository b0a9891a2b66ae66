"""Rows of vLLM data-parallel ranks that compute each forward together."""

from evidence.schedule.rows import Row, Rows
from evidence.schedule.ticks import TICK_PS
from kvsim.engine.observer import Observer
from kvsim.engine.plan import UNBOUNDED, Plan
from kvsim.engine.ranks import Ranks
from kvsim.engine.schedulers.scheduler import Scheduler


class RankRows(Observer):
    """Adds to each row of one rank the number of its forward, and the start and end of that
    forward.
    """

    def __init__(self, rows: Rows, ranks: Ranks) -> None:
        self._inner, self._ranks = rows, ranks
        self._of: dict[Plan, Row] = {}

    def rows(self) -> list[Row]:
        """The rows of the whole run."""
        self._inner.close()
        return self._inner.rows

    def planning(self, scheduler: Scheduler, now_ps: int) -> None:
        self._inner.planning(scheduler, now_ps)

    def planned(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        before = len(self._inner.rows)
        self._inner.planned(scheduler, plan, now_ps)
        if len(self._inner.rows) == before:
            return
        row = self._of[plan] = self._inner.rows[before]
        row["t0"] = tick_of(now_ps, first=before == 0)
        if plan.start_ps < UNBOUNDED:
            self._compute(plan, row, len(self._forwards) - 1)

    def polled(self, scheduler: Scheduler, plan: Plan) -> None:
        if plan in self._of:
            self._inner.polled(scheduler, plan)
            self._compute(plan, self._of[plan], len(self._forwards))

    @property
    def _forwards(self) -> list[object]:
        return list(self._ranks.forwards or ())

    def _compute(self, plan: Plan, row: Row, forward: int) -> None:
        if not plan.empty:
            row["forward"] = forward
            row["g0"] = (plan.start_ps + plan.stall_ps) // TICK_PS
            row["g1"] = (plan.start_ps + plan.first_ps) // TICK_PS

    def finished(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        if plan in self._of:
            self._of.pop(plan)["t1"] = now_ps // TICK_PS
        self._inner.finished(scheduler, plan, now_ps)


def forward_rows(ranks: Ranks) -> list[Row]:
    """The forwards of all ranks as rows in the form of a recording."""
    return [
        {
            "side": "forwards",
            "forward": [
                forward.wave,
                tick_of(forward.launch_ps, first=number == 0),
                forward.start_ps // TICK_PS,
                forward.end_ps // TICK_PS,
                [int(real) for real in forward.real],
            ],
        }
        for number, forward in enumerate(ranks.forwards or ())
    ]


def tick_of(now_ps: int, *, first: bool) -> int:
    """The tick in which an iteration begins. In recordings only the first iteration has tick 0;
    later ones that begin in it have tick 1.
    """
    return now_ps // TICK_PS or int(not first)
