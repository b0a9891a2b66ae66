"""Calls that only SGLang's scheduler makes: it has budgets of its own, pins hits of waiting
requests, and evicts before it allocates.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import NamedTuple

from mypy_extensions import mypyc_attr, trait

from kvsim.memory.allocator import Allocator
from kvsim.sequence import Sequence


class Known(NamedTuple):
    """The cached prefix of a sequence. tokens: its length; on_device: number of these tokens in
    device memory.
    """

    tokens: int
    on_device: int


class WindowRoom(NamedTuple):
    """A pool for sliding windows. window: tokens of a window. pool: slots of the pool. available:
    free and evictable slots.
    """

    window: int
    pool: int
    available: Callable[[], int]


@mypyc_attr(allow_interpreted_subclasses=True)
@trait
class PrefixRoom:
    """The free slots of a pool, and its cached content that can be evicted."""

    @abstractmethod
    def available_tokens(self) -> int:
        """Slots that can be allocated now: free and evictable ones."""

    @abstractmethod
    def look_up(self, seq: Sequence) -> Known:
        """Match the cached prefix of all present tokens of a waiting `seq`, and mark it as used
        now.
        """

    def depth_first(self, seqs: list[Sequence]) -> list[Sequence]:
        """Sort `seqs`, just looked up, by a depth-first walk of the radix tree, which visits
        branches with more of these sequences first. A sequence comes where its cached prefix ends.
        Without a tree the order is kept.
        """
        return seqs

    @abstractmethod
    def pin(self, seq: Sequence) -> int:
        """Lock the cached prefix of a waiting `seq` against eviction until it is admitted or
        unpinned, if the allocator supports this. Returns its tokens.
        """

    @abstractmethod
    def unpin(self, seq: Sequence) -> None:
        """Unlock the prefix of a pinned `seq` that was not admitted after all."""

    @abstractmethod
    def make_room(self, tokens: int) -> None:
        """Evict cached content until `tokens` slots are free, or none is left to evict."""

    @abstractmethod
    def missing_for_step(self, slots: Callable[[Sequence], int]) -> int:
        """Slots still to be granted for the next token of all decoding sequences. slots: slots of
        each sequence.
        """

    # --- where layers do not all keep all tokens -------------------------------------------------

    @property
    def windows(self) -> WindowRoom | None:
        """The pool for sliding windows, in which each token also takes a slot; None without one."""
        return None

    @property
    def steps_on_its_own(self) -> bool:
        """Whether a decode step needs more than slots (windows, states), so that `begin_decode` is
        called first.
        """
        return False

    def tokens_for_step(self) -> int:
        """Slots available to a decode step."""
        return self.available_tokens()

    def begin_prefill(self, chunked: Sequence | None, newcomers: list[Sequence]) -> None:
        """Announce a prefill step: the next chunk of `chunked` and the start of the pinned
        `newcomers`. Memory for their tokens is allocated after this call.
        """
        return

    def begin_decode(self, stopping: list[Sequence], *, unreturned: int, rides: bool) -> None:
        """Announce a decode step for which there are slots. stopping: sequences in the step that
        already have all their output. unreturned: number of decode steps in flight. rides: the step
        also computes prompts.
        """
        return

    def step_scheduled(self, order: Callable[[Sequence], int]) -> None:
        """A step, which may repeat, has been scheduled. order: position of a decoding sequence in
        it.
        """
        return

    def step_returned(self) -> None:
        """The oldest scheduled step has returned; its outputs are processed next."""
        return


class RoomOnDemand(PrefixRoom):
    """A `PrefixRoom` over an allocator that evicts as it allocates, and cannot pin."""

    def __init__(self, allocator: Allocator) -> None:
        self._allocator = allocator

    def available_tokens(self) -> int:
        usage = self._allocator.usage(None, busy=False)
        return (usage.idle + usage.cached) // self._allocator.token_bytes

    def look_up(self, seq: Sequence) -> Known:
        tokens = self._allocator.cached_tokens(seq)
        return Known(tokens, tokens)

    def pin(self, seq: Sequence) -> int:
        return self._allocator.cached_tokens(seq)

    def unpin(self, seq: Sequence) -> None:
        return

    def make_room(self, tokens: int) -> None:
        return

    def missing_for_step(self, slots: Callable[[Sequence], int]) -> int:
        allocator = self._allocator
        return sum(allocator.missing_tokens(seq, slots(seq) + 1) for seq in allocator.must_extend())


def prefix_room(allocator: Allocator) -> PrefixRoom:
    """The `PrefixRoom` of an allocator: its own, or one that evicts on demand."""
    room = getattr(allocator, "room", None)
    return room if isinstance(room, PrefixRoom) else RoomOnDemand(allocator)
