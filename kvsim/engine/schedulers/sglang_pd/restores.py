"""Loads of cached prefixes from a decode engine's host memory, while the rest of the prompt is
transferred (SGLang 0.5.23, disaggregation/decode_hicache_mixin.py).

The decode engine promises a cached prefix to the prefill engine, which then does not send it. The
prefix is looked up again when its load is queued: if host memory has evicted it, the request fails.
"""

from kvsim.engine.schedulers.sglang.parts import HicachePart
from kvsim.memory.radix.allocator import RadixAllocator
from kvsim.sequence import Sequence

LOST = "a prefix that was promised from host memory was evicted before its load (503)"
_PENDING = -1


class Restores:
    """The promised prefixes of requests in transfer. hicache: loads them from host memory."""

    def __init__(self, pages: RadixAllocator, hicache: HicachePart) -> None:
        self._pages, self._hicache = pages, hicache
        self._promised: dict[Sequence, int] = {}  # tokens on device and host
        self._missing: dict[Sequence, int] = {}  # of them on the host, until their load is queued
        self._ready_ps: dict[Sequence, int] = {}
        self._new: list[Sequence] = []

    @property
    def reserved_tokens(self) -> int:
        """Device slots that loads which are not queued yet will take."""
        return sum(self._missing.values())

    @property
    def pending(self) -> bool:
        """Whether the next pass has loads to queue."""
        return bool(self._new)

    def promise(self, seq: Sequence) -> int:
        """Promise the cached prefix of a pinned `seq` to the prefill engine; returns the tokens of
        it that are in host memory.
        """
        missing = self._hicache.host_hit(seq)
        self._new.append(seq)
        if missing:
            self._missing[seq] = missing
            self._promised[seq] = self._pages.slots(seq).protected + missing
        return missing

    def load(self) -> list[Sequence]:
        """Queue the loads of all promised prefixes, and submit them as one copy. Returns the
        requests that fail: host memory has evicted their prefix, or the device has no slots.
        """
        new, self._new = self._new, []
        failed = [seq for seq in new if seq in self._promised and not self._queue(seq)]
        self._hicache.submit_loads(for_step=False)
        for seq in new:
            self._ready_ps[seq] = self._hicache.loads_end_ps
        return failed

    def _queue(self, seq: Sequence) -> bool:
        promised, missing = self._promised.pop(seq), self._missing.pop(seq)
        return self._pages.restore(seq, promised, missing, self._hicache.load_back)

    def is_ready(self, seq: Sequence, now_ps: int) -> bool:
        """Whether the load for `seq` was submitted and has ended by now_ps."""
        return 0 <= self._ready_ps.get(seq, _PENDING) <= now_ps

    def done(self, seq: Sequence) -> None:
        """Forget `seq`, since its transfer has ended or failed."""
        self._ready_ps.pop(seq, None)
        self._promised.pop(seq, None)
        self._missing.pop(seq, None)
