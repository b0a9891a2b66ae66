"""Recurrent states of the sequences over a radix tree (mem_cache/memory_pool.py, allocation.py,
components/mamba.py, SGLang 0.5.23).

A sequence computes on a private state, a copy of the tree's state after a hit. With the strategy
`no_buffer`, a copy is inserted into the tree at the end of each chunk, of the prompt and of the
output. With buffers (`extra_buffer`), states are checkpointed at multiples of a grid while the
sequence runs on, and an insertion ends at the last checkpoint.
"""

from collections import deque
from collections.abc import Callable
from typing import ClassVar

from mypy_extensions import mypyc_attr

from kvsim.memory.radix.holds import Slots, slots_of
from kvsim.memory.radix.second_memory import Deadlines, SecondMemory
from kvsim.memory.radix.second_pool import Places
from kvsim.memory.radix_hybrid.states import StatePart
from kvsim.memory.radix_hybrid.tracking import TrackingGrid
from kvsim.plumbing.errors import InvariantError
from kvsim.sequence import Sequence


class Boundary:
    """The sequences that reach a multiple of the tracking interval in one step. more: those that
    took a spare slot for the state.
    """

    def __init__(self) -> None:
        self.reached: list[tuple[Sequence, Slots, int]] = []
        self.more: list[Slots] = []


