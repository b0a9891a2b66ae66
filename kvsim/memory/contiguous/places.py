"""The buffers of sequences on an arena: whether they fit, and their allocation."""

from collections.abc import Iterable

from kvsim.memory.allocator import Refusal
from kvsim.memory.arena.placement import Arena
from kvsim.memory.contiguous.full_buffers import Buffer
from kvsim.memory.contiguous.shape import BufferShape


class BufferPlaces:
    """An arena for buffers. shapes: bytes of each buffer of a sequence: one for all layers, or one
    for each layer.
    """

    def __init__(self, arena: Arena, shapes: tuple[BufferShape, ...]) -> None:
        self.arena, self.shapes = arena, shapes
        self._empty = arena.clone()
        self._placeable = (-1, 0, False)  # memo: version, slots, answer

    def _sizes(self, slots: int) -> list[int]:
        return [shape.bytes(slots) for shape in self.shapes]

    def has_place(self, slots: int) -> bool:
        """Whether buffers of `slots` slots, one for each shape, can be allocated now."""
        version, memo, answer = self._placeable
        if version != self.arena.version or memo != slots:
            answer = self.arena.fits_all(self._sizes(slots))
            self._placeable = (self.arena.version, slots, answer)
        return answer

    def put(self, slots: int, owner: str) -> Buffer | None:
        """Allocate buffers of `slots` slots for a sequence; None: no room. owner: name for the
        listener.
        """
        if len(self.shapes) > 1 and not self.has_place(slots):
            return None
        regions: list[int] = []
        granted = 0
        for shape in self.shapes:
            placed = self.arena.allocate(shape.bytes(slots), owner)
            if placed is None:
                return None
            regions.append(placed.address)
            granted += placed.granted
        return Buffer(regions, slots, granted)

    # --- the empty arena -----------------------------------------------------------------------

    def unplaceable(self, slots: Iterable[int]) -> Refusal | None:
        """The refusal of the first of these buffer sizes, in slots, that does not fit in the empty
        arena; None if all fit.
        """
        for asked in slots:
            if not self._ever_placeable(asked):
                return Refusal(
                    "its buffer has no place even in an empty pool",
                    asked,
                    self._longest(asked),
                    "contiguous tokens",
                    "enlarge the pool, ask for a shorter buffer or change the placement",
                )
        return None

    def _ever_placeable(self, slots: int) -> bool:
        return self._empty.fits_all(self._sizes(slots))

    def _longest(self, beyond: int) -> int:
        """The most slots below `beyond` for which buffers fit in the empty arena."""
        low, high = 0, beyond - 1
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._ever_placeable(middle) else (low, middle - 1)
        return low
