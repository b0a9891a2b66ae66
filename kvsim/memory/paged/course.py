"""How the ledger of a pool of blocks moves while decoders take blocks and give them back."""

from collections.abc import Callable, Sequence

from kvsim.memory.ledger import Course, Jumps, Usage, filling, usage_of
from kvsim.memory.paged.shape import BlockShape
from kvsim.memory.parts import CACHED_OUTPUTS, CACHED_STATES, CACHED_WINDOWS, STATES

# Free blocks, cached ones among them, used bytes, bytes of slots never to be filled, padding; bytes
# of states; cached blocks of outputs, of windows and of states.
Books = list[int]
_FREE, _USED, _NUM = 0, 2, 9
_STATES, _OUTPUTS, _WINDOWS, _CHECKPOINTS = 5, 6, 7, 8


class BlockMoves:
    """Compares the books after each step of one `advance` in which blocks moved with those before.

    books: what they say now. slope_bytes: what decoders fill a step. gives_back: blocks go back on
    the way too, so that more may be held there than at the end.
    """

    def __init__(
        self,
        shape: BlockShape,
        books: Callable[[], Books],
        slope_bytes: int,
        *,
        gives_back: bool = False,
    ) -> None:
        self._shape, self._books, self._slope_bytes = shape, books, slope_bytes
        self._gives_back = gives_back
        self._used_rise = self._allocated_rise = 0
        self._start = self._before = books()
        self._jumps = Jumps(_NUM)

    def at(self, t: int) -> None:
        """Blocks moved at step t."""
        before, now = self._before, self._books()
        self._before = now
        if self._gives_back:
            rise = before[_USED] - self._start[_USED] + self._slope_bytes * (t - 1)
            self._used_rise = max(self._used_rise, rise)
            rise = (self._start[_FREE] - now[_FREE]) * self._shape.block_bytes
            self._allocated_rise = max(self._allocated_rise, rise)
        jumps = self._jumps
        for place in range(_NUM):
            gain = now[place] - before[place]
            if gain:
                jumps.add(place, gain, t)

    def course(self) -> Course:
        """How the ledger moved."""
        jumps, size = self._jumps, self._shape.block_bytes
        parts = (
            *jumps.part(_STATES, STATES),
            *jumps.part(_OUTPUTS, CACHED_OUTPUTS, size),
            *jumps.part(_WINDOWS, CACHED_WINDOWS, size),
            *jumps.part(_CHECKPOINTS, CACHED_STATES, size),
        )
        rises = self._used_rise, self._allocated_rise
        return jumps.course(filling(self._slope_bytes), self._ledger, parts, rises)

    def _ledger(self, gains: Sequence[int]) -> Usage:
        """What gains of the books do to the ledger."""
        free, cached, used, over, pad = gains[0], gains[1], gains[2], gains[3], gains[4]
        size = self._shape.block_bytes
        reserved, idle = -free * size - used - over - pad, (free - cached) * size
        return usage_of((used, reserved, over, pad, cached * size, 0, 0, 0, 0, idle))
