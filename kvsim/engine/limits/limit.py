"""The interface of limits on a step's chunks other than tokens, sequences and blocks."""

from collections.abc import Sequence as Row
from typing import NamedTuple

from kvsim.engine.plan import Plan, ScheduledChunk
from kvsim.memory.allocator import Refusal
from kvsim.request import Request
from kvsim.sequence import Sequence


class EncoderCounts(NamedTuple):
    """Counts of the encoder cache.

    encoded_items: items computed by the encoder. encoded_tokens: their embeddings. found_items:
    items hit in the cache.
    """

    encoded_items: int
    encoded_tokens: int
    found_items: int


class AdapterCounts(NamedTuple):
    """Counts of LoRA adapters.

    activated: copies of an adapter to the device. read: copies into host memory. delayed: ids of
    skipped sequences.
    """

    activated: int
    read: int
    delayed: frozenset[str]


class ChunkLimits:
    """The limits of one scheduler, which asks before each chunk and reports the result; these limit
    nothing.

    bind: whether there are any limits.
    """

    bind = False

    def refusal(self, request: Request) -> Refusal | None:
        """Why `request` could never run under this limit; None if it could."""
        return None

    def begin(self) -> None:
        """Called before a step is scheduled."""

    def may_start(self, seq: Sequence) -> bool:
        """Whether the waiting `seq` may start in this step; if not, it is skipped."""
        return True

    def allowed(self, seq: Sequence, start_tokens: int, new_tokens: int) -> int:
        """Number of the next `new_tokens` tokens from start_tokens on that this step may compute;
        0: `seq` is skipped.
        """
        return new_tokens

    def started(self, seq: Sequence) -> None:
        """Called when `seq` starts to run in the step being scheduled."""

    def scheduled(self, chunk: ScheduledChunk) -> int:
        """The chunk asked about last is in this step; returns by how many ps it delays the step."""
        return 0

    def declined(self, seq: Sequence) -> None:
        """`seq`, asked about last, got no blocks and does not start."""

    def released(self, seq: Sequence) -> None:
        """Called when `seq` has finished or was preempted."""

    def returned(self, plan: Plan, leaving: Row[Sequence]) -> None:
        """The outputs of `plan` are processed. leaving: sequences that finish with it and still
        count as running.
        """

    def stay(self) -> bool:
        """Whether later steps would find the same limits as the last one, if they only decode."""
        return True

    def encoder_counts(self) -> EncoderCounts | None:
        """Counts of the encoder cache so far; None if no item was encoded."""
        return None

    def adapter_counts(self) -> AdapterCounts | None:
        """Counts of LoRA adapters so far; None if no request used one."""
        return None


NO_LIMITS = ChunkLimits()
