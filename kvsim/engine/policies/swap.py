"""Preemption by swapping: what a sequence computed goes to host memory and comes back.

A swapped sequence waits at the front like any preempted one, so it comes back before new requests
start. It comes back whole, whatever a prefix cache still knows of it. The step that takes its
memory away starts when the copy out has ended, the step that it runs in again when the copy in has:
copies queue for the link, which serves one after the other (its time is a closed form, so that
engines in one simulation may share it). Without room in host memory a sequence is recomputed.
"""

from kvsim.plumbing.units import PS_PER_S, ceil_div
from kvsim.sequence import Sequence


class Link:
    """A link between device and host, one way at a time: first come, first served.

    latency_ps: before each copy. bytes_per_s: while it lasts.
    """

    def __init__(self, bytes_per_s: int, latency_ps: int) -> None:
        self._bytes_per_s = bytes_per_s
        self._latency_ps = latency_ps
        self._free_ps = 0

    def copy_ps(self, at_ps: int, num_bytes: int) -> int:
        """How long a copy asked for at `at_ps` takes, its turn awaited. It takes its turn."""
        begin_ps = max(at_ps, self._free_ps)
        copying_ps = ceil_div(num_bytes * PS_PER_S, self._bytes_per_s)
        self._free_ps = begin_ps + self._latency_ps + copying_ps
        return self._free_ps - at_ps


class SwapSpace:
    """Host memory for preempted sequences. swapped_bytes: moved so far, both ways."""

    def __init__(self, capacity_bytes: int) -> None:
        self.free_bytes = capacity_bytes
        self.swapped_bytes = 0
        self._held: dict[Sequence, tuple[int, int]] = {}

    def tokens(self, seq: Sequence) -> int:
        """Leading tokens of `seq` that lie here."""
        return self._held[seq][0] if seq in self._held else 0

    def holds(self, seq: Sequence) -> bool:
        """Whether `seq` lies here."""
        return seq in self._held

    def put(self, seq: Sequence, tokens: int, num_bytes: int) -> bool:
        """The first `tokens` tokens of `seq` go out; False: no room, nothing changed."""
        if not tokens or num_bytes > self.free_bytes:
            return False
        self.free_bytes -= num_bytes
        self.swapped_bytes += num_bytes
        self._held[seq] = tokens, num_bytes
        return True

    def drop(self, seq: Sequence) -> None:
        """`seq` has left for good."""
        if seq in self._held:
            self.free_bytes += self._held.pop(seq)[1]

    def take(self, seq: Sequence) -> int:
        """`seq` runs again. Returns the bytes that come back for it, 0 if it was not here."""
        _, num_bytes = self._held.pop(seq, (0, 0))
        self.free_bytes += num_bytes
        self.swapped_bytes += num_bytes
        return num_bytes
