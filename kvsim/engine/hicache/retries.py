"""Retries of storage lookups that found too little (mem_cache/storage_prefetch.py, SGLang
0.5.23).
"""

from collections.abc import Iterable

from kvsim.sequence import Sequence


class Retries:
    """Counts passes until a request is looked up again.

    interval: passes from the one that notices a miss to the next lookup. most: most repeated
    lookups of a request.
    """

    def __init__(self, interval: int, most: int) -> None:
        self._interval, self._most = interval, most
        self._waits: dict[Sequence, int | None] = {}  # passes since; None: not noted yet
        self._known: dict[Sequence, int] = {}  # tokens up to which the storage has those
        self._tries: dict[Sequence, int] = {}

    @property
    def waiting(self) -> bool:
        """Whether any request is to be looked up again."""
        return bool(self._waits)

    def missed(self, seq: Sequence, known: int | None = None) -> None:
        """Note that a lookup of `seq` found too little, was cut before its answer, or got no host
        memory.

        known: number of leading tokens that the storage has; None: not known.
        """
        self.cancel(seq)
        self._waits[seq] = None
        if known is not None:
            self._known[seq] = known

    def cancel(self, seq: Sequence) -> None:
        """Cancel the pending retry of `seq`."""
        self._waits.pop(seq, None)
        self._known.pop(seq, None)

    def forget(self, seq: Sequence) -> None:
        """Drop the counts of a request that left the queue or was queued again."""
        self.cancel(seq)
        self._tries.pop(seq, None)

    def spent(self, seq: Sequence) -> bool:
        """Whether `seq` has used all its retries."""
        return self._tries.get(seq, 0) >= self._most

    def tried(self, seq: Sequence) -> None:
        """Note that the lookup of this request is repeated."""
        self._tries[seq] = self._tries.get(seq, 0) + 1

    def due(
        self, queue: Iterable[Sequence], head: Sequence | None
    ) -> list[tuple[Sequence, int | None]]:
        """Start a pass; returns the waiting requests to look up again, in queue order.

        Each has the number of tokens found before, or None. The head of the queue is not looked up
        again.
        """
        if head is None or not self._waits:
            return []
        self.cancel(head)
        due = []
        for seq in [seq for seq in queue if seq in self._waits] if self._waits else ():
            if self.spent(seq):
                self.cancel(seq)
                continue
            passes = self._waits[seq]
            passes = 0 if passes is None else passes + 1
            self._waits[seq] = passes
            if passes >= self._interval:
                due.append((seq, self._known.get(seq)))
                self.cancel(seq)
        return due
