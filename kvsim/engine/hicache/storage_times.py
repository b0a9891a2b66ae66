"""How long the operations of a storage take."""

from typing import NamedTuple, Protocol

from kvsim.plumbing.units import PS_PER_S, ceil_div


class StorageTimes(Protocol):
    """Duration of storage operations by their number of pages."""

    def query_ps(self, pages: int) -> int:
        """Time in ps of a query for `pages` pages."""

    def read_ps(self, pages: int) -> int:
        """Time in ps to read `pages` pages into host memory."""

    def store_ps(self, pages: int) -> int:
        """Time in ps to write `pages` pages."""


class StorageSpeed(NamedTuple):
    """Each call takes latency_ps plus the transfer time of its pages of page_bytes."""

    latency_ps: int
    read_bytes_per_s: int
    write_bytes_per_s: int
    page_bytes: int

    def query_ps(self, pages: int) -> int:
        """Time in ps of a query: a call without content."""
        return self.latency_ps

    def read_ps(self, pages: int) -> int:
        """A call and the content."""
        return self.latency_ps + self._ps(pages, self.read_bytes_per_s)

    def store_ps(self, pages: int) -> int:
        """The same the other way."""
        return self.latency_ps + self._ps(pages, self.write_bytes_per_s)

    def _ps(self, pages: int, bytes_per_s: int) -> int:
        return ceil_div(pages * self.page_bytes * PS_PER_S, bytes_per_s)
