"""Prefixes of a decode engine's prompts that are in its host memory, and are loaded while the rest
of the prompt is transferred (disaggregation/decode_hicache_mixin.py, 0.5.23).

What is promised to the prefill engine is not sent. It is looked up again when its load is queued:
if the host has given it up, the request fails.
"""

from mypy_extensions import mypyc_attr

from kvsim.engine.schedulers.sglang.parts import HicachePart
from kvsim.memory.radix.allocator import RadixAllocator
from kvsim.sequence import Sequence

LOST = "a prefix that was promised from host memory was evicted before its load (503)"
_PENDING = -1


@mypyc_attr(allow_interpreted_subclasses=True)
class Restores:
    """The promised prefixes of requests in transfer, loaded by `hicache`."""

    def __init__(self, pages: RadixAllocator, hicache: HicachePart) -> None:
        self._pages, self._hicache = pages, hicache
        self._promised: dict[Sequence, int] = {}  # tokens on device and host
        self._missing: dict[Sequence, int] = {}  # of them on the host, until their load is queued
        self._ready_ps: dict[Sequence, int] = {}
        self._new: list[Sequence] = []

    @property
    def reserved_tokens(self) -> int:
        """Slots that loads not queued yet will take."""
        return sum(self._missing.values())

    @property
    def pending(self) -> bool:
        """Whether a later pass queues loads."""
        return bool(self._new)

    def promise(self, seq: Sequence) -> int:
        """Promise the cached prefix of a pinned `seq`; returns its tokens that are on the host."""
        missing = self._hicache.host_hit(seq)
        self._new.append(seq)
        if missing:
            self._missing[seq] = missing
            self._promised[seq] = self._pages.slots(seq).protected + missing
        return missing

    def load(self) -> list[Sequence]:
        """Queue and submit the loads of requests promised in earlier passes, as one copy; returns
        those that fail.
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
        """Whether all loads that `seq` waits for have ended."""
        return 0 <= self._ready_ps.get(seq, _PENDING) <= now_ps

    def done(self, seq: Sequence) -> None:
        """Forget `seq`, which is transferred or has failed."""
        self._ready_ps.pop(seq, None)
        self._promised.pop(seq, None)
        self._missing.pop(seq, None)
