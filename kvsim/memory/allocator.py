"""What an allocator promises the scheduler.

The scheduler admits sequences, computes their prompts chunk by chunk (`admit`, `extend`), lets them
`join` the decoders, moves all decoders on together (`advance`), and takes memory back (`release`).
Nothing here knows of time: the allocator counts decode steps, the engine knows how long they took.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Literal, NamedTuple

from kvsim.layout import KVLayout
from kvsim.memory.ledger import Course, Usage
from kvsim.plumbing.errors import InvariantError
from kvsim.plumbing.options import Options
from kvsim.request import Request
from kvsim.sequence import Sequence


class MemorySpec(NamedTuple):
    """The pool an allocator is built on.

    capacity_bytes: the pool. layout: bytes per token by layer group.
    max_model_len: the longest sequence, in tokens, the model (or the user) allows.
    copy_bytes_per_s: device copy bandwidth, bytes moved (read + written) per second.
    hash_lag: tokens by which generated content becomes known late: 1 under asynchronous scheduling,
        where a step is scheduled before the token it continues has returned.
    semantics: whose rules apply where versions differ: "vllm-0.33", "vllm-0.11" or
        "vllm-v0".
    max_in_flight_tokens: most tokens scheduled at once whose step has not returned, where the
        scheduler computes prompts in chunks; None: prompts are computed whole.
    """

    capacity_bytes: int
    layout: KVLayout
    max_model_len: int
    copy_bytes_per_s: int
    hash_lag: int = 0
    semantics: str = "vllm-0.33"
    max_in_flight_tokens: int | None = None


class Refusal(NamedTuple):
    """Why a request can never run: what it needs, what there is, and the way out."""

    reason: str
    value: int
    limit: int
    unit: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.value:,} {self.unit}, limit {self.limit:,}; {self.remedy}"


StoreKind = Literal["blocks", "slots", "buffers"]


class Place(NamedTuple):
    """Where the KV of a sequence lies: in blocks, by its block table (ids from 0 to the number of
    blocks in the pool), or in one buffer of `slots` slots at a byte address of the pool.
    """

    blocks: list[int] | tuple[int, ...] = ()
    address: int = 0
    slots: int = 0


WASTE = ("external", "transient", "rounding", "overprovisioned", "reserved")


class Removal(NamedTuple):
    """One or more classes of waste, and the allocator without them; None: only one without any
    waste at all lacks them.
    """

    classes: tuple[str, ...]
    options: "AllocatorOptions | None"


class AllocatorOptions(Options):
    """Options of one allocator kind; its fields are the keys beside `kind` in `[[allocator]]`."""

    label: str | None = None

    @property
    def store(self) -> StoreKind | None:
        """Which store of the torch backend keeps the KV that this allocator hands out, so that a
        scenario can be served for real: "blocks" of one pool (the allocator has a `block_size`),
        "slots" of one address space, "buffers", a tensor a sequence; its `place` then says where.
        None: no store does.
        """
        return None

    def removals(self) -> Iterator[Removal]:
        """The same allocator with one class of WASTE after another removed, outermost first; each
        step keeps what those before it removed, and no class comes twice.

        A kind that does not say how goes to the ideal in one step.
        """
        yield Removal(WASTE, None)

    def build(self, memory: MemorySpec) -> "Allocator":
        """A fresh allocator on an empty pool; InputError if the options do not fit the pool."""
        raise NotImplementedError(type(self).__name__)  # every registered kind overrides this


class Allocator(ABC):
    """One pool and the way it is handed out. Units: slots (tokens) in calls, bytes in the ledger.

    gives_back: decoding frees memory as it goes, as windows do.
    token_bytes: what one slot costs, all layers together.
    swappable: whether a sequence's slots can come back from elsewhere, all of them at once.
    copied_bytes: device bytes copied so far (payload, counted once).
    hit_tokens, query_tokens: prefix-cache totals (0 without one). host_hit_tokens: of the hits,
        those from a tier in host memory; host_bytes: moved to it and back.
    """

    capacity_bytes: int
    token_bytes: int
    gives_back: bool = False
    swappable: bool = True
    copied_bytes: int = 0
    query_tokens: int = 0
    hit_tokens: int = 0
    host_hit_tokens: int = 0
    host_bytes: int = 0

    @abstractmethod
    def refusal(self, request: Request) -> Refusal | None:
        """Why `request` could not run to its end alone in an empty pool; None if it could."""

    def cached_tokens(self, seq: Sequence) -> int:
        """Leading tokens of `seq` that a prefix cache holds now. Mutates nothing."""
        return 0

    @abstractmethod
    def admit(
        self, seq: Sequence, num_tokens: int, *, cached_tokens: int, reserve_tokens: int, busy: bool
    ) -> bool:
        """Give a waiting sequence memory for its first `num_tokens` slots; False changes nothing.

        `seq` holds nothing. cached_tokens: what `cached_tokens(seq)` said, taken over (hits).
        reserve_tokens >= num_tokens: so many must fit now, though later chunks take them.
        busy: other sequences run (a watermark then applies).
        """

    def take_loaded_bytes(self) -> int:
        """Bytes that the last `admit` brings from host memory, told once; 0 without such a tier."""
        return 0

    @abstractmethod
    def extend(self, seq: Sequence, num_tokens: int) -> bool:
        """Make room so that a running sequence holds `num_tokens` slots in all; False: no room,
        nothing changed.

        For a prefilling sequence these slots are then valid. For a decoding one only the room is
        made: `advance` fills it.
        """

    @abstractmethod
    def join(self, seq: Sequence, num_tokens: int) -> None:
        """`seq`, holding `num_tokens` valid slots, decodes from the next `advance` on."""

    @abstractmethod
    def leave(self, seq: Sequence) -> None:
        """`seq` stops decoding (finished, or passed over in a step) and keeps its memory."""

    @abstractmethod
    def due(self) -> list[Sequence]:
        """The decoding sequences whose next token has no room yet, in `order`."""

    @abstractmethod
    def steps_that_fit(self, limit: int) -> int:
        """How many successive `advance(1)` of all decoders are safe now, at most `limit`.

        Paged: while free blocks last. Contiguous: until the first buffer is full.
        """

    def pass_turns(self, order: int) -> None:
        """Decoders before `order` have had their turn in this step: what the next `advance` fills
        for them is known content already, for whoever comes after them.
        """
        return

    @abstractmethod
    def advance(self, steps: int) -> Course:
        """All decoders take one slot a step, `steps` times; returns how the ledger moved.

        steps <= steps_that_fit(steps), or steps == 1 and every `due()` was extended.
        `advance(a + b)` leaves the same state as `advance(a)` and `advance(b)`.
        """

    @abstractmethod
    def release(self, seq: Sequence) -> None:
        """Take back all memory of `seq` (finished, preempted); a decoding one leaves first."""

    @abstractmethod
    def usage(self, head: Sequence | None, *, busy: bool) -> Usage:
        """The ledger now. head: the first waiting sequence, whose need splits the free bytes;
        busy: as in `admit`.
        """

    def sequence_bytes(self, tokens: int) -> int:
        """Content of a sequence with so many valid slots."""
        return self.token_bytes * tokens

    @property
    def saved_bytes(self) -> int | None:
        """What sequences hold together, counted for each but the first of them. It does not move
        while the same sequences only decode; None for an allocator where it would.
        """
        return 0

    @abstractmethod
    def held_tokens(self, seq: Sequence) -> int:
        """Slots granted to `seq` now, valid or not."""

    def place(self, seq: Sequence) -> Place:
        """Where the KV of a running sequence lies, for the store that its options name."""
        raise InvariantError(f"{type(self).__name__} has no real store to tell places to")

    def missing_tokens(self, seq: Sequence, tokens: int) -> int:
        """Slots that must yet be granted for `seq` to hold `tokens`, by whole blocks."""
        return max(0, tokens - self.held_tokens(seq))

    def spare_steps(self, head: Sequence, limit: int, *, busy: bool) -> int:
        """For how many `advance(1)` the split of free bytes by `head` stays what it is, at most
        `limit`; a pool that decoding does not shrink keeps it for ever.
        """
        return limit

    def may_gain(self, head: Sequence) -> bool:
        """Whether decoding alone could make `head` easier to admit (its next cached block is
        being filled right now).
        """
        return False

    def copy_pending_ps(self) -> int:
        """Time the last successful `extend` needs for allocating and copying, 0 if none."""
        return 0

    def settle(self) -> None:
        """That copy is done: free the old buffer. Called once after every `extend` with a copy."""
        if self.copy_pending_ps():
            raise InvariantError(f"{type(self).__name__} copies and does not say when it is done")

    @abstractmethod
    def check(self) -> None:
        """Raise InvariantError if anything is owned twice, lost, or counted wrong. Slow."""
