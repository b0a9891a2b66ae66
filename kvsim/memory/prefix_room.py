"""What SGLang's scheduler alone asks of an allocator: budgets of its own weigh requests, what they
would hit is pinned, and room is made before it is taken.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import NamedTuple

from mypy_extensions import mypyc_attr, trait

from kvsim.memory.allocator import Allocator
from kvsim.sequence import Sequence


class Known(NamedTuple):
    """tokens: leading ones of a sequence that a prefix cache holds; on_device: of these, in device
    memory.
    """

    tokens: int
    on_device: int


class WindowRoom(NamedTuple):
    """A pool for sliding windows. window: tokens of one. pool: its slots. available: those that
    could be handed out now.
    """

    window: int
    pool: int
    available: Callable[[], int]


@mypyc_attr(allow_interpreted_subclasses=True)
@trait
class PrefixRoom:
    """Room in a pool, and the cached content that gives way for it."""

    @abstractmethod
    def available_tokens(self) -> int:
        """Slots that could be handed out now: free ones, and cached ones that nobody holds."""

    @abstractmethod
    def look_up(self, seq: Sequence) -> Known:
        """Leading tokens of all that a waiting `seq` has now which a prefix cache holds; where the
        cache dates its content, they count as used now.
        """

    @abstractmethod
    def pin(self, seq: Sequence) -> int:
        """What `cached_tokens` says of a waiting `seq`, which nobody else can take from now on,
        until it is admitted or unpinned, where an allocator can promise that.
        """

    @abstractmethod
    def unpin(self, seq: Sequence) -> None:
        """A pinned `seq` was not admitted after all."""

    @abstractmethod
    def make_room(self, tokens: int) -> None:
        """Forget cached content until `tokens` slots are free, or none is left to forget."""

    @abstractmethod
    def missing_for_step(self, slots: Callable[[Sequence], int]) -> int:
        """Slots that must yet be granted for the next token of all decoding sequences. slots: those
        that each holds.
        """

    # --- where layers do not all keep all tokens -------------------------------------------------

    @property
    def windows(self) -> WindowRoom | None:
        """The pool of sliding windows, which each token takes a slot of too; None without one."""
        return None

    @property
    def steps_on_its_own(self) -> bool:
        """Whether a step of decoding asks more of it than slots: `begin_decode` comes first."""
        return False

    def tokens_for_step(self) -> int:
        """Slots that a step of decoding could be given."""
        return self.available_tokens()

    def begin_prefill(self, chunked: Sequence | None, newcomers: list[Sequence]) -> None:
        """A step computes the next chunk of `chunked`, and these pinned sequences start in it; room
        for their tokens is made after this.
        """
        return

    def begin_decode(self, stopping: list[Sequence], *, unreturned: int, rides: bool) -> None:
        """A step of decoding is scheduled, for which there are slots. stopping: who takes part in
        it though it has all its output. unreturned: steps of decoding in flight. rides: prompts are
        computed in it too.
        """
        return

    def step_scheduled(self, order: Callable[[Sequence], int]) -> None:
        """A step, which may repeat, has been scheduled. order: the place of a decoding sequence in
        it.
        """
        return

    def step_returned(self) -> None:
        """The oldest of these has returned, and its outputs are about to be processed."""
        return


class RoomOnDemand(PrefixRoom):
    """The same over an allocator that forgets content as it hands out, and can pin none."""

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
    """The room of this allocator's pool."""
    return allocator if isinstance(allocator, PrefixRoom) else RoomOnDemand(allocator)
