"""How the ledger of several block tables moves while decoders take blocks and give them back."""

from kvsim.memory.ledger import NOTHING, Course, Usage, filling
from kvsim.memory.paged.groups.rooms import Rooms
from kvsim.memory.paged.groups.tables import GroupTables
from kvsim.memory.paged.kept import OUTPUT, STATE, WINDOW
from kvsim.memory.paged.pool import Pool
from kvsim.memory.paged.shape import BlockShape
from kvsim.memory.parts import CACHED_OUTPUTS, CACHED_STATES, CACHED_WINDOWS, STATES, PartMove

# Free blocks, cached ones, used bytes, bytes of slots never to be filled, padding.
Books = tuple[int, int, int, int, int]
# Bytes of states, cached blocks of outputs, of windows and of states.
Named = tuple[int, int, int, int]
_PLACES = (STATES, CACHED_OUTPUTS, CACHED_WINDOWS, CACHED_STATES)


class GroupMoves:
    """Compares the books after each step of one `advance` in which blocks moved with those before.

    slope_bytes: what decoders fill a step.
    """

    def __init__(
        self,
        shape: BlockShape,
        pool: Pool,
        tables: GroupTables,
        rooms: Rooms,
        slope_bytes: int,
    ) -> None:
        self._shape, self._pool, self._tables, self._rooms = shape, pool, tables, rooms
        self._slope_bytes = slope_bytes
        self._used_rise = self._allocated_rise = 0
        self._start = self._before = self._books()
        # Sums of the jumps, weighted by t and by t * (t - 1) / 2.
        self._first = self._second = (0, 0, 0, 0, 0)
        self._named_start = self._named_before = self._named()
        self._named_first = self._named_second = (0, 0, 0, 0)

    def at(self, t: int) -> None:
        """Blocks moved at step t."""
        free, cached, used, over, pad = self._before
        rise = used - self._start[2] + self._slope_bytes * (t - 1)
        self._used_rise = max(self._used_rise, rise)
        now = self._before = self._books()
        self._allocated_rise = max(
            self._allocated_rise, (self._start[0] - now[0]) * self._shape.block_bytes
        )
        jump = now[0] - free, now[1] - cached, now[2] - used, now[3] - over, now[4] - pad
        self._first = _plus(self._first, jump, t)
        self._second = _plus(self._second, jump, t * (t - 1) // 2)
        named, was = self._named(), self._named_before
        if named != was:
            moved = named[0] - was[0], named[1] - was[1], named[2] - was[2], named[3] - was[3]
            self._named_first = _more(self._named_first, moved, t)
            self._named_second = _more(self._named_second, moved, t * (t - 1) // 2)
            self._named_before = named

    def course(self) -> Course:
        """How the ledger moved."""
        slope = filling(self._slope_bytes)
        rest = self._used_rise, self._allocated_rise, self._parts()
        if self._before == self._start and not any(self._second) and not any(self._first):
            return Course(slope, NOTHING, NOTHING, NOTHING, *rest)
        jumps = _plus(self._before, self._start, -1)
        first, second = self._jump(self._first), self._jump(self._second)
        return Course(slope, self._jump(jumps), first, second, *rest)

    def _books(self) -> Books:
        pool, tables = self._pool, self._tables
        free, cached = pool.num_free, pool.num_cached_free
        return free, cached, tables.used_bytes, self._rooms.over_bytes, tables.pad_bytes

    def _named(self) -> Named:
        kept = self._pool.kept.nums
        return self._tables.state_bytes, kept[OUTPUT], kept[WINDOW], kept[STATE]

    def _parts(self) -> tuple[PartMove, ...]:
        if not any(self._named_first) and not any(self._named_second):
            return ()
        jumps = _more(self._named_before, self._named_start, -1)
        sums = zip(_PLACES, jumps, self._named_first, self._named_second, strict=True)
        size, found = self._shape.block_bytes, []
        for place, *moved in sums:
            if any(moved):
                each = 1 if place == STATES else size
                found.append((place, moved[0] * each, moved[1] * each, moved[2] * each))
        return tuple(found)

    def _jump(self, moved: Books) -> Usage:
        free, cached, used, over, pad = moved
        block_bytes = self._shape.block_bytes
        return Usage(
            used=used,
            reserved=-free * block_bytes - used - over - pad,
            overprovisioned=over,
            rounding=pad,
            cached=cached * block_bytes,
            idle=(free - cached) * block_bytes,
        )


def _plus(total: Books, jump: Books, times: int) -> Books:
    free, cached, used, over, pad = total
    return (
        free + jump[0] * times,
        cached + jump[1] * times,
        used + jump[2] * times,
        over + jump[3] * times,
        pad + jump[4] * times,
    )


def _more(total: Named, moved: Named, times: int) -> Named:
    states, outputs, windows, checkpoints = total
    return (
        states + moved[0] * times,
        outputs + moved[1] * times,
        windows + moved[2] * times,
        checkpoints + moved[3] * times,
    )
