"""Retries of lookups that found too little (mem_cache/storage_prefetch.py, SGLang 0.5.23)."""

from collections.abc import Iterable

from kvsim.sequence import Sequence


class Retries:
    """interval: passes from the one that takes note of a miss to the next lookup. most: how often a
    request is looked up after its first time.
    """

    def __init__(self, interval: int, most: int) -> None:
        self._interval, self._most = interval, most
        self._waits: dict[Sequence, int | None] = {}  # passes since; None: not noted yet
        self._known: dict[Sequence, int] = {}  # tokens up to which the storage has those
        self._tries: dict[Sequence, int] = {}

    @property
    def waiting(self) -> bool:
        """Whether a request is to be looked up again."""
        return bool(self._waits)

    def missed(self, seq: Sequence, known: int | None = None) -> None:
        """A lookup of `seq` found too little, ended before its answer, or found no room. known:
        tokens from its begin up to which the storage has it; None: nobody knows.
        """
        self.cancel(seq)
        self._waits[seq] = None
        if known is not None:
            self._known[seq] = known

    def cancel(self, seq: Sequence) -> None:
        """Cancel the retry for its last miss."""
        self._waits.pop(seq, None)
        self._known.pop(seq, None)

    def forget(self, seq: Sequence) -> None:
        """Forget a request that left the queue or was queued again."""
        self.cancel(seq)
        self._tries.pop(seq, None)

    def spent(self, seq: Sequence) -> bool:
        """Whether `seq` was looked up as often as may be."""
        return self._tries.get(seq, 0) >= self._most

    def tried(self, seq: Sequence) -> None:
        """Note that the lookup of this request is repeated."""
        self._tries[seq] = self._tries.get(seq, 0) + 1

    def due(
        self, queue: Iterable[Sequence], head: Sequence | None
    ) -> list[tuple[Sequence, int | None]]:
        """Start a pass: the waiting requests to look up again, in queue order, each with the tokens
        found before.

        The head of the queue is left out.
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
