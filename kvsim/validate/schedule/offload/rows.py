"""The rows of a schedule recorded from vLLM with an offloading connector."""

from collections import deque
from typing import Any

from kvsim.engine.connectors.journal import ConnectorJournal
from kvsim.engine.connectors.offloading.chunk import HostChunk
from kvsim.engine.connectors.offloading.connector import OffloadingConnector
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.connected import ConnectedScheduler
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.request import Request
from kvsim.validate.schedule.rows import Row
from kvsim.validate.schedule.ticks import TICK_PS
from kvsim.validate.schedule.vllm.rows import VllmRows

LISTS = ("lookup", "loads", "stores", "store_fail", "cpu_evicted", "flush", "xfer", "done")
KEPT_FOR = ("loads", "stores", "store_fail", "flush", "xfer", "done")


class OffloadRows(VllmRows):
    """Rows of iterations with tokens, a preemption, or something that the connector did.

    overlaps: of an engine with two steps in flight. Its rows count frees that were put off; outputs
    here end at max_tokens, so that there are none.
    """

    def __init__(
        self,
        by_step: deque[tuple[int, list[Request]]],
        *,
        stall_once: bool,
        by_group: bool,
        overlaps: bool,
    ) -> None:
        super().__init__(by_step, stall_once=stall_once, by_group=by_group)
        self.journal = ConnectorJournal()
        self._names: dict[int, str] = {}
        self._connector: OffloadingConnector | None = None
        self._overlaps = overlaps

    def planning(self, scheduler: Scheduler, now_ps: int) -> None:
        super().planning(scheduler, now_ps)
        if self._connector is None:
            assert isinstance(scheduler, ConnectedScheduler)
            connector = scheduler.connector
            assert isinstance(connector, OffloadingConnector)
            self._connector = connector
            connector.record(self.journal)
            connector.pool.on_evict = self._evicted_from_host

    def _evicted_from_host(self, chunk: HostChunk) -> None:
        self.journal.add("cpu_evicted", self._names[chunk.key])

    def planned(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        assert isinstance(scheduler, ConnectedScheduler)
        told = self.journal.take()
        self._name(told)
        if not plan.empty or plan.preempted or any(told.get(key) for key in self.kept_for):
            before = len(self.rows)
            self._add_row(scheduler, plan, now_ps)
            row = self.rows[before]
            row["t1"] = now_ps // TICK_PS
            row["waiting"] = len(scheduler.queues.waiting)
            row["holding"] = len(scheduler.queues.holding)
            row["remote"] = [seq.id for seq in scheduler.queues.remote]
            row.update({key: told.get(key, []) for key in self.lists})
            row.update(self.connector_counts())
            row["wait"] = told["wait"][0] // TICK_PS
            if not plan.empty:
                begin_ps = plan.start_ps + plan.stall_ps
                row["g0"] = begin_ps // TICK_PS
                row["g1"] = (plan.start_ps + plan.first_ps) // TICK_PS

    lists: tuple[str, ...] = LISTS
    kept_for: tuple[str, ...] = KEPT_FOR

    def connector_counts(self) -> dict[str, Any]:
        """The counts of host memory."""
        assert self._connector is not None
        pool = self._connector.pool
        counts: dict[str, Any] = {"cpu": [pool.num_used, pool.writing, pool.pinned]}
        return counts | {"deferred": 0} if self._overlaps else counts

    def complete(self, scheduler: Scheduler, plan: Plan, row: Row) -> None:
        super().complete(scheduler, plan, row)
        row.update((f"{key}_end", value) for key, value in self.connector_counts().items())

    def finished(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        for opened, row in self._open:
            if opened is plan:
                row["t1"] = now_ps // TICK_PS
        super().finished(scheduler, plan, now_ps)

    def _name(self, told: dict[str, list[Any]]) -> None:
        """Chunks are called after the sequence that stored their content first."""
        for entry in told.get("stores", ()):
            for chunk in entry[2]:
                self._names.setdefault(chunk.key, self._called(entry[1], chunk))
        for key, place in (("stores", 2), ("loads", 2), ("tier", 3)):
            for entry in told.get(key, ()):
                entry[place] = [self._names[chunk.key] for chunk in entry[place]]
        for entry in told.get("promote", ()):
            entry[1] = self._names[entry[1]]
            if entry[2] is not None:
                entry[2] = [self._names[chunk.key] for chunk in entry[2]]

    def _called(self, seq_id: str, chunk: HostChunk) -> str:
        assert self._connector is not None
        name = f"{seq_id}#{chunk.end - 1}"
        keys = self._connector.keys
        return f"{name}/{keys.group_of(chunk.key)}" if self._by_group else name


class DiskRows(OffloadRows):
    """Rows with what threads of a file system did. A thread that begins with the output of a step
    stands in the row of that step.
    """

    lists = (*LISTS, "promote", "asked", "tier", "tier_done")
    kept_for = (*KEPT_FOR, "promote", "asked", "tier", "tier_done")

    def complete(self, scheduler: Scheduler, plan: Plan, row: Row) -> None:
        super().complete(scheduler, plan, row)
        told = self.journal.take()
        self._name(told)
        row["tier"] = row["tier"] + told.get("tier", [])
