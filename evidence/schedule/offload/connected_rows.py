"""The rows of a schedule recorded from vLLM with a KV connector."""

from collections import deque
from typing import Any

from evidence.schedule.rows import Row
from evidence.schedule.ticks import TICK_PS
from evidence.schedule.vllm.rows import VllmRows
from kvsim.engine.connectors.connector import Connector
from kvsim.engine.connectors.journal import ConnectorJournal
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.continuous import ContinuousScheduler
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.request import Request

LISTS = ("lookup", "loads", "stores", "store_fail", "cpu_evicted", "flush", "xfer", "done")
KEPT_FOR = ("loads", "stores", "store_fail", "flush", "xfer", "done")
# Under data parallelism known only when all ranks have called for the forward.
OF_WORKER = ("wait", "xfer", "done")


class ConnectedRows(VllmRows):
    """Rows of iterations with tokens, a preemption, or an action of the connector.

    overlaps: whether the engine has two steps in flight; its rows then count deferred frees.
    Outputs here end at max_tokens, so there are none. lists: fields that the connector writes.
    kept_for: fields for which a row without tokens is written.
    """

    lists: tuple[str, ...] = LISTS
    kept_for: tuple[str, ...] = KEPT_FOR

    def __init__(
        self,
        by_step: deque[tuple[int, list[Request]]],
        *,
        stall_once: bool,
        by_group: bool,
        overlaps: bool,
        encodes: bool = False,
    ) -> None:
        super().__init__(by_step, stall_once=stall_once, by_group=by_group, encodes=encodes)
        self.journal = ConnectorJournal()
        self._overlaps, self._watching = overlaps, False

    def watch(self, connector: Connector) -> None:
        """Start observing the connector, just before its first action."""
        raise NotImplementedError(type(self).__name__)  # every kind overrides this

    def connector_counts(self) -> dict[str, Any]:
        """Counts of the connector that the first and the last row contain."""
        raise NotImplementedError(type(self).__name__)  # every kind overrides this

    def further(self, scheduler: Scheduler, plan: Plan, events: dict[str, list[Any]]) -> Row:
        """Convert the connector's events to the form of recordings; returns further fields of the
        row.
        """
        raise NotImplementedError(type(self).__name__)  # every kind overrides this

    def planning(self, scheduler: Scheduler, now_ps: int) -> None:
        super().planning(scheduler, now_ps)
        if not self._watching:
            assert isinstance(scheduler, ContinuousScheduler)
            self._watching = True
            connector = scheduler.connection.connector
            connector.record(self.journal)
            self.watch(connector)

    def _counts(self, scheduler: Scheduler) -> dict[str, Any]:
        assert isinstance(scheduler, ContinuousScheduler)
        deferred = {"deferred": scheduler.connection.unfreed_blocks} if self._overlaps else {}
        return self.connector_counts() | deferred

    def planned(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        assert isinstance(scheduler, ContinuousScheduler)
        events = self.journal.take()
        further = self.further(scheduler, plan, events)
        launched = "wait" in events  # a data-parallel rank launches later, see `polled`
        kept = any(events.get(key) for key in self.kept_for)
        if not launched or kept or not plan.empty or plan.preempted:
            before = len(self.rows)
            self._add_row(scheduler, plan, now_ps)
            row = self.rows[before]
            row["t1"] = now_ps // TICK_PS
            row["waiting"] = len(scheduler.connection.queues.waiting)
            row["holding"] = len(scheduler.connection.queues.holding)
            row["remote"] = [seq.id for seq in scheduler.connection.queues.remote]
            row.update({key: events.get(key, []) for key in self.lists})
            row.update(self._counts(scheduler))
            row.update(further)
            if launched:
                row.update(self.times(plan, events))

    def polled(self, scheduler: Scheduler, plan: Plan) -> None:
        row = next((row for opened, row in self._open if opened is plan), None)
        if row is not None and "wait" not in row:
            late = {key: self.journal.take_of(key) for key in OF_WORKER}
            row.update({key: row[key] + late[key] for key in OF_WORKER if key in self.lists})
            row.update(self.times(plan, late))

    def close(self) -> None:
        for row in [row for row in self.rows if not self._is_kept(row)]:
            self.drop(row)

    def _is_kept(self, row: Row) -> bool:
        """Whether the iteration of `row` scheduled or preempted a request, or has an event that the
        recording lists.
        """
        return bool(row["sched"] or row["preempted"] or any(row.get(key) for key in self.kept_for))

    def times(self, plan: Plan, events: dict[str, list[Any]]) -> Row:
        """Fields with the wait before the launch, and with the start and end of the step's
        computation.
        """
        times = {"wait": events["wait"][0] // TICK_PS}
        if not plan.empty:
            times["g0"] = (plan.start_ps + plan.stall_ps) // TICK_PS
            times["g1"] = (plan.start_ps + plan.first_ps) // TICK_PS
        return times

    def complete(self, scheduler: Scheduler, plan: Plan, row: Row) -> None:
        super().complete(scheduler, plan, row)
        row.update((f"{key}_end", value) for key, value in self._counts(scheduler).items())

    def finished(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        for opened, row in self._open:
            if opened is plan:
                row["t1"] = now_ps // TICK_PS
        super().finished(scheduler, plan, now_ps)
