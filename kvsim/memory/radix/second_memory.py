"""The second pool of a radix tree: which units sequences hold, and when they are allocated and
freed.

`SecondMemory` itself is for a tree without a second pool; subclasses hold sliding windows or
recurrent states.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import ClassVar

from mypy_extensions import mypyc_attr

from kvsim.memory.prefix_room import WindowRoom
from kvsim.memory.radix.decoders import RadixDecoders
from kvsim.memory.radix.holds import Holds, Slots
from kvsim.memory.radix.second_pool import NoSecondPool, Places, SecondPool
from kvsim.sequence import Sequence


def decodes_still(seq: Sequence, order: int) -> bool:
    """Whether `seq` has been decoding ever since it got this `order`."""
    return seq.decoding and seq.order == order


class Deadlines:
    """The decode steps (clock values) at which single sequences must be visited."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Sequence]] = []

    def add(self, seq: Sequence, slots: int) -> None:
        """Plan to visit `seq` once it has `slots` slots."""
        heappush(self._heap, (slots - seq.base, seq.order, seq))

    def next(self) -> int | None:
        """The clock of the first deadline of a sequence that is still decoding; None without
        one.
        """
        heap = self._heap
        while heap and not decodes_still(heap[0][2], heap[0][1]):
            heappop(heap)
        return heap[0][0] if heap else None

    def due(self, clock: int) -> list[Sequence]:
        """Remove and return the sequences with deadlines up to `clock`, in running order."""
        heap, found = self._heap, []
        while heap and heap[0][0] <= clock:
            _, order, seq = heappop(heap)
            if decodes_still(seq, order):
                found.append(seq)
        return sorted(found, key=lambda seq: seq.order)


@mypyc_attr(allow_interpreted_subclasses=True)
class SecondMemory:
    """The sequences' memory in a second pool. part: the pool, and what the tree holds of it. grid:
    see `Holds`. lag: 1 if a step is scheduled before the previous one has returned, else 0.

    in_steps: decode steps are taken one by one, each begun by `begin_decode`; a step visits only
    sequences with a deadline. pinned_first: an unpinned sequence is pinned to test whether it can
    be admitted, which counts as a use.
    """

    in_steps: ClassVar[bool] = False
    pinned_first: ClassVar[bool] = False

    def __init__(self, part: SecondPool, page_size: int, *, grid: int = 1, lag: int = 0) -> None:
        self.part = part
        self.grid = grid
        self.lag = lag
        self._page = page_size
        self._unreturned = lag  # steps in flight at the start of the step being scheduled

    def attach(
        self,
        decoders: RadixDecoders,
        holds: Holds,
        live: dict[Sequence, Slots],
        make_room: Callable[[int], None],
    ) -> None:
        """Connect the allocator's decoding sequences, holds and live sequences. make_room: function
        that evicts content of this pool until a given number of units is free.

        Called once, before anything runs.
        """
        self._decoders, self._holds, self._live = decoders, holds, live
        self._make_room = make_room

    # --- room ----------------------------------------------------------------------------------

    @property
    def windows(self) -> WindowRoom | None:
        """See `PrefixRoom.windows`."""
        return None

    def units_of(self, tokens: int) -> int:
        """Number of free units needed to allocate `tokens` tokens."""
        return 0

    def room(self, tokens: int) -> int:
        """How many of `tokens` available slots this pool lets be allocated."""
        return tokens

    def take(self, tokens: int) -> None:
        """Count `tokens` newly allocated slots."""
        return

    def fits(self, slots: Slots, tokens: int) -> bool:
        """Whether there is room for a waiting, pinned sequence of `tokens` tokens, in whole
        pages.
        """
        return True

    def head_fits(self, missing: int) -> bool:
        """Whether there is room for a waiting sequence that lacks `missing` tokens; True if this
        pool was not the reason to wait.
        """
        return True

    def steps_alike(self, limit: int) -> int:
        """Number of decode steps, at most `limit`, that need no visit to a single sequence's
        states.
        """
        return limit

    # --- the life of a sequence ----------------------------------------------------------------

    def pinned(self, slots: Slots) -> None:
        """Note that a waiting sequence locked its hits, of which there may be none."""
        return

    def unpinned(self, slots: Slots) -> None:
        """Note that the sequence will unlock its nodes."""
        return

    def begin_prefill(self, chunked: Sequence | None, newcomers: list[Sequence]) -> None:
        """See `PrefixRoom.begin_prefill`."""
        return

    def admitted(self, slots: Slots) -> None:
        """Note that a sequence was admitted."""
        return

    def grown(self, slots: Slots, begin: int, end: int) -> None:
        """Note that a sequence computes tokens `begin` to `end` in one step."""
        return

    def joined(self, seq: Sequence, slots: Slots) -> None:
        """Note that `seq` decodes from the next step on."""
        return

    def own_units(self, seq: Sequence, slots: Slots) -> int:
        """Units that a live sequence holds outside the tree."""
        return 0

    # --- steps ---------------------------------------------------------------------------------

    def begin_decode(self, stopping: list[Sequence], *, unreturned: int, rides: bool) -> None:
        """See `PrefixRoom.begin_decode`."""
        self._unreturned = unreturned

    def step_scheduled(self, order: Callable[[Sequence], int]) -> None:
        """See `PrefixRoom.step_scheduled`."""
        return

    def step_returned(self) -> None:
        """See `PrefixRoom.step_returned`."""
        return

    def progress(self, seq: Sequence) -> list[int | None]:
        """The numbers on a sequence's second-pool memory that a recorded SGLang schedule has for
        each step (reports/schedules/README.md), right after a step was scheduled.
        """
        return []

    # --- what is filed -------------------------------------------------------------------------

    def to_file(self, slots: Slots, tokens: int) -> int | None:
        """Number of its first `tokens` tokens (all returned) that a live sequence inserts into the
        tree; makes room for their content. None: it inserts nothing.
        """
        return tokens

    def filed(self, slots: Slots, places: Places, tokens: int) -> None:
        """Note that the tree took over `places`, the insertion of the first `tokens` tokens."""
        return

    def to_file_last(self, seq: Sequence, slots: Slots) -> int | None:
        """`to_file` for a sequence that has all its tokens."""
        return slots.tokens

    def filed_last(self, slots: Slots, places: Places) -> None:
        """`filed` for the last insertion of a sequence, when it has ended."""
        return

    # --- the ledger ----------------------------------------------------------------------------

    def shares(self, empty: int, over: int) -> tuple[int, int, int]:
        """Units that live sequences hold outside the tree, as (in use, to be used, never to be
        used).

        empty: slots of pages that are still to be filled; over: slots that never will be.
        """
        return 0, 0, 0


def no_second_memory(page_size: int) -> SecondMemory:
    """A `SecondMemory` for a tree without a second pool."""
    return SecondMemory(NoSecondPool(), page_size)
