"""The interface of what limits a step's chunks beside tokens, sequences and blocks."""

from collections.abc import Sequence as Row
from typing import NamedTuple

from kvsim.engine.plan import Plan, ScheduledChunk
from kvsim.memory.allocator import Refusal
from kvsim.request import Request
from kvsim.sequence import Sequence


class EncoderCounts(NamedTuple):
    """encoded_items: computed by the encoder, and encoded_tokens, their embeddings. found_items:
    whose embeddings the cache had.
    """

    encoded_items: int
    encoded_tokens: int
    found_items: int


class AdapterCounts(NamedTuple):
    """activated: copies of an adapter to the device; read: of one into host memory. delayed: ids of
    the sequences that were skipped.
    """

    activated: int
    read: int
    delayed: frozenset[str]


class ChunkLimits:
    """The limits of one scheduler, which asks them about each chunk and says what became of it.

    bind: whether there are any.
    """

    bind = False

    def refusal(self, request: Request) -> Refusal | None:
        """Why this limit could never let `request` run; None if it could."""
        return None

    def begin(self) -> None:
        """A step is about to be scheduled."""

    def may_start(self, seq: Sequence) -> bool:
        """Whether `seq`, which waits, may be looked at in this step; if not, it is skipped."""
        return True

    def allowed(self, seq: Sequence, start_tokens: int, new_tokens: int) -> int:
        """What of a chunk may be computed in this step; 0: `seq` is skipped."""
        return new_tokens

    def started(self, seq: Sequence) -> None:
        """`seq` runs from this step on."""

    def scheduled(self, chunk: ScheduledChunk) -> int:
        """The chunk that was asked about last is computed in this step. Returns for how long, in
        ps, the step does something else for it first.
        """
        return 0

    def declined(self, seq: Sequence) -> None:
        """`seq`, which was asked about last, found no blocks to start."""

    def released(self, seq: Sequence) -> None:
        """`seq` runs no more: it is done, or it was preempted."""

    def returned(self, plan: Plan, leaving: Row[Sequence]) -> None:
        """The outputs of a step returned; leaving: who is done with it, still running."""

    def stay(self) -> bool:
        """Whether later steps that only decode would decide as the last one did."""
        return True

    def encoder_counts(self) -> EncoderCounts | None:
        """What the encoder did so far; None: nothing had to be encoded."""
        return None

    def adapter_counts(self) -> AdapterCounts | None:
        """What adapters took so far; None: no request asked for one."""
        return None


NO_LIMITS = ChunkLimits()
