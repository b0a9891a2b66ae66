"""The rows of a schedule recorded from vLLM with its offloading connector."""

from typing import Any

from kvsim.engine.connectors.connector import Connector
from kvsim.engine.connectors.offloading.chunk import HostChunk
from kvsim.engine.connectors.offloading.connector import OffloadingConnector
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.validate.schedule.offload.connected_rows import KEPT_FOR, LISTS, ConnectedRows
from kvsim.validate.schedule.rows import Row


class OffloadRows(ConnectedRows):
    """Chunks are called after the sequence that stored their content first."""

    _connector: OffloadingConnector | None = None

    def watch(self, connector: Connector) -> None:
        assert isinstance(connector, OffloadingConnector)
        self._connector = connector
        connector.pool.on_evict = self._evicted_from_host

    def _evicted_from_host(self, chunk: HostChunk) -> None:
        self.journal.add("cpu_evicted", self.names[chunk.key])

    def connector_counts(self) -> dict[str, Any]:
        assert self._connector is not None
        pool = self._connector.pool
        return {"cpu": [pool.num_used, pool.writing, pool.pinned]}

    def further(self, scheduler: Scheduler, plan: Plan, events: dict[str, list[Any]]) -> Row:
        for entry in events.get("stores", ()):
            for chunk in entry[2]:
                self.names.setdefault(chunk.key, self._called(entry[1], chunk))
        for key, place in (("stores", 2), ("loads", 2), ("tier", 3)):
            for entry in events.get(key, ()):
                entry[place] = [self.names[chunk.key] for chunk in entry[place]]
        for entry in events.get("promote", ()):
            entry[1] = self.names[entry[1]]
            if entry[2] is not None:
                entry[2] = [self.names[chunk.key] for chunk in entry[2]]
        return {}

    def _called(self, seq_id: str, chunk: HostChunk) -> str:
        assert self._connector is not None
        content = chunk.content
        size = self._connector.settings.groups[content.group].chunk_tokens
        name = f"{seq_id}#{content.end // size - 1}"
        return f"{name}/{content.group}" if self._by_group else name


class DiskRows(OffloadRows):
    """Rows with what threads of a file system did. A thread that begins with the output of a step
    stands in the row of that step.
    """

    lists = (*LISTS, "promote", "asked", "tier", "tier_done")
    kept_for = (*KEPT_FOR, "promote", "asked", "tier", "tier_done")

    def complete(self, scheduler: Scheduler, plan: Plan, row: Row) -> None:
        super().complete(scheduler, plan, row)
        events = self.journal.take()
        self.further(scheduler, plan, events)
        row["tier"] = row["tier"] + events.get("tier", [])
