"""The rows of a schedule recorded from SGLang with its hierarchical cache."""

from collections import deque
from typing import Any

from evidence.schedule.rows import Row
from evidence.schedule.sglang.rows import SglangRows
from evidence.schedule.ticks import TICK_PS
from kvsim.engine.connectors.journal import ConnectorJournal
from kvsim.engine.hicache.hicache import Hicache
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.engine.schedulers.sglang.scheduler import SglangScheduler
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
        self._scheduler: SglangScheduler | None = None
        self._stalled = False

    def planning(self, scheduler: Scheduler, now_ps: int) -> None:
        assert isinstance(scheduler, SglangScheduler)
        self._scheduler = scheduler
        _hicache(scheduler).copies.journal = self._journal
        super().planning(scheduler, now_ps)

    def planned(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        hicache = _hicache(scheduler)
        super().planned(scheduler, plan, hicache.copies.now_ps)
        if plan.empty:
            return
        self._stalled = False
        row, copies = self.rows[-1], hicache.copies
        admitted = []
        for seq, hits, again in plan.admitted:
            slots = hicache.pages.slots(seq)
            entry = [seq.id, hits, int(again), slots.loaded, slots.promised]
            if "l3" in self._fields:
                entry.append(self._brought(hicache, seq))
            admitted.append(entry)
        row["admitted"] = admitted
        row["dt"] = (plan.first_ps - plan.stall_ps) // TICK_PS
        row["wait"] = copies.waited_ps // TICK_PS
        self._since(hicache, row)

    @staticmethod
    def _brought(hicache: Hicache, seq: Sequence) -> int:
        """Tokens that the storage brought for a request."""
        return hicache.storage.brought.get(seq, 0) if hicache.storage is not None else 0

    def _since(self, hicache: Hicache, row: Row) -> None:
        """Add the events since the previous row."""
        copies, tree = hicache.copies, hicache.pages.tree
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
        host = _hicache(scheduler).pages.tree.host
        return {**super().memory(scheduler), "host_used": host.used}

    def idle(self, scheduler: Scheduler, now_ps: int, *, stalled: bool) -> bool:
        assert isinstance(scheduler, SglangScheduler)
        if stalled and not self._stalled:
            self._stalled = True
            row = self._bare(scheduler, "stall")
            row["stall"] = 1
            self.rows.append(row)
        return super().idle(scheduler, now_ps, stalled=stalled)

    def _bare(self, scheduler: SglangScheduler, mode: str) -> Row:
        """A row without a batch."""
        hicache = _hicache(scheduler)
        tree, now_ps = hicache.pages.tree, hicache.copies.now_ps
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
        self._since(hicache, row)
        return row

    def close(self) -> None:
        """Write the events after the last batch."""
        scheduler = self._scheduler
        if scheduler is not None:
            row = self._bare(scheduler, "none")
            if any(row[field] for field in self._fields):
                self.rows.append(row)


def _in_ticks(entry: list[Any], places: tuple[int, ...]) -> list[Any]:
    """An entry of the journal with its times, at these places, in ticks."""
    return [value // TICK_PS if at in places else value for at, value in enumerate(entry)]


def _hicache(scheduler: Scheduler) -> Hicache:
    """The hierarchical cache of a recorded engine."""
    assert isinstance(scheduler, SglangScheduler)
    assert isinstance(scheduler.hicache, Hicache)
    return scheduler.hicache