@mypyc_attr(allow_interpreted_subclasses=True)
class HeldStates(SecondMemory):
    """Recurrent states held by sequences. tracking: token counts at which states can be
    checkpointed; None: nowhere (no_buffer). lazily: the second slot for a checkpoint is held only
    while it is written.
    """

    in_steps: ClassVar[bool] = True
    pinned_first: ClassVar[bool] = True

    def __init__(
        self,
        part: StatePart,
        page_size: int,
        *,
        lag: int,
        tracking: TrackingGrid | None,
        lazily: bool,
    ) -> None:
        grid = 1 if tracking is None else tracking.tokens
        super().__init__(part, page_size, grid=grid, lag=lag)
        self._tracking = tracking
        self._lazily = lazily
        self._slots_each = 1
        if tracking is not None:
            self._slots_each += 1 if lazily else 1 + lag
        self._to_track = Deadlines()
        self._boundary: Boundary | None = None  # of the step that is being scheduled
        self._rides = False
        self._in_flight: deque[Boundary | None] = deque()  # of the steps that have not returned

    # --- slots ---------------------------------------------------------------------------------

    def own_units(self, seq: Sequence, slots: Slots) -> int:
        return slots.states

    def fits(self, slots: Slots, tokens: int) -> bool:
        return self._slots_each - slots.states <= self.part.available

    def _take_slots(self, slots: Slots, num: int) -> None:
        self._make_room(num)
        slots.states += num
        self.part.free -= num
        if self.part.free < 0:
            raise InvariantError(f"states take {-self.part.free} slots more than are free")

    def pinned(self, slots: Slots) -> None:
        if slots.protected:
            self._take_slots(slots, 1)

    def unpinned(self, slots: Slots) -> None:
        self.part.free += slots.states
        slots.states = 0

    def begin_prefill(self, chunked: Sequence | None, newcomers: list[Sequence]) -> None:
        self._make_room(sum(self._slots_each - slots_of(seq).states for seq in newcomers))

    def admitted(self, slots: Slots) -> None:
        self._take_slots(slots, self._slots_each - slots.states)

    # --- tracking ------------------------------------------------------------------------------

    def grown(self, slots: Slots, begin: int, end: int) -> None:
        if self._tracking is not None:
            tracked = self._tracking.in_chunk(begin, end, slots.branch)
            if tracked is not None:
                slots.tracked = tracked

    def joined(self, seq: Sequence, slots: Slots) -> None:
        if self._tracking is not None:
            self._to_track.add(seq, self._tracking.after(slots.joined) - 1)

    def steps_alike(self, limit: int) -> int:
        if not self._lazily or not limit:
            return limit
        if any(boundary is not None for boundary in self._in_flight):
            return 0
        clock = self._to_track.next()
        return limit if clock is None else max(0, min(limit, clock - self._decoders.clock))

    def begin_decode(self, stopping: list[Sequence], *, unreturned: int, rides: bool) -> None:
        super().begin_decode(stopping, unreturned=unreturned, rides=rides)
        grid, clock = self._tracking, self._decoders.clock
        if grid is None:
            return
        boundary = Boundary()
        for seq in self._to_track.due(clock):
            slots = slots_of(seq)
            reached = seq.base + clock + 1
            boundary.reached.append((seq, slots, reached))
            self._to_track.add(seq, grid.after(reached) - 1)
        for seq in stopping:
            slots = slots_of(seq)
            if slots.joined >= 0 and grid.ends_at(slots.tokens + 1):
                boundary.reached.append((seq, slots, slots.tokens + 1))
        if not boundary.reached:
            return
        if self._lazily:
            self._boundary, self._rides = boundary, rides
        elif rides:  # a step with prompts keeps no state of those that decode
            for _, slots, reached in boundary.reached:
                slots.untracked.append(reached)

    def step_scheduled(self, order: Callable[[Sequence], int]) -> None:
        boundary, self._boundary = self._boundary, None
        if boundary is not None:
            boundary.reached.sort(key=lambda entry: order(entry[0]))
            free = self.part.free
            for _, slots, _ in boundary.reached:
                if not free:
                    slots.tracked = None  # what was kept is overwritten
                    continue
                free -= 1
                if not self._rides:
                    slots.states += 1
                    boundary.more.append(slots)
            if self._rides:
                boundary = None
            else:
                self.part.free = free
        self._in_flight.append(boundary)

    def step_returned(self) -> None:
        boundary = self._in_flight.popleft()
        if boundary is None:
            return
        for seq, slots, reached in boundary.reached:
            if self._live.get(seq) is slots and slots.joined >= 0:
                slots.tracked = reached
                if slots in boundary.more:
                    slots.states -= 1
                    self.part.free += 1

    def progress(self, seq: Sequence) -> list[int | None]:
        return [slots_of(seq).states, self._tracked_tokens(seq)]

    def _tracked_tokens(self, seq: Sequence) -> int | None:
        """Number of tokens of a running sequence after which a state is checkpointed, as known
        right after scheduling the current step.

        None: no state is checkpointed.
        """
        slots = self._live[seq]
        if seq.decoding:
            return self._tracked(slots, seq.base + self._decoders.clock - 1 - self._unreturned)
        if slots.joined >= 0:
            return self._tracked(slots, slots.tokens - 1 - self._unreturned)
        return slots.tracked

    def _tracked(self, slots: Slots, returned: int) -> int | None:
        """`_tracked_tokens` once `returned` of its slots have been computed."""
        grid = self._tracking
        if grid is None or self._lazily or slots.joined < 0:
            return slots.tracked
        reached = grid.before(returned)
        while reached in slots.untracked:
            reached -= grid.step
        return reached if reached > slots.joined else slots.tracked

    # --- what is filed -------------------------------------------------------------------------

    def to_file(self, slots: Slots, tokens: int) -> int | None:
        if self._tracking is not None:
            if slots.tracked is None:
                return None
            tokens = min(tokens, slots.tracked)
        if not self.part.free and self._lazily:
            self._holds.let_go_of_part(slots)  # it was copied long since
        self._make_room(1)
        if not self.part.free:
            raise InvariantError("no slot is left for the state of a checkpoint")
        return tokens

    def filed(self, slots: Slots, places: Places, tokens: int) -> None:
        self.part.free -= places.adopted
        slots.tracked = None

    def to_file_last(self, seq: Sequence, slots: Slots) -> int | None:
        if self._tracking is None:
            return slots.tokens
        return self._tracked(slots, min(slots.tokens, seq.final_tokens)) or None

    def filed_last(self, slots: Slots, places: Places) -> None:
        slots.states -= places.adopted

    def shares(self, empty: int, over: int) -> tuple[int, int, int]:
        part = self.part
        return part.pool - part.free - part.evictable - part.locked, 0, 0
