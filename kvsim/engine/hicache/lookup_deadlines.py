"""Deadlines of storage lookups under prefetch policy "timeout": how long admission skips a request
with a lookup in flight (mem_cache/unified_radix_cache.py, SGLang 0.5.23).
"""

from collections.abc import Iterable
from math import ceil

from kvsim.engine.hicache.settings import StorageSettings
from kvsim.sequence import Sequence


class LookupDeadlines:
    """Deadlines of waiting requests. tick_ps: a deadline is a whole number of ticks after its
    start.
    """

    def __init__(self, settings: StorageSettings, tick_ps: int) -> None:
        self._settings, self._tick_ps = settings, tick_ps
        self._ends: dict[Sequence, int] = {}  # deadlines in ps of skipped requests
        self._expired: set[Sequence] = set()

    def start(self, seq: Sequence, now_ps: int, tokens: int) -> None:
        """Start the deadline of a request that looks up `tokens` tokens; only the first call for a
        request counts.
        """
        if seq not in self._ends:
            settings, tick_ps = self._settings, self._tick_ps
            waits_ps = settings.timeout_ps + tokens * settings.timeout_ps_per_ki_token / 1024
            self._ends[seq] = now_ps + ceil(waits_ps / tick_ps) * tick_ps

    def passed(self, seq: Sequence, now_ps: int) -> bool:
        """Whether the deadline of `seq` has passed."""
        return now_ps >= self._ends.get(seq, now_ps + 1)

    def expire(self, seq: Sequence) -> None:
        """Note that the deadline of `seq` has passed: it is not looked up again before it is
        admitted.
        """
        self._expired.add(seq)

    def expired(self, seq: Sequence) -> bool:
        """Whether `expire` was called for `seq`."""
        return seq in self._expired

    def forget(self, seq: Sequence) -> None:
        """Drop the deadline of an admitted `seq`."""
        self._ends.pop(seq, None)
        self._expired.discard(seq)

    def of(self, seqs: Iterable[Sequence]) -> list[int]:
        """Deadlines in ps of those of `seqs` that have one."""
        return [self._ends[seq] for seq in seqs if seq in self._ends]
