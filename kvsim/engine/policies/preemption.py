"""Preemption of a sequence: its KV is recomputed, or swapped to host memory and back.

A swapped sequence waits at the front like any preempted one, so it runs again before new requests
start. All of it is swapped in, regardless of its hits in a prefix cache. The step that preempts it
starts when the swap-out has ended. The step in which it runs again starts when the swap-in has
ended (see kvsim.engine.link). Without room in host memory a sequence is recomputed.
"""

from abc import abstractmethod

from mypy_extensions import mypyc_attr

from kvsim.sequence import Sequence


@mypyc_attr(allow_interpreted_subclasses=True)
class Preemption:
    """Recomputes or swaps the KV of preempted sequences. swapped_bytes: bytes copied so far, in
    both directions.
    """

    swapped_bytes: int = 0

    @abstractmethod
    def kept_tokens(self, seq: Sequence) -> int:
        """Number of leading tokens of a waiting sequence that are in host memory, swapped out."""

    @abstractmethod
    def put(self, seq: Sequence, tokens: int, num_bytes: int) -> bool:
        """Preempt `seq` with `tokens` computed tokens of num_bytes; returns whether these are
        swapped out.
        """

    @abstractmethod
    def take(self, seq: Sequence) -> int:
        """Resume `seq`; returns the bytes to swap in for it, 0 for none."""

    @abstractmethod
    def drop(self, seq: Sequence) -> None:
        """Drop the swapped state of a finished `seq`."""


class Recompute(Preemption):
    """Preempted sequences are recomputed: nothing is stored."""

    def kept_tokens(self, seq: Sequence) -> int:
        return 0

    def put(self, seq: Sequence, tokens: int, num_bytes: int) -> bool:
        return False

    def take(self, seq: Sequence) -> int:
        return 0

    def drop(self, seq: Sequence) -> None:
        return


class Swap(Preemption):
    """Preempted sequences are swapped to host memory while it has room."""

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
