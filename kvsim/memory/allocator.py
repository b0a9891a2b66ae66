"""The interface between an allocator and the scheduler.

The scheduler admits sequences, computes their prompts chunk by chunk (`admit`, `extend`), and lets
them `join` the decoders. It advances all decoders together (`advance`), and frees memory
(`release`). The allocator counts decode steps; only the engine knows how long they take.

A new allocator may begin on `kvsim.memory.stepwise`, which needs a handful of methods. The calls of
a KV connector stand in loading.py, those of SGLang's scheduler alone in prefix_room.py.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple

from mypy_extensions import mypyc_attr

from kvsim.memory.ledger import Course, Usage
from kvsim.memory.parts import NO_PARTS, Parts
from kvsim.memory.timed import Timed
from kvsim.memory.verifying import Verifying
from kvsim.plumbing.errors import InvariantError
from kvsim.request import Request
from kvsim.sequence import Sequence


class Refusal(NamedTuple):
    """Why a request can never run: what it needs, what the pool has, and how to fix it.

    reason: a clause that also reads well after "because".
    """

    reason: str
    value: int
    limit: int
    unit: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.value:,} {self.unit}, limit {self.limit:,}; {self.remedy}"


class Place(NamedTuple):
    """Address of a sequence's KV.

    blocks: the block table, block ids from 0 to the pool's number of blocks. Without blocks,
    `address` is the byte address of one buffer of `slots` slots.
    """

    blocks: list[int] | tuple[int, ...] = ()
    address: int = 0
    slots: int = 0


class Demand:
    """The memory that an admission asks for a waiting sequence.

    num_tokens: slots to allocate. fit_tokens: slots that must fit now, at least num_tokens.
    cached_tokens: leading tokens that need no computing: the result of the allocator's
    `cached_tokens` or, if swapped_in, the tokens that come back from host memory. busy: whether
    other sequences run, so that a watermark applies.
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
    """A successful admission. loaded_bytes: content loaded from host memory for it."""

    loaded_bytes: int = 0


def _nothing_to_end() -> None:
    """Do nothing: the default of `Growth.end`, for growth without a copy."""


class Growth(NamedTuple):
    """Memory that was granted to a running sequence.

    copy_ps: duration of the copy of its content and of the allocation. Until the caller calls
    `end`, once, after that time, the ledger counts the content twice.
    """

    copy_ps: int = 0
    end: Callable[[], None] = _nothing_to_end


class CacheTotals(NamedTuple):
    """Tokens looked up and hit in a prefix cache since the start of the run; 0 without a cache.
    host_hit_tokens: hits in the host tier; host_bytes: bytes moved to the host tier and back.
    """

    query_tokens: int = 0
    hit_tokens: int = 0
    host_hit_tokens: int = 0
    host_bytes: int = 0


ADMITTED = Admission()
GROWN = Growth()


