"""Preemption of a sequence: its content is recomputed, or swapped to host memory.

A swapped sequence waits at the front like any preempted one, so it comes back before new requests
start. It is swapped in whole, regardless of its hits in a prefix cache. The step that preempts it
starts when the swap-out has ended, the step in which it runs again when the swap-in has ended (see
kvsim.engine.link). Without room in host memory a sequence is recomputed.
"""

from abc import abstractmethod

from mypy_extensions import mypyc_attr

from kvsim.sequence import Sequence


@mypyc_attr(allow_interpreted_subclasses=True)
class Preemption:
    """The content of preempted sequences. swapped_bytes: bytes copied so far, both ways."""

    swapped_bytes: int = 0

    @abstractmethod
    def kept_tokens(self, seq: Sequence) -> int:
        """Leading tokens of a waiting sequence that are swapped in."""

    @abstractmethod
    def put(self, seq: Sequence, tokens: int, num_bytes: int) -> bool:
        """`seq` is preempted with `tokens` computed tokens; returns whether they are copied out."""

    @abstractmethod
    def take(self, seq: Sequence) -> int:
        """`seq` runs again. Returns the bytes swapped in for it, 0 for none."""

    @abstractmethod
    def drop(self, seq: Sequence) -> None:
        """Drop the swapped state of a finished `seq`."""


class Recompute(Preemption):
    """Recomputation: nothing of a preempted sequence is stored."""

    def kept_tokens(self, seq: Sequence) -> int:
        return 0

    def put(self, seq: Sequence, tokens: int, num_bytes: int) -> bool:
        return False

    def take(self, seq: Sequence) -> int:
        return 0

    def drop(self, seq: Sequence) -> None:
        return


class Swap(Preemption):
    """Host memory for preempted sequences."""

    def __init__(self, capacity_bytes: int) -> None:
        self.free_bytes = capacity_bytes
        self._held: dict[Sequence, tuple[int, int]] = {}

    def kept_tokens(self, seq: Sequence) -> int:
        return self._held[seq][0] if seq in self._held else 0

    def put(self, seq: Sequence, tokens: int, num_bytes: int) -> bool:
        if not tokens or num_bytes > self.free_bytes:
            return False
        self.free_bytes -= num_bytes
        self.swapped_bytes += num_bytes
        self._held[seq] = tokens, num_bytes
        return True

    def drop(self, seq: Sequence) -> None:
        if seq in self._held:
            self.free_bytes += self._held.pop(seq)[1]

    def take(self, seq: Sequence) -> int:
        _, num_bytes = self._held.pop(seq, (0, 0))
        self.free_bytes += num_bytes
        self.swapped_bytes += num_bytes
        return num_bytes
