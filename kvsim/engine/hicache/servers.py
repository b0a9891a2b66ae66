"""Servers of a storage: each runs one operation at a time, first come, first served."""

from abc import abstractmethod
from collections import deque


class StorageOperation:
    """An operation of a storage server, in one or more batches of pages.

    pages: number of pages in the current batch.
    """

    pages = 0

    @abstractmethod
    def next_ps(self, start_ps: int) -> int | None:
        """Duration of the next batch, which would start at start_ps; None: there is none."""

    @abstractmethod
    def done(self, end_ps: int) -> None:
        """End the current batch at end_ps."""


class StorageServer:
    """A server with a queue of operations. end_ps: when the current batch ends; None: the server is
    idle.

    busy_ps: total duration of batches so far. pages: total number of their pages.
    """

    def __init__(self) -> None:
        self._queue: deque[tuple[int, StorageOperation]] = deque()
        self._current: StorageOperation | None = None
        self.end_ps: int | None = None
        self.busy_ps = self.pages = self._free_ps = 0

    def submit(self, now_ps: int, operation: StorageOperation) -> None:
        """Queue `operation` at now_ps."""
        self._queue.append((now_ps, operation))

    def start(self) -> None:
        """Start the next queued operation if the server is idle; called at the end of a scheduling
        pass.
        """
        if self._current is None and self._queue:
            self._turn(self._free_ps)

    def step(self) -> None:
        """Complete the current I/O batch."""
        assert self._current is not None
        assert self.end_ps is not None
        end_ps, operation = self.end_ps, self._current
        self._free_ps = end_ps
        operation.done(end_ps)
        if not self._begin(end_ps, operation):
            self._turn(end_ps)

    def _turn(self, free_ps: int) -> None:
        """Start the next queued operation that has a batch."""
        self._current, self.end_ps = None, None
        while self._queue:
            at_ps, operation = self._queue.popleft()
            if self._begin(max(free_ps, at_ps), operation):
                return

    def _begin(self, start_ps: int, operation: StorageOperation) -> bool:
        batch_ps = operation.next_ps(start_ps)
        if batch_ps is None:
            return False
        self.busy_ps += batch_ps
        self.pages += operation.pages
        self._current, self.end_ps = operation, start_ps + batch_ps
        return True
