"""A folder of chunk files, used by one engine, or by all replicas of a fleet (a network file
system).
"""

from collections.abc import Callable
from heapq import heappop, heappush

from kvsim.engine.connectors.offloading.keys import ChunkKeys
from kvsim.plumbing.units import PS_PER_S, ceil_div

NEVER = 1 << 62


class Folder:
    """The files, and the jobs of all engines that read and write them.

    keys: the keys of chunks' content, if all engines share them; None: each engine makes its own.
    link_bytes_per_s: rate of all engines together, for reads and for writes each; None: only the
    threads limit them. A job occupies the link until all its bytes have moved.
    """

    def __init__(self, keys: ChunkKeys | None = None, link_bytes_per_s: int | None = None) -> None:
        self.keys = keys
        self._link_bytes_per_s = link_bytes_per_s
        self._free_ps = {True: 0, False: 0}  # of the link, for reads and for writes
        self._written_ps: dict[int, int] = {}  # by content, also of files that are being written
        self._working: list[tuple[int, int, int, Callable[[], None]]] = []
        self._num_disks = 0

    def joined(self) -> int:
        """Add an engine; returns its index."""
        self._num_disks += 1
        return self._num_disks - 1

    @property
    def num_files(self) -> int:
        """Number of files written so far."""
        return len(self._written_ps)

    def has(self, key: int, now_ps: int) -> bool:
        """Whether the file of this content is complete at now_ps."""
        return self._written_ps.get(key, NEVER) <= now_ps

    def writes(self, key: int, end_ps: int) -> None:
        """Note that the file of this content is complete at end_ps; if it is written twice, the
        first time counts.
        """
        self._written_ps.setdefault(key, end_ps)

    def lost(self, key: int, now_ps: int) -> None:
        """Note that the writer of this content's file died at now_ps; a complete file remains."""
        if not self.has(key, now_ps):
            self._written_ps.pop(key, None)

    def link_end_ps(self, num_bytes: int, now_ps: int, *, read: bool) -> int:
        """Queue num_bytes on the link at now_ps; returns when they have moved."""
        if self._link_bytes_per_s is None:
            return now_ps
        start_ps = max(now_ps, self._free_ps[read])
        self._free_ps[read] = start_ps + ceil_div(num_bytes * PS_PER_S, self._link_bytes_per_s)
        return self._free_ps[read]

    def started(self, end_ps: int, disk: int, job: int, ended: Callable[[], None]) -> None:
        """A thread of engine `disk` runs `job` until end_ps; `ended` is called then."""
        heappush(self._working, (end_ps, disk, job, ended))

    def advance(self, now_ps: int) -> None:
        """End the jobs of all engines that are due by now_ps, in the order of their ends."""
        while self._working and self._working[0][0] <= now_ps:
            heappop(self._working)[-1]()
