"""What an allocator promises the scheduler.

The scheduler admits sequences, computes their prompts chunk by chunk (`admit`, `extend`), lets them
`join` the decoders, moves all decoders on together (`advance`), and takes memory back (`release`).
Nothing else here knows of time: the allocator counts decode steps, the engine how long they took.

A new allocator may begin on `kvsim.memory.stepwise`, which needs a handful of methods. What a
prefix cache adds to the promise stands in prefix.py, what SGLang's scheduler alone asks in
prefix_room.py.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple

from mypy_extensions import mypyc_attr

from kvsim.memory.ledger import Course, Usage
from kvsim.memory.parts import NO_PARTS, Parts
from kvsim.memory.prefix import PrefixPromise
from kvsim.memory.timed import Timed
from kvsim.memory.verifying import Verifying
from kvsim.plumbing.errors import InvariantError
from kvsim.request import Request
from kvsim.sequence import Sequence


class Refusal(NamedTuple):
    """Why a request can never run: what it needs, what there is, and the way out.

    reason: a clause that also stands behind "because".
    """

    reason: str
    value: int
    limit: int
    unit: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.value:,} {self.unit}, limit {self.limit:,}; {self.remedy}"


class Place(NamedTuple):
    """Where the KV of a sequence lies: in blocks, by its block table (ids from 0 to the number of
    blocks in the pool), or in one buffer of `slots` slots at a byte address of the pool.
    """

    blocks: list[int] | tuple[int, ...] = ()
    address: int = 0
    slots: int = 0


class Demand:
    """What is asked for a waiting sequence.

    num_tokens: slots it gets, from the first on. fit_tokens >= num_tokens: so many must be free
    now. cached_tokens: leading tokens that need no computing: what the allocator's `cached_tokens`
    said, or, swapped_in, what comes back from host memory. busy: other sequences run (a watermark
    then applies).
    """

    def __init__(
        self,
        num_tokens: int,
        fit_tokens: int,
        cached_tokens: int = 0,
        busy: bool = False,
        swapped_in: bool = False,
    ) -> None:
        self.num_tokens = num_tokens
        self.fit_tokens = fit_tokens
        self.cached_tokens = cached_tokens
        self.busy = busy
        self.swapped_in = swapped_in


class Admission(NamedTuple):
    """An admission that went well. loaded_bytes: content on its way from host memory for it."""

    loaded_bytes: int = 0


def _nothing_to_end() -> None:
    """There is no copy."""


class Growth(NamedTuple):
    """Room that was made for a sequence.

    copy_ps: for so long its content is copied and the allocation made. While that lasts the ledger
    shows what lies there twice; whoever waited for it calls `end`, once.
    """

    copy_ps: int = 0
    end: Callable[[], None] = _nothing_to_end


ADMITTED = Admission()
GROWN = Growth()


@mypyc_attr(allow_interpreted_subclasses=True)
class Allocator(PrefixPromise):
    """One pool and the way it is handed out. Units: slots (tokens) in calls, bytes in the ledger.

    gives_back: decoding frees memory as it goes, as windows do.
    token_bytes: what one slot costs, all layers together.
    swappable: whether a sequence's slots can come back from elsewhere, all of them at once.
    page_tokens: slots are granted in multiples of it.
    keeps_last_token: a sequence that was scheduled once more than it had output gets a slot for it.
    max_sequences: that hold memory at once, whatever is free; None: no limit of that kind.
    """

    capacity_bytes: int
    token_bytes: int
    gives_back: bool = False
    swappable: bool = True
    page_tokens: int = 1
    keeps_last_token: ClassVar[bool] = False
    max_sequences: int | None = None

    @property
    def timed(self) -> Timed | None:
        """Content that is kept until a moment; None: what is kept does not depend on time."""
        return None

    @property
    def verifying(self) -> Verifying | None:
        """The tables of sequences that verify drafts in step with each other; None: they cannot."""
        return None

    # --- requests and admission ----------------------------------------------------------------

    @abstractmethod
    def refusal(self, request: Request) -> Refusal | None:
        """Why `request` could not run to its end alone in an empty pool; None if it could."""

    @abstractmethod
    def admit(self, seq: Sequence, demand: Demand) -> Admission | None:
        """Give a waiting sequence, which holds nothing, what is demanded; None changes nothing."""

    # --- growth and decoding -------------------------------------------------------------------

    @abstractmethod
    def extend(self, seq: Sequence, num_tokens: int, *, turns_before: int = 0) -> Growth | None:
        """Make room so that a running sequence holds `num_tokens` slots in all; None: no room,
        nothing changed.

        For a prefilling sequence these slots are then valid. For a decoding one only the room is
        made: `advance` fills it. turns_before: decoders whose `order` is below it have had their
        turn in this step: what the next `advance` fills for them is known content already.
        """

    def await_steps(self, seq: Sequence) -> None:
        """All steps of a prefilling `seq` have returned: what was held for them may go with the
        next `extend`.
        """

    def verify(
        self,
        seq: Sequence,
        num_tokens: int,
        returned_tokens: int,
        known_tokens: int,
        valid_tokens: int,
    ) -> bool:
        """A decoding `seq`, which has not joined the others, is about to compute the slots up to
        `num_tokens`, the last of them with drafts; False: no room, nothing changed.

        returned_tokens: slots whose step has returned. known_tokens: so many tokens of `seq` are
        known. valid_tokens: so many slots will be valid when the step has returned. Only where the
        options of the allocator say that it speculates.
        """
        raise InvariantError(f"{type(self).__name__} has no slots for drafts")

    def step_decided(self) -> None:
        """A step, or a run of them, has been scheduled: what comes now belongs to the next."""
        return

    @abstractmethod
    def join(self, seq: Sequence, num_tokens: int) -> None:
        """`seq`, holding `num_tokens` valid slots, decodes from the next `advance` on."""

    @abstractmethod
    def leave(self, seq: Sequence) -> None:
        """`seq` stops decoding (finished, or passed over in a step) and keeps its memory."""

    @abstractmethod
    def must_extend(self) -> list[Sequence]:
        """The decoding sequences to `extend` before the next `advance`, in `order`: their next
        token has no room yet.
        """

    @abstractmethod
    def steps_that_fit(self, limit: int) -> int:
        """How many successive `advance(1)` of all decoders are safe now, at most `limit`.

        Paged: while free blocks last. Contiguous: until the first buffer is full.
        """

    def steps_head_stays_blocked(self, head: Sequence, limit: int, *, busy: bool) -> int:
        """For how many `advance(1)` the head of the queue, which could not start, still cannot,
        and the split of free bytes by its need stays what it is, at most `limit`. A pool that
        decoding does not shrink keeps it for ever.
        """
        return limit

    @abstractmethod
    def advance(self, steps: int) -> Course:
        """All decoders take one slot a step, `steps` times; returns how the ledger moved.

        steps <= steps_that_fit(steps), or steps == 1 and all of `must_extend()` were extended.
        `advance(a + b)` leaves the same state as `advance(a)` and `advance(b)`.
        """

    def step(self) -> None:
        """`advance(1)`, where nobody asks how the ledger moved."""
        self.advance(1)

    @abstractmethod
    def release(self, seq: Sequence) -> None:
        """Take back all memory of `seq` (finished, preempted); a decoding one leaves first."""

    # --- the ledger ----------------------------------------------------------------------------

    @abstractmethod
    def usage(self, head: Sequence | None, *, busy: bool) -> Usage:
        """The ledger now. head: the first waiting sequence, whose need splits the free bytes;
        busy: as in `admit`.
        """

    def sequence_bytes(self, tokens: int) -> int:
        """Content of a sequence with so many valid slots."""
        return self.token_bytes * tokens

    @property
    def pads_blocks(self) -> bool:
        """Whether `rounding` is what states and groups of layers leave free in their blocks."""
        return False

    @property
    def parts(self) -> Parts:
        """What of the ledger now has a name of its own (see parts.py)."""
        return NO_PARTS

    @property
    def copied_bytes(self) -> int:
        """Device bytes copied so far (payload, counted once)."""
        return 0

    @abstractmethod
    def granted_tokens(self, seq: Sequence) -> int:
        """Slots granted to `seq` now, valid or not."""

    def place(self, seq: Sequence) -> Place:
        """Where the KV of a running sequence lies, for the store that its options name."""
        raise InvariantError(f"{type(self).__name__} has no real store to tell places to")

    def missing_tokens(self, seq: Sequence, tokens: int) -> int:
        """Slots that must yet be granted for `seq` to hold `tokens`, by whole blocks."""
        return max(0, tokens - self.granted_tokens(seq))

    @abstractmethod
    def check(self) -> None:
        """Raise InvariantError if anything is owned twice, lost, or counted wrong. Slow."""
