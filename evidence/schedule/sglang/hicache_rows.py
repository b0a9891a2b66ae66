"""The rows of a schedule recorded from SGLang with its hierarchical cache."""

from collections import deque
from typing import Any

from evidence.schedule.rows import Row
from evidence.schedule.sglang.rows import SglangRows
from evidence.schedule.ticks import TICK_PS
from kvsim.engine.connectors.journal import ConnectorJournal
from kvsim.engine.hicache.scheduler import HicacheScheduler
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.request import Request
from kvsim.sequence import Sequence

TIMES = {"writes": (0, 1, 2), "loads": (0, 1, 2), "acks": (), "l3": (1,)}


class HicacheRows(SglangRows):
    """One row for every batch that ran, and one where something waited and nothing could run.

    The last one has the events after the last batch. storage: there is an L3 storage.
    """

    def __init__(self, by_step: deque[tuple[int, list[Request]]], *, storage: bool = False) -> None:
        super().__init__(by_step)
        self._fields = ("writes", "loads", "acks", *(("l3",) if storage else ()))
        self._journal = ConnectorJournal()
        self._dropped = self._host_evicted = self._blocked_ps = 0
        self._scheduler: HicacheScheduler | None = None
        self._stalled = False

    def planning(self, scheduler: Scheduler, now_ps: int) -> None:
        assert isinstance(scheduler, HicacheScheduler)
        self._scheduler = scheduler
        scheduler.copies.journal = self._journal
        super().planning(scheduler, now_ps)

    def planned(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        assert isinstance(scheduler, HicacheScheduler)
        super().planned(scheduler, plan, scheduler.copies.now_ps)
        if plan.empty:
            return
        self._stalled = False
        row, copies = self.rows[-1], scheduler.copies
        admitted = []
        for seq, hits, again in plan.admitted:
            slots = scheduler.pages.slots(seq)
            entry = [seq.id, hits, int(again), slots.loaded, slots.promised]
            if "l3" in self._fields:
                entry.append(self._brought(scheduler, seq))
            admitted.append(entry)
        row["admitted"] = admitted
        row["dt"] = (plan.first_ps - plan.stall_ps) // TICK_PS
        row["wait"] = copies.waited_ps // TICK_PS
        self._since(scheduler, row)

    @staticmethod
    def _brought(scheduler: HicacheScheduler, seq: Sequence) -> int:
        """Tokens that the storage brought for a request."""
        return scheduler.storage.brought.get(seq, 0) if scheduler.storage is not None else 0

    def _since(self, scheduler: HicacheScheduler, row: Row) -> None:
        """Add the events since the previous row."""
        copies, tree = scheduler.copies, scheduler.pages.tree
        row["inflight"] = list(copies.in_flight)
        row["dropped"] = tree.dropped - self._dropped
        row["host_evicted"] = tree.host.evicted - self._host_evicted
        row["blocked"] = (copies.blocked_total_ps - self._blocked_ps) // TICK_PS
        self._dropped, self._host_evicted = tree.dropped, tree.host.evicted
        self._blocked_ps = copies.blocked_total_ps
        entries = self._journal.take()
        for field in self._fields:
            row[field] = [_in_ticks(entry, TIMES[field]) for entry in entries.get(field, [])]

    def memory(self, scheduler: Scheduler) -> dict[str, int]:
        assert isinstance(scheduler, HicacheScheduler)
        return {**super().memory(scheduler), "host_used": scheduler.pages.tree.host.used}

    def idle(self, scheduler: Scheduler, now_ps: int, *, stalled: bool) -> bool:
        assert isinstance(scheduler, HicacheScheduler)
        if stalled and not self._stalled:
            self._stalled = True
            row = self._bare(scheduler, "stall", scheduler.copies.now_ps)
            row["stall"] = 1
            self.rows.append(row)
        return super().idle(scheduler, now_ps, stalled=stalled)

    def _bare(self, scheduler: HicacheScheduler, mode: str, now_ps: int) -> Row:
        """A row without a batch."""
        tree = scheduler.pages.tree
        row: Row = {
            "step": self.step,
            "t0": now_ps // TICK_PS,
            "t1": now_ps // TICK_PS,
            "mode": mode,
            "prefill": 0,
            "decode": 0,
            "running": len(scheduler.running),
            "waiting": len(scheduler.waiting),
            **self.memory(scheduler),
            "ratio": scheduler.ratio.value,
            "admitted": [],
            "sched": [],
            "first": [],
            "finished": [],
            "evicted": tree.evicted - self._evicted,
            "retracted": self._retracted,
            "aborted": self._aborted,
        }
        self._evicted, self._retracted, self._aborted = tree.evicted, [], []
        self._since(scheduler, row)
        return row

    def close(self) -> None:
        """Write the events after the last batch."""
        scheduler = self._scheduler
        if scheduler is not None:
            row = self._bare(scheduler, "none", scheduler.copies.now_ps)
            if any(row[field] for field in self._fields):
                self.rows.append(row)


def _in_ticks(entry: list[Any], places: tuple[int, ...]) -> list[Any]:
    """An entry of the journal with its times, at these places, in ticks."""
    return [value // TICK_PS if at in places else value for at, value in enumerate(entry)]