@mypyc_attr(allow_interpreted_subclasses=True)
class Allocator:
    """One pool and its allocation policy. Units: slots (tokens) in calls, bytes in the ledger.

    gives_back: decoding frees memory on the way, as sliding windows do.
    token_bytes: bytes of one slot, all layers together.
    swappable: whether all slots of a sequence can be swapped in at once.
    page_tokens: slots are granted in multiples of this number.
    keeps_last_token: whether the last output token gets a slot if it was scheduled as an input.
    max_sequences: most sequences that hold memory at once; None: no limit.
    keeps_prefixes: whether finished content is cached.
    """

    capacity_bytes: int
    token_bytes: int
    gives_back: bool = False
    swappable: bool = True
    page_tokens: int = 1
    keeps_last_token: ClassVar[bool] = False
    max_sequences: int | None = None
    keeps_prefixes: bool = False

    @property
    def timed(self) -> Timed | None:
        """Content that expires at a time; None: no content expires."""
        return None

    @property
    def verifying(self) -> Verifying | None:
        """The tables of sequences that verify drafts in lockstep; None: not supported."""
        return None

    # --- requests and admission ----------------------------------------------------------------

    @abstractmethod
    def refusal(self, request: Request) -> Refusal | None:
        """Why `request` could not run to its end alone in an empty pool; None if it could."""

    @abstractmethod
    def admit(self, seq: Sequence, demand: Demand) -> Admission | None:
        """Allocate `demand` for a waiting sequence without memory; None: no room, nothing
        changed.
        """

    # --- the prefix cache: these do nothing without one ----------------------------------------

    def cached_tokens(self, seq: Sequence) -> int:
        """Leading tokens of `seq` that a prefix cache holds now. Mutates nothing."""
        return 0

    def shared_tokens(self, seq: Sequence) -> int:
        """Leading slots of a running `seq` that other sequences hold too."""
        return 0

    def checkpoint(self, seq: Sequence, num_tokens: int) -> None:
        """Register the first `num_tokens` slots of a running `seq` as cached: a step that computed
        its prompt up to there has returned. No effect if the allocator caches content when its step
        is scheduled.
        """
        return

    @property
    def chunk_tokens(self) -> int:
        """Alignment of prompt chunks in tokens: each chunk except the last ends at a multiple of
        this number, if the step's token budget reaches one.
        """
        return 1

    def cut_chunk(self, seq: Sequence, start_tokens: int, new_tokens: int, most_tokens: int) -> int:
        """Number of tokens, at most `new_tokens`, in the next chunk of a waiting or prefilling
        sequence from `start_tokens` on.

        The chunk ends where content can be cached; 0: none in this step. most_tokens: the most
        tokens of `seq` that one step may compute.
        """
        return new_tokens

    # --- growth and decoding -------------------------------------------------------------------

    @abstractmethod
    def extend(self, seq: Sequence, num_tokens: int, *, turns_before: int = 0) -> Growth | None:
        """Make room so that a running sequence holds `num_tokens` slots in all; None: no room,
        nothing changed.

        The slots of a prefilling sequence are valid then. Those of a decoding sequence are only
        allocated: `advance` fills them. turns_before: decoders with a lower `order` were scheduled
        earlier in this step, so the slots that the next `advance` fills for them are cached
        already.
        """

    def await_steps(self, seq: Sequence) -> None:
        """All steps of a prefilling `seq` have returned: memory held for them may be freed by the
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
        """Allocate for a step of a decoding `seq`, which has not joined the others, up to slot
        `num_tokens`, drafts included; False: no room, nothing changed.

        returned_tokens: slots of steps that have returned. known_tokens: known tokens of `seq`.
        valid_tokens: slots that will be valid when the step has returned. Only called if the
        options of the allocator have drafts in `serves`.
        """
        raise InvariantError(f"{type(self).__name__} has no slots for drafts")

    def step_decided(self) -> None:
        """A step, or a run of steps, has been scheduled: later calls belong to the next one."""
        return

    @abstractmethod
    def join(self, seq: Sequence, num_tokens: int) -> None:
        """`seq`, holding `num_tokens` valid slots, decodes from the next `advance` on."""

    @abstractmethod
    def leave(self, seq: Sequence) -> None:
        """Remove `seq` from the decoders (finished, or skipped in a step); it keeps its memory."""

    @abstractmethod
    def must_extend(self) -> list[Sequence]:
        """The decoding sequences to `extend` before the next `advance`, in `order`: their next
        token has no slot yet.
        """

    @abstractmethod
    def steps_that_fit(self, limit: int) -> int:
        """Number of successive `advance(1)` for which memory suffices, at most `limit`. Paged:
        while free blocks last. Contiguous: until the first buffer is full.
        """

    def steps_head_stays_blocked(self, head: Sequence, limit: int, *, busy: bool) -> int:
        """Number of successive `advance(1)`, at most `limit`, during which the blocked `head` still
        cannot start.

        The split of free bytes by its need does not change meanwhile.

        The result is `limit` if decoding takes nothing from the pool.
        """
        return limit

    @abstractmethod
    def advance(self, steps: int) -> Course:
        """All decoders take one slot a step, `steps` times; returns the change of the ledger.

        steps <= steps_that_fit(steps), or steps == 1 and all of `must_extend()` were extended.
        `advance(a + b)` leaves the same state as `advance(a)` and `advance(b)`.
        """

    def step(self) -> None:
        """`advance(1)` without the change of the ledger."""
        self.advance(1)

    @abstractmethod
    def release(self, seq: Sequence) -> None:
        """Take back all memory of `seq` (finished, preempted); a decoding one leaves first."""

    # --- the ledger ----------------------------------------------------------------------------

    @abstractmethod
    def usage(self, head: Sequence | None, *, busy: bool) -> Usage:
        """The ledger now. head: the first waiting sequence; its need splits the free bytes. busy:
        as in `Demand`.
        """

    def sequence_bytes(self, tokens: int) -> int:
        """Bytes of the content of a sequence with `tokens` valid slots."""
        return self.token_bytes * tokens

    @property
    def pads_blocks(self) -> bool:
        """Whether `rounding` is the padding of blocks of recurrent states and of layer groups."""
        return False

    @property
    def parts(self) -> Parts:
        """The named parts of the ledger now (see parts.py)."""
        return NO_PARTS

    @property
    def saved_bytes(self) -> int | None:
        """Bytes saved by sharing: shared content counted for each holder but the first. Constant
        while the same sequences only decode; None for an allocator where it is not.
        """
        return 0

    @property
    def tells_cached(self) -> bool:
        """Whether `parts` distinguishes why content is cached."""
        return False

    def cache_totals(self) -> CacheTotals:
        """The totals of the prefix cache so far."""
        return CacheTotals()

    @property
    def copied_bytes(self) -> int:
        """Device bytes copied so far (payload, counted once)."""
        return 0

    @abstractmethod
    def granted_tokens(self, seq: Sequence) -> int:
        """Slots granted to `seq` now, valid or not."""

    def place(self, seq: Sequence) -> Place:
        """The address of the KV of a running sequence, in the form that the options' `store`
        names.
        """
        raise InvariantError(f"{type(self).__name__} has no real store to tell places to")

    def missing_tokens(self, seq: Sequence, tokens: int) -> int:
        """Slots still to be granted until `seq` holds `tokens` slots, in whole blocks."""
        return max(0, tokens - self.granted_tokens(seq))

    @abstractmethod
    def check(self) -> None:
        """Raise InvariantError if anything is owned twice, lost, or counted wrong. Slow."""
