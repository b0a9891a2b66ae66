"""Pages and a radix tree beside a pool of sliding windows (0.5.23: mem_cache/common.py,
allocator/swa.py, components/swa.py).

Each token takes a slot in both pools. A sequence gives its slots of the windows' pool back some
time after the window has left them; what the tree has of them goes by its own order of use.
"""

from mypy_extensions import mypyc_attr

from kvsim.memory.allocator import Growth
from kvsim.memory.prefix_room import WindowRoom
from kvsim.memory.radix.holds import Slots, slots_of
from kvsim.memory.radix_hybrid.allocator import Deadlines, HybridAllocator, TokenPool
from kvsim.memory.radix_hybrid.windows import WindowPart
from kvsim.plumbing.errors import InvariantError
from kvsim.sequence import Sequence


@mypyc_attr(allow_interpreted_subclasses=True)
class WindowAllocator(HybridAllocator):
    """interval: slots are given back once so many have left the window. chunk: most tokens of a
    chunk of a prompt; None: prompts are whole. drops_locks: a sequence that decoded a window's
    worth no longer holds the windows of its prompt.
    """

    def __init__(
        self,
        pool: TokenPool,
        part: WindowPart,
        *,
        interval: int,
        chunk: int | None,
        drops_locks: bool,
    ) -> None:
        page_size, caching = pool.page_size, pool.caching
        super().__init__(pool, part, grid=page_size, max_sequences=None)
        self._windows = part
        self._interval = interval
        self._chunk = chunk or 0
        self._drops_locks = drops_locks
        # What ends at a whole page has a window before it then.
        self._tail_kept = max(part.tail, page_size) if caching else part.window
        self._to_give = Deadlines()
        self._to_drop = Deadlines()

    # --- room ----------------------------------------------------------------------------------

    @property
    def windows(self) -> WindowRoom | None:
        return WindowRoom(self._windows.window, self._windows.pool, self._windows_available)

    def _windows_available(self) -> int:
        return self._windows.available

    def tokens_for_step(self) -> int:
        return min(self.available_tokens(), self._windows.available)

    def make_room(self, tokens: int) -> None:
        super().make_room(tokens)
        self._make_part_room(tokens)

    def _take(self, tokens: int) -> None:
        super()._take(tokens)
        self._take_windows(tokens)

    def _take_decoded(self, tokens: int) -> None:
        super()._take_decoded(tokens)
        self._take_windows(tokens)

    def _take_windows(self, tokens: int) -> None:
        self._windows.free -= tokens
        if self._windows.free < 0:
            raise InvariantError(f"windows take {-self._windows.free} slots more than are free")

    def progress(self, seq: Sequence) -> list[int | None]:
        return [slots_of(seq).cursor]

    def _own_units(self, seq: Sequence, slots: Slots) -> int:
        return self._decoders.granted(seq, slots) - slots.own_from

    def _part_fits(self, seq: Sequence, tokens: int) -> bool:
        return self._pages(tokens) - slots_of(seq).protected <= self._windows.available

    def _head_fits(self, head: Sequence) -> bool:
        hit = self._holds.hit(head)
        missing = self._pages(head.num_tokens) - hit.tokens
        most = min(missing, self._pages(self._windows.window))
        return most <= self._windows.available and super()._head_fits(head)

    def steps_that_fit(self, limit: int) -> int:
        pages = self.tokens_for_step() // self.page_tokens
        return self._decoders.steps_within(pages, limit)

    def extend(self, seq: Sequence, num_tokens: int, *, turns_before: int = 0) -> Growth | None:
        granted = self._decoders.granted(seq, self._live[seq])
        if self._pages(num_tokens) - granted > self._windows.available:
            return None
        if not seq.decoding:
            slots_of(seq).chunks += 1
        return super().extend(seq, num_tokens, turns_before=turns_before)

    # --- what is given back --------------------------------------------------------------------

    def begin_prefill(self, chunked: Sequence | None, newcomers: list[Sequence]) -> None:
        if chunked is None or self.keeps_prefixes:
            return
        slots = slots_of(chunked)
        start = slots.tokens
        if self._lag:
            if slots.chunks < 1:  # the chunk before it may still be computed
                return
            start -= self._chunk
        self._give(slots, start)

    def join(self, seq: Sequence, num_tokens: int) -> None:
        super().join(seq, num_tokens)
        self._to_give.add(seq, slots_of(seq).cursor + self._interval + self._windows.window)
        if self._drops_locks:
            self._to_drop.add(seq, num_tokens + self._windows.window)

    def begin_decode(self, stopping: list[Sequence], *, unreturned: int, rides: bool) -> None:
        super().begin_decode(stopping, unreturned=unreturned, rides=rides)
        clock, late = self._decoders.clock, []
        for seq in self._to_give.due(clock - unreturned, self._live_decoder):
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
        for seq in (*self._to_drop.due(clock, self._live_decoder), *ended):
            if slots_of(seq).mark:
                self._holds.let_go_of_part(slots_of(seq))

    def _is_due(self, slots: Slots, returned: int) -> bool:
        """Whether enough has left the window of a sequence of which so many slots count."""
        return returned - self._windows.window >= slots.cursor + self._interval

    def _next_give(self, slots: Slots) -> int:
        """At how many returned slots more can be given back."""
        due = slots.cursor + self._interval + self._windows.window
        if slots.cursor < slots.protected:
            return due  # then the cursor moves, whether or not a page is free by it
        return max(due, slots.cursor + self.page_tokens + self._tail_kept)

    def _give(self, slots: Slots, returned: int) -> None:
        """A sequence of which so many slots count gives those of its windows back that are behind
        the window, so that what ends here can still be gone on from.
        """
        if returned - self._windows.window < slots.cursor + 1:
            return
        first = slots.own_from
        new = self._whole(max(first, returned - self._tail_kept))
        slots.cursor = max(first, new)
        self._windows.free += slots.cursor - first

    # --- what is filed -------------------------------------------------------------------------

    def checkpoint(self, seq: Sequence, num_tokens: int) -> None:
        if not self.keeps_prefixes:
            return
        slots = self._live_slots(seq)
        upto, branch = self._upto(slots, num_tokens)
        self._give(slots, upto - 1)
        self._file_windows(seq, slots, upto)
        if branch:
            slots.branch = 0
            self._give(slots, num_tokens - 1)

    def _file_finished(self, seq: Sequence, slots: Slots) -> None:
        self._file_windows(seq, slots, self._upto(slots, slots.tokens)[0])

    @staticmethod
    def _upto(slots: Slots, tokens: int) -> tuple[int, bool]:
        """How much of its first `tokens` tokens is filed, and whether it ends where paths part."""
        if slots.protected < slots.branch <= tokens:
            return slots.branch, True
        return tokens, False

    def _file_windows(self, seq: Sequence, slots: Slots, upto: int) -> None:
        before = slots.own_from
        places = self._file(seq, slots, upto)
        self._windows.free += slots.own_from - before - places.adopted

    def _part_split(self, empty: int) -> tuple[int, int, int]:
        part = self._windows
        own = part.pool - part.free - part.evictable - part.locked
        return own - empty - self._over, empty, self._over
