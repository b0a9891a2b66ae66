"""Buffers that grow: allocate a larger one, copy, free the old one.

The old buffer lives until its content has been copied, so a growth needs room for the new one in
addition. If a sequence has a buffer for each layer, these are copied one after the other. So only
one old buffer at a time is alive.
"""

from kvsim.memory.allocator import Growth
from kvsim.memory.arena.placement import Arena
from kvsim.memory.contiguous.full_buffers import Buffer
from kvsim.memory.contiguous.places import BufferPlaces
from kvsim.memory.options import MemorySpec
from kvsim.plumbing.errors import InvariantError
from kvsim.plumbing.units import PS_PER_S, ceil_div


class BufferMoves:
    """Grows buffers: in place, or by a copy to a larger one.

    in_place: try first to extend a buffer in place, which copies nothing. allocation_ps: time of
    each allocation (or extension) made to grow. copied_bytes: see `Allocator`.
    """

    def __init__(
        self,
        memory: MemorySpec,
        places: BufferPlaces,
        *,
        in_place: bool = False,
        allocation_ps: int = 0,
    ) -> None:
        self.arena, self._shapes = places.arena, places.shapes
        self._in_place = in_place
        self._allocation_ps = allocation_ps
        self._copy_bytes_per_s = memory.copy_bytes_per_s
        self._old: tuple[int, int] | None = None  # address and bytes of the old buffer
        self.copied_bytes = 0

    @property
    def transient_bytes(self) -> int:
        """Bytes of an old buffer while its content is copied into a grown one."""
        return 0 if self._old is None else self._old[1]

    def check_ended(self) -> None:
        """Raise InvariantError if the copy of the last growth has not ended."""
        if self._old is not None:
            raise InvariantError("a buffer grows before the copy of the last one has ended")

    def grow(self, buffer: Buffer, slots: int, valid: int, owner: str) -> Growth | None:
        """Grow a buffer to `slots` slots, of which `valid` are copied; None: no room, nothing
        changed.
        """
        return self._extend_all(buffer, slots) or self._move_all(buffer, slots, valid, owner)

    def _free_old(self) -> None:
        """Free the old buffer, after its content has been copied."""
        if self._old is not None:
            self.arena.free(self._old[0])
            self._old = None

    def _extend_all(self, buffer: Buffer, slots: int) -> Growth | None:
        """Extend the buffer in place, if the option asks for it and the placement allows it."""
        if not self._in_place:
            return None
        (address,), (shape,) = buffer.regions, self._shapes
        if not self.arena.extend_in_place(address, shape.bytes(slots)):
            return None
        buffer.asked, buffer.granted = slots, self.arena.granted(address)
        return Growth(self._allocation_ps)

    def _to_go_back_to(self, slots: int) -> Arena | None:
        """A snapshot of the arena for rollback, if moving several regions could fail half-way; else
        None.
        """
        sizes = [shape.bytes(slots) for shape in self._shapes if shape.token_bytes]
        if len(self._shapes) == 1 or not sizes:
            return None
        if min(sizes) == max(sizes):
            places = self.arena.places_for(sizes[0], len(sizes))
            if places is not None and places >= len(sizes):
                return None
        return self.arena.clone()

    def _move_all(self, buffer: Buffer, slots: int, valid: int, owner: str) -> Growth | None:
        """Copy every region to a larger one; on failure (None) nothing has changed."""
        before = self._to_go_back_to(slots)
        regions = buffer.regions.copy()
        granted, num_moved, payload = buffer.granted, 0, 0
        for index, shape in enumerate(self._shapes):
            size = shape.bytes(slots)
            if size == shape.bytes(buffer.asked):  # a recurrent state does not grow
                continue
            placed = self.arena.allocate(size, owner)
            if placed is None:
                if before is not None:
                    self.arena.restore(before)
                self._old = None
                return None
            self._free_old()
            address = regions[index]
            self._old = (address, self.arena.granted(address))
            regions[index] = placed.address
            granted += placed.granted - self._old[1]
            num_moved += 1
            payload += shape.bytes(valid)
        buffer.regions, buffer.granted, buffer.asked = regions, granted, slots
        self.copied_bytes += payload
        copying = ceil_div(2 * payload * PS_PER_S, self._copy_bytes_per_s)  # read and written
        return Growth(num_moved * self._allocation_ps + copying, self._free_old)
