"""Contents of an L3 storage: of one engine, or shared by all replicas of a fleet."""

from typing import Protocol

from kvsim.engine.hicache.servers import StorageServer
from kvsim.memory.radix.hicache.pages import PageKeys


class ServedStorage(Protocol):
    """The part of an engine in a storage."""

    @property
    def servers(self) -> tuple[StorageServer, ...]:
        """The servers that ask, read and write for this engine alone."""


class StorageContents:
    """Pages by the keys that all engines give them. stored: keys of pages that are written."""

    def __init__(self, page_tokens: int) -> None:
        self.keys = PageKeys(page_tokens)
        self.stored: set[int] = set()
        self._engines: list[ServedStorage] = []

    def joined(self, engine: ServedStorage) -> None:
        """One more engine uses the storage."""
        self._engines.append(engine)

    def left(self, engine: ServedStorage) -> None:
        """An engine has died: what its servers have not finished is lost."""
        self._engines.remove(engine)

    def serve(self, now_ps: int) -> None:
        """The servers of all engines work up to now, in the order in which their batches end."""
        servers = [server for engine in self._engines for server in engine.servers]
        for server in servers:
            server.start()
        while True:
            due = [each for each in servers if each.end_ps is not None and each.end_ps <= now_ps]
            if not due:
                return
            min(due, key=lambda server: server.end_ps or 0).step()
