"""Sliding windows of the sequences over a radix tree (mem_cache/common.py, allocator/swa.py,
components/swa.py, SGLang 0.5.23).

Each token takes a slot in both pools. A sequence frees its slots of the windows' pool some time
after the window has left them. The tree's own slots are evicted by its LRU order.
"""

from typing import ClassVar

from mypy_extensions import mypyc_attr

from kvsim.memory.prefix_room import WindowRoom
from kvsim.memory.radix.holds import Slots, slots_of
from kvsim.memory.radix.second_memory import Deadlines, SecondMemory
from kvsim.memory.radix.second_pool import Places
from kvsim.memory.radix_hybrid.windows import WindowPart
from kvsim.plumbing.errors import InvariantError
from kvsim.plumbing.units import ceil_div
from kvsim.sequence import Sequence


@mypyc_attr(allow_interpreted_subclasses=True)
class HeldWindows(SecondMemory):
    """Window slots held by sequences. interval: number of slots outside the window that are freed
    together.

    chunk: most tokens of a chunk of a prompt; None: prompts are whole. drops_locks: a sequence that
    decoded a window's worth no longer holds the windows of its prompt. caching: a tree keeps
    prefixes.
    """

    in_steps: ClassVar[bool] = True
    pinned_first: ClassVar[bool] = True

    def __init__(
        self,
        part: WindowPart,
        *,
        lag: int,
        interval: int,
        chunk: int | None,
        drops_locks: bool,
        caching: bool,
    ) -> None:
        super().__init__(part, part.page, grid=part.page, lag=lag)
        self._windows = part
        self._interval = interval
        self._chunk = chunk or 0
        self._drops_locks = drops_locks
        self._caching = caching
        # What ends at a whole page has a window before it then.
        self._tail_kept = max(part.tail, part.page) if caching else part.window
        self._to_give = Deadlines()
        self._to_drop = Deadlines()

    def _whole(self, tokens: int) -> int:
        return tokens - tokens % self._page

    # --- room ----------------------------------------------------------------------------------

    @property
    def windows(self) -> WindowRoom | None:
        return WindowRoom(self._windows.window, self._windows.pool, self._windows_available)

    def _windows_available(self) -> int:
        return self._windows.available

    def units_of(self, tokens: int) -> int:
        return tokens

    def room(self, tokens: int) -> int:
        return min(tokens, self._windows.available)

    def take(self, tokens: int) -> None:
        self._windows.free -= tokens
        if self._windows.free < 0:
            raise InvariantError(f"windows take {-self._windows.free} slots more than are free")

    def fits(self, slots: Slots, tokens: int) -> bool:
        return tokens - slots.protected <= self._windows.available

    def head_fits(self, missing: int) -> bool:
        window = ceil_div(self._windows.window, self._page) * self._page
        return min(missing, window) <= self._windows.available

    def own_units(self, seq: Sequence, slots: Slots) -> int:
        return self._decoders.granted(seq, slots) - slots.own_from

    def progress(self, seq: Sequence) -> list[int | None]:
        return [slots_of(seq).cursor]

    # --- what is given back --------------------------------------------------------------------

    def begin_prefill(self, chunked: Sequence | None, newcomers: list[Sequence]) -> None:
        if chunked is None or self._caching:
            return
        slots = slots_of(chunked)
        start = slots.tokens
        if self.lag:
            if slots.chunks < 1:  # the chunk before it may still be computed
                return
            start -= self._chunk
        self._give(slots, start)

    def joined(self, seq: Sequence, slots: Slots) -> None:
        self._to_give.add(seq, slots.cursor + self._interval + self._windows.window)
        if self._drops_locks:
            self._to_drop.add(seq, slots.joined + self._windows.window)

    def begin_decode(self, stopping: list[Sequence], *, unreturned: int, rides: bool) -> None:
        super().begin_decode(stopping, unreturned=unreturned, rides=rides)
        clock, late = self._decoders.clock, []
        for seq in self._to_give.due(clock - unreturned):
            slots = slots_of(seq)
            computed = seq.base + clock
            if computed == slots.joined:  # its prompt may still be computed
                late.append(seq)
                continue
            if self._is_due(slots, computed - unreturned):
                self._give(slots, computed - unreturned)
            self._to_give.add(seq, self._next_give(slots))
        for seq in late:
            self._to_give.add(seq, slots_of(seq).joined)
        for seq in stopping:
            slots = slots_of(seq)
            if slots.joined >= 0 and self._is_due(slots, slots.tokens - 1):
                self._give(slots, slots.tokens - 1)
        if self._drops_locks:
            self._drop_locks(clock, stopping)

    def _drop_locks(self, clock: int, stopping: list[Sequence]) -> None:
        ending = ((seq, slots_of(seq)) for seq in stopping if slots_of(seq).joined >= 0)
        window = self._windows.window
        ended = [seq for seq, slots in ending if slots.tokens - slots.joined >= window]
        for seq in (*self._to_drop.due(clock), *ended):
            if slots_of(seq).mark:
                self._holds.let_go_of_part(slots_of(seq))

    def _is_due(self, slots: Slots, returned: int) -> bool:
        """Whether enough slots have left the window of a sequence with `returned` counted slots."""
        return returned - self._windows.window >= slots.cursor + self._interval

    def _next_give(self, slots: Slots) -> int:
        """Number of returned slots at which the sequence can free slots again."""
        due = slots.cursor + self._interval + self._windows.window
        if slots.cursor < slots.protected:
            return due  # then the cursor moves, whether or not a page is free by it
        return max(due, slots.cursor + self._page + self._tail_kept)

    def _give(self, slots: Slots, returned: int) -> None:
        """Free a sequence's slots outside its window, given `returned` returned slots. The slots
        needed to continue from a prefix that ends here stay.
        """
        if returned - self._windows.window < slots.cursor + 1:
            return
        first = slots.own_from
        new = self._whole(max(first, returned - self._tail_kept))
        slots.cursor = max(first, new)
        self._windows.free += slots.cursor - first

    # --- what is filed -------------------------------------------------------------------------

    def to_file(self, slots: Slots, tokens: int) -> int | None:
        upto = self._upto(slots, tokens)
        self._give(slots, upto - 1)
        return upto

    def filed(self, slots: Slots, places: Places, tokens: int) -> None:
        self.filed_last(slots, places)
        if places.begin < slots.branch <= tokens:
            slots.branch = 0
            self._give(slots, tokens - 1)

    def to_file_last(self, seq: Sequence, slots: Slots) -> int | None:
        return self._upto(slots, slots.tokens)

    def filed_last(self, slots: Slots, places: Places) -> None:
        before = max(places.begin, places.cursor)
        self._windows.free += slots.own_from - before - places.adopted

    @staticmethod
    def _upto(slots: Slots, tokens: int) -> int:
        """Number of its first `tokens` tokens that a sequence inserts: up to the point where tree
        paths diverge, if there is one.
        """
        return slots.branch if slots.protected < slots.branch <= tokens else tokens

    def shares(self, empty: int, over: int) -> tuple[int, int, int]:
        part = self._windows
        own = part.pool - part.free - part.evictable - part.locked
        return own - empty - over, empty, over
