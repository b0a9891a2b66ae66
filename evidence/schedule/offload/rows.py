"""Rows of a schedule recorded from vLLM with OffloadingConnector."""

from typing import Any

from evidence.schedule.offload.connected_rows import KEPT_FOR, LISTS, ConnectedRows
from evidence.schedule.offload.host_rows import HostRows
from evidence.schedule.rows import Row
from evidence.schedule.ticks import TICK_PS
from kvsim.engine.connectors.connector import Connector
from kvsim.engine.connectors.offloading.connector import OffloadingConnector
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.scheduler import Scheduler


class OffloadRows(ConnectedRows):
    """Rows with the events of host memory."""

    _host: HostRows | None = None

    def watch(self, connector: Connector) -> None:
        assert isinstance(connector, OffloadingConnector)
        self._host = HostRows(connector, self.journal, by_group=self._by_group)

    def connector_counts(self) -> dict[str, Any]:
        assert self._host is not None
        return self._host.counts()

    def further(self, scheduler: Scheduler, plan: Plan, events: dict[str, list[Any]]) -> Row:
        assert self._host is not None
        self._host.name(events)
        return {}


class DiskRows(OffloadRows):
    """Rows with the events of a file system's threads.

    An event that begins when a step's output arrives is in the row of that step.
    """

    lists = (*LISTS, "promote", "asked", "tier", "tier_done")
    kept_for = (*KEPT_FOR, "promote", "asked", "tier", "tier_done")

    def complete(self, scheduler: Scheduler, plan: Plan, row: Row) -> None:
        super().complete(scheduler, plan, row)
        events = self.journal.take()
        self.further(scheduler, plan, events)
        row["tier"] = row["tier"] + events.get("tier", [])


class StagedRows(OffloadRows):
    """Rows of an engine with pipeline stages, each of which has separate wait and compute times."""

    def times(self, plan: Plan, events: dict[str, list[Any]]) -> Row:
        times: Row = {"wait": [wait_ps // TICK_PS for wait_ps in events["wait"][0]]}
        if not plan.empty:
            runs_ps = events["runs"][0]
            times["g"] = [[start // TICK_PS, end // TICK_PS] for start, end in runs_ps]
        return times
