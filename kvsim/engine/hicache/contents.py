"""Contents of an L3 storage, used by one engine, or shared by all replicas of a fleet."""

from typing import Protocol

from kvsim.engine.hicache.servers import StorageServer
from kvsim.memory.radix.hicache.pages import PageKeys


class ServedStorage(Protocol):
    """One engine's part of a storage: the servers that work for it."""

    @property
    def servers(self) -> tuple[StorageServer, ...]:
        """The servers that query, read and write for this engine alone."""


class StorageContents:
    """Keys of the pages in a storage; all engines give a page the same key. stored: keys of written
    pages.
    """

    def __init__(self, page_tokens: int) -> None:
        self.keys = PageKeys(page_tokens)
        self.stored: set[int] = set()
        self._engines: list[ServedStorage] = []

    def joined(self, engine: ServedStorage) -> None:
        """Add an engine that uses the storage."""
        self._engines.append(engine)

    def left(self, engine: ServedStorage) -> None:
        """Remove an engine that has died: its unfinished operations are lost."""
        self._engines.remove(engine)

    def serve(self, now_ps: int) -> None:
        """Run the servers of all engines up to now_ps, in the order in which their batches end."""
        servers = [server for engine in self._engines for server in engine.servers]
        for server in servers:
            server.start()
        while True:
            due = [each for each in servers if each.end_ps is not None and each.end_ps <= now_ps]
            if not due:
                return
            min(due, key=lambda server: server.end_ps or 0).step()
