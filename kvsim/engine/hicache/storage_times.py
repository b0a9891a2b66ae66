"""Durations of storage operations."""

from typing import NamedTuple, Protocol

from kvsim.plumbing.units import PS_PER_S, ceil_div


class StorageTimes(Protocol):
    """Duration of each storage operation by its number of pages."""

    def query_ps(self, pages: int) -> int:
        """Time in ps of a query for `pages` pages."""

    def read_ps(self, pages: int) -> int:
        """Time in ps to read `pages` pages into host memory."""

    def store_ps(self, pages: int) -> int:
        """Time in ps to write `pages` pages."""


class StorageSpeed(NamedTuple):
    """Durations by rate: each call takes latency_ps plus the transfer of its pages of page_bytes
    bytes.
    """

    latency_ps: int
    read_bytes_per_s: int
    write_bytes_per_s: int
    page_bytes: int

    def query_ps(self, pages: int) -> int:
        """Time in ps of a query: the latency alone."""
        return self.latency_ps

    def read_ps(self, pages: int) -> int:
        """Time in ps to read `pages` pages: latency and transfer."""
        return self.latency_ps + self._ps(pages, self.read_bytes_per_s)

    def store_ps(self, pages: int) -> int:
        """Time in ps to write `pages` pages: latency and transfer."""
        return self.latency_ps + self._ps(pages, self.write_bytes_per_s)

    def _ps(self, pages: int, bytes_per_s: int) -> int:
        return ceil_div(pages * self.page_bytes * PS_PER_S, bytes_per_s)
