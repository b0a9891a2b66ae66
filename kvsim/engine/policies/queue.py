"""The order of the waiting queue: first come first served, or by priority."""

from collections import deque
from heapq import heapify, heappop, heappush
from typing import Literal, Protocol

from kvsim.sequence import Sequence

Order = Literal["fcfs", "priority"]


class WaitingQueue(Protocol):
    """The interface of a queue of waiting sequences, in order of admission."""

    def __len__(self) -> int: ...

    @property
    def head(self) -> Sequence | None:
        """The first waiting sequence; None if the queue is empty."""
        ...

    def add(self, seq: Sequence) -> None:
        """Add a new sequence."""
        ...

    def put_back(self, seq: Sequence) -> None:
        """Queue a preempted or skipped sequence again."""
        ...

    def pop(self) -> Sequence:
        """Remove the head and return it; the queue must not be empty."""
        ...

    def remove(self, seq: Sequence) -> None:
        """Remove the waiting `seq`."""
        ...


class FcfsQueue:
    """Queue in order of arrival; a preempted sequence goes back to the front."""

    def __init__(self) -> None:
        self._waiting: deque[Sequence] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, seq: Sequence) -> None:
        self._waiting.append(seq)

    def put_back(self, seq: Sequence) -> None:
        self._waiting.appendleft(seq)

    @property
    def head(self) -> Sequence | None:
        return self._waiting[0] if self._waiting else None

    def pop(self) -> Sequence:
        return self._waiting.popleft()

    @property
    def in_order(self) -> list[Sequence]:
        """All waiting sequences, in order of admission."""
        return list(self._waiting)

    def remove(self, seq: Sequence) -> None:
        self._waiting.remove(seq)


def priority_key(seq: Sequence) -> tuple[int, int, str]:
    """Sort key (priority, arrival, id); lower is earlier."""
    return seq.priority, seq.arrival_ps, seq.id


class PriorityQueue:
    """Queue by (priority, arrival, id), lower first; a preempted sequence is sorted in like the
    others.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, str, Sequence]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, seq: Sequence) -> None:
        heappush(self._heap, (seq.priority, seq.arrival_ps, seq.id, seq))

    def put_back(self, seq: Sequence) -> None:
        self.add(seq)

    @property
    def head(self) -> Sequence | None:
        return self._heap[0][3] if self._heap else None

    def pop(self) -> Sequence:
        return heappop(self._heap)[3]

    @property
    def in_order(self) -> list[Sequence]:
        """All waiting sequences, in order of admission."""
        return [entry[3] for entry in sorted(self._heap)]

    def remove(self, seq: Sequence) -> None:
        self._heap = [entry for entry in self._heap if entry[3] is not seq]
        heapify(self._heap)


def queue_of(order: Order) -> WaitingQueue:
    """An empty queue in this order."""
    return PriorityQueue() if order == "priority" else FcfsQueue()
