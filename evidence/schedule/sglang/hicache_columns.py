"""Columns for HiCache in the rows recorded from SGLang."""

from typing import Any

from evidence.schedule.rows import Row
from evidence.schedule.ticks import TICK_PS
from kvsim.engine.connectors.journal import ConnectorJournal
from kvsim.engine.executor.hicache import hicache_of
from kvsim.engine.hicache.hicache import Hicache
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.scheduler import Scheduler

TIMES = {"writes": (0, 1, 2), "loads": (0, 1, 2), "acks": (), "l3": (1,)}


class HicacheColumns:
    """Writes the columns of one engine. storage: whether there is an L3 storage. fields: columns of
    events.
    """

    def __init__(self, *, storage: bool = False) -> None:
        self.fields = ("writes", "loads", "acks", *(("l3",) if storage else ()))
        self._journal = ConnectorJournal()
        self._dropped = self._host_evicted = self._blocked_ps = 0

    @property
    def num_events(self) -> int:
        """Number of events since the previous row."""
        return len(self._journal)

    def planning(self, scheduler: Scheduler) -> None:
        """Start recording the events of a scheduler pass."""
        hicache_of(scheduler).copies.journal = self._journal

    def batch(self, hicache: Hicache, plan: Plan) -> Row:
        """The columns of a row with a batch, without events."""
        admitted = []
        for seq, hits, again in plan.admitted:
            slots = hicache.pages.slots(seq)
            entry = [seq.id, hits, int(again), slots.loaded, slots.promised]
            if "l3" in self.fields:
                storage = hicache.storage
                entry.append(storage.brought.get(seq, 0) if storage is not None else 0)
            admitted.append(entry)
        return {
            "admitted": admitted,
            "dt": (plan.first_ps - plan.stall_ps) // TICK_PS,
            "wait": hicache.copies.waited_ps // TICK_PS,
        }

    def events(self, hicache: Hicache) -> Row:
        """The columns with the events since the previous row."""
        copies, tree = hicache.copies, hicache.pages.tree
        row: Row = {
            "inflight": list(copies.in_flight),
            "dropped": tree.dropped - self._dropped,
            "host_evicted": tree.host.evicted - self._host_evicted,
            "blocked": (copies.blocked_total_ps - self._blocked_ps) // TICK_PS,
        }
        self._dropped, self._host_evicted = tree.dropped, tree.host.evicted
        self._blocked_ps = copies.blocked_total_ps
        entries = self._journal.take()
        for field in self.fields:
            row[field] = [_in_ticks(entry, TIMES[field]) for entry in entries.get(field, [])]
        return row


def _in_ticks(entry: list[Any], places: tuple[int, ...]) -> list[Any]:
    """An event with its times, at the indices `places`, converted to ticks."""
    return [value // TICK_PS if at in places else value for at, value in enumerate(entry)]
