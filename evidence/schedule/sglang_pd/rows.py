"""Rows of a schedule recorded from two SGLang engines; memory is counted in tokens."""

from collections import deque
from typing import Any

from evidence.schedule.rows import Row
from evidence.schedule.sglang.hicache_columns import HicacheColumns
from evidence.schedule.sglang.rows import SglangRows
from evidence.schedule.ticks import TICK_PS
from kvsim.engine.executor.hicache import hicache_of
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.engine.schedulers.sglang.scheduler import SglangScheduler
from kvsim.engine.schedulers.sglang_pd.decode import DecodeSide
from kvsim.engine.schedulers.sglang_pd.moves import Moves
from kvsim.engine.schedulers.sglang_pd.prefill import PrefillSide
from kvsim.engine.schedulers.sglang_pd.sides import side_of

NOTHING_RUNS: dict[str, Any] = {
    **dict.fromkeys(("prefill", "decode", "running", "waiting"), 0),
    **{key: [] for key in ("admitted", "sched", "first", "finished")},
}


class SideRows(SglangRows):
    """Rows of one engine: one per batch, and one for the first pass in which requests wait and
    nothing can start.

    A last row has the events after these. hicache: columns of its HiCache; None without one.
    """

    def __init__(self, hicache: HicacheColumns | None = None) -> None:
        super().__init__(deque())
        self._hicache = hicache
        self._events = 0  # of copies, since the last row
        self._stalled = False
        self._last_ps = 0  # of the last pass that moved something
        self._last: Scheduler | None = None
        self._clear()

    def _clear(self) -> None:
        self._moved: dict[str, list[Any]] = {
            key: [] for key in ("popped", "preallocated", "transferred", "resumed", "sent", "freed")
        }
        self._aborted: list[str] = []
        self._ended: list[str] = []
        self._events = 0

    def aborted(self, scheduler: Scheduler, plan: Plan) -> list[str]:
        return list(self.moves(scheduler).failed)

    def planning(self, scheduler: Scheduler, now_ps: int) -> None:
        if self._hicache is not None:
            self._hicache.planning(scheduler)
        super().planning(scheduler, now_ps)

    def memory(self, scheduler: Scheduler) -> dict[str, int]:
        found = super().memory(scheduler)
        if self._hicache is not None:
            found["host_used"] = hicache_of(scheduler).pages.tree.host.used
        return found

    def planned(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        self._last = scheduler
        if self._hicache is not None and self._hicache.num_events != self._events:
            self._last_ps, self._events = now_ps, self._hicache.num_events
        moves = self.moves(scheduler)
        for key, moved in self._moved.items():
            for each in getattr(moves, key):
                if key == "sent":
                    each = (each[0], each[1], each[2] // TICK_PS, each[3] // TICK_PS)
                moved.append(each if isinstance(each, str) else list(each))
                self._last_ps = now_ps
        if moves.failed:
            self._last_ps = now_ps
        self._before = dict(self._side(scheduler, plan))
        if not plan.empty:
            self._stalled = False
        before = len(self.rows)
        super().planned(scheduler, plan, now_ps)
        if len(self.rows) > before:
            row = self.rows[-1]
            row["t0"] = (now_ps + plan.held_ps) // TICK_PS
            row.update(self._before)
            if self._hicache is not None:
                hicache = hicache_of(scheduler)
                # Of two engines `blocked` leaves out the waits for writes; they are in t0.
                row |= self._hicache.batch(hicache, plan)
                row |= self._hicache.events(hicache) | {"blocked": 0}
            self._clear()
        elif plan.empty and not self._stalled and self.blocked(scheduler):
            assert isinstance(scheduler, SglangScheduler)
            if scheduler.in_flight:
                return  # this pass processes its outputs yet; the next one does nothing
            self._stalled = True
            self._idle_row(scheduler, now_ps + plan.held_ps, "stall", stall=1)

    def _side(self, scheduler: Scheduler, plan: Plan) -> dict[str, Any]:
        return {
            **self._moved,
            "queues": self.queues(scheduler),
            "blocked": plan.held_ps // TICK_PS,
            "waiting": self.queues(scheduler)[self.waiting_at],
            "admitted": [[seq.id, hits, int(again)] for seq, hits, again in plan.admitted],
            "aborted": self._aborted,
        }

    def _idle_row(self, scheduler: Scheduler, now_ps: int, mode: str, **more: int) -> None:
        tree = scheduler.allocator.tree  # type: ignore[attr-defined]
        row: Row = {
            **NOTHING_RUNS,
            "step": self.step,
            "t0": now_ps // TICK_PS,
            "t1": now_ps // TICK_PS,
            "mode": mode,
            **self.memory(scheduler),
            "ratio": scheduler.ratio.value,  # type: ignore[attr-defined]
            "evicted": tree.evicted - self._evicted,
            "retracted": self._retracted,
            **self._before,
            "blocked": 0,
            **more,
        }
        if self._hicache is not None:
            row |= self._hicache.events(hicache_of(scheduler)) | {"blocked": 0}
        self._evicted, self._retracted = tree.evicted, []
        self._clear()
        self.rows.append(row)

    def end(self) -> None:
        """Write a row with the transfers since the previous row."""
        copied = self._hicache is not None and self._hicache.num_events > 0
        if self._last is not None and (any(self._moved.values()) or self._aborted or copied):
            self._idle_row(self._last, self._last_ps, "none")

    waiting_at: int  # index of the requests that wait to run, in `queues`

    def moves(self, scheduler: Scheduler) -> Moves:
        """The events since the last pass."""
        raise NotImplementedError(type(self).__name__)

    def queues(self, scheduler: Scheduler) -> list[int]:
        """Number of waiting requests in each queue."""
        raise NotImplementedError(type(self).__name__)

    def blocked(self, scheduler: Scheduler) -> bool:
        """Whether a request waits for this engine, not for the other."""
        raise NotImplementedError(type(self).__name__)


class PrefillRows(SideRows):
    """Rows of the prefill engine."""

    waiting_at = 1

    def moves(self, scheduler: Scheduler) -> Moves:
        return _prefill(scheduler).moves

    def queues(self, scheduler: Scheduler) -> list[int]:
        side = _prefill(scheduler)
        return [len(side.bootstrapping), side.num_waiting, len(side.sending)]

    def blocked(self, scheduler: Scheduler) -> bool:
        return len(scheduler.waiting) > 0


class DecodeRows(SideRows):
    """Rows of the decode engine."""

    waiting_at = 2

    def moves(self, scheduler: Scheduler) -> Moves:
        return _decode(scheduler).moves

    def queues(self, scheduler: Scheduler) -> list[int]:
        queue = _decode(scheduler).queue
        waiting = queue.preallocating, queue.transferring, queue.ready, queue.retracted
        return [len(each) for each in waiting]

    def blocked(self, scheduler: Scheduler) -> bool:
        preallocating, _, ready, retracted = self.queues(scheduler)
        return preallocating + ready + retracted > 0


def _prefill(scheduler: Scheduler) -> PrefillSide:
    side = side_of(scheduler)
    assert isinstance(side, PrefillSide)
    return side


def _decode(scheduler: Scheduler) -> DecodeSide:
    side = side_of(scheduler)
    assert isinstance(side, DecodeSide)
    return side
