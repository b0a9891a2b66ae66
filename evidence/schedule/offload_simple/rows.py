"""The rows of a schedule recorded from vLLM with its Simple connector."""

from typing import Any

from evidence.schedule.offload.connected_rows import ConnectedRows
from evidence.schedule.rows import Row
from kvsim.engine.connectors.connector import Connector
from kvsim.engine.connectors.simple.connector import SimpleConnector
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.continuous import ContinuousScheduler
from kvsim.engine.schedulers.scheduler import Scheduler


class SimpleRows(ConnectedRows):
    """Blocks are called after the request that had their content first. names: of content, by its
    key.
    """

    names: dict[int, str]
    _simple: SimpleConnector | None = None

    def watch(self, connector: Connector) -> None:
        assert isinstance(connector, SimpleConnector)
        self._simple, self.names = connector, {}

    def connector_counts(self) -> dict[str, Any]:
        assert self._simple is not None
        host = self._simple.host
        return {"cpu": [host.num_usable - host.num_free, host.num_known]}

    def further(self, scheduler: Scheduler, plan: Plan, events: dict[str, list[Any]]) -> Row:
        assert isinstance(scheduler, ContinuousScheduler)
        assert self._simple is not None
        for seq in events.pop("asking", ()):
            size = self._simple.settings.block_tokens
            keys = scheduler.connection.device.keys_of(seq, 0, seq.final_tokens // size)
            for place, key in enumerate(keys):
                self.names.setdefault(key, f"{seq.id}#{place}")
        for entry in events.get("stores", ()):
            entry[1] = [self.names[key] for key in entry[1]]
        for entry in events.get("loads", ()):
            entry[2] = [self.names[key] for key in entry[2]]
        evicted = [self.names[key] for key in events.get("cpu_evicted", ())]
        return {
            "pinned": self._simple.num_held,
            "flush": int(bool(events.get("flush"))),
            "cpu_evicted": evicted,
        }
