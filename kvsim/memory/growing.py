"""Buffers that grow: allocate a larger one, copy, free the old one.

The old buffer lives until its content has been copied (`settle`), so a growth needs room for the
new one beside it. Where a sequence has a buffer for each layer they move one after the other, and
one old buffer at a time is alive.
"""

from kvsim.errors import InvariantError
from kvsim.memory.allocator import MemorySpec
from kvsim.memory.arena.placement import Arena
from kvsim.memory.buffer_shape import BufferShape
from kvsim.memory.contiguous import Buffer, Contiguous
from kvsim.sequence import Sequence
from kvsim.units import PS_PER_S, ceil_div


class Growing(Contiguous):
    """A subclass says how many slots to ask for next.

    in_place: try first to extend a buffer where it stands, which copies nothing.
    allocation_ps: time of each allocation (or extension) made to grow.
    """

    def __init__(
        self,
        memory: MemorySpec,
        arena: Arena,
        shapes: tuple[BufferShape, ...] | None = None,
        *,
        in_place: bool = False,
        allocation_ps: int = 0,
    ) -> None:
        super().__init__(memory, arena, shapes)
        self._in_place = in_place
        self._allocation_ps = allocation_ps
        self._copy_bytes_per_s = memory.copy_bytes_per_s
        self._old: tuple[int, int] | None = None  # address and bytes of the old buffer
        self._pending_ps = 0

    def extend(self, seq: Sequence, num_tokens: int) -> bool:
        if self._old is not None:
            raise InvariantError("a buffer grows before the copy of the last one has settled")
        self._pending_ps = 0
        return super().extend(seq, num_tokens)

    def copy_pending_ps(self) -> int:
        return self._pending_ps

    def settle(self) -> None:
        if self._old is not None:
            self.arena.free(self._old[0])
            self._old = None

    def _transient_bytes(self) -> int:
        return 0 if self._old is None else self._old[1]

    def _grow(self, seq: Sequence, buffer: Buffer, tokens: int) -> bool:
        slots = self._slots_for(seq, tokens)
        valid = buffer.base + self._clock if buffer.ticket >= 0 else buffer.tokens
        self._book(seq, buffer, -1)
        grown = self._extend_all(buffer, slots) or self._move_all(buffer, slots, valid)
        self._book(seq, buffer, 1)
        if grown and buffer.ticket >= 0:
            self._watch(seq, buffer)
        return grown

    def _extend_all(self, buffer: Buffer, slots: int) -> bool:
        """Extend the buffer where it stands, if that is asked for and possible."""
        if not self._in_place:
            return False
        (address,), (shape,) = buffer.regions, self._shapes
        if not self.arena.extend_in_place(address, shape.bytes(slots)):
            return False
        buffer.asked, buffer.granted = slots, self.arena.granted(address)
        self._pending_ps = self._allocation_ps
        return True

    def _move_all(self, buffer: Buffer, slots: int, valid: int) -> bool:
        """Move every region into a larger one; on failure all are as large as before."""
        moved: list[int] = []
        payload = 0
        for index, shape in enumerate(self._shapes):
            size = shape.bytes(slots)
            if size == shape.bytes(buffer.asked):  # a recurrent state does not grow
                continue
            placed = self.arena.allocate(size)
            if placed is None:
                self._move_back(buffer, moved)
                return False
            self.settle()
            address = buffer.regions[index]
            self._old = (address, self.arena.granted(address))
            buffer.regions[index] = placed.address
            buffer.granted += placed.granted - self._old[1]
            moved.append(index)
            payload += shape.bytes(valid)
        buffer.asked = slots
        self.copied_bytes += payload
        copying = ceil_div(2 * payload * PS_PER_S, self._copy_bytes_per_s)  # read and written
        self._pending_ps = len(moved) * self._allocation_ps + copying
        return True

    def _move_back(self, buffer: Buffer, moved: list[int]) -> None:
        """Undo the moves of a growth that failed: the last old region still lives, the others get
        a place again where their grown ones stood.
        """
        for index in reversed(moved):
            address = buffer.regions[index]
            buffer.granted -= self.arena.granted(address)
            self.arena.free(address)
            if self._old is not None:
                (back, granted), self._old = self._old, None
            else:
                placed = self.arena.allocate(self._shapes[index].bytes(buffer.asked))
                assert placed is not None, "a smaller region fits where a larger one stood"
                back, granted = placed
            buffer.regions[index] = back
            buffer.granted += granted
