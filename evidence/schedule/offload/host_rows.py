"""The part of rows that describes the host memory of a vLLM engine."""

from typing import Any

from kvsim.engine.connectors.journal import ConnectorJournal
from kvsim.engine.connectors.offloading.chunk import HostChunk
from kvsim.engine.connectors.offloading.connector import OffloadingConnector


class HostRows:
    """Names chunks in host memory by the sequence that first stored their content; with several
    block tables also by KV cache group. names: name of the content, by key.
    """

    def __init__(
        self, connector: OffloadingConnector, journal: ConnectorJournal, *, by_group: bool
    ) -> None:
        self._connector, self._journal, self._by_group = connector, journal, by_group
        self.names: dict[int, str] = {}
        connector.pool.on_evict = self._evicted

    def _evicted(self, chunk: HostChunk) -> None:
        self._journal.add("cpu_evicted", self.names[chunk.key])

    def counts(self) -> dict[str, Any]:
        """Number of slots that are allocated, written, and pinned."""
        pool = self._connector.pool
        return {"cpu": [pool.num_used, pool.writing, pool.pinned]}

    def name(self, events: dict[str, list[Any]]) -> None:
        """Replace chunks by their names in the connector's events."""
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

    def _called(self, seq_id: str, chunk: HostChunk) -> str:
        content = chunk.content
        size = self._connector.settings.groups[content.group].chunk_tokens
        name = f"{seq_id}#{content.end // size - 1}"
        return f"{name}/{content.group}" if self._by_group else name
