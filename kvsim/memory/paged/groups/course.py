"""How the ledger of several block tables moves while decoders take blocks and give them back."""

from kvsim.memory.ledger import Course, Usage, filling
from kvsim.memory.paged.groups.rooms import Rooms
from kvsim.memory.paged.groups.tables import GroupTables
from kvsim.memory.paged.pool import Pool
from kvsim.memory.paged.shape import BlockShape

# Free blocks, cached ones, used bytes, bytes of slots never to be filled, padding.
Books = tuple[int, int, int, int, int]


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

    def course(self) -> Course:
        """How the ledger moved."""
        slope = filling(self._slope_bytes)
        if self._before == self._start and not any(self._second) and not any(self._first):
            return Course(slope, used_rise=self._used_rise, allocated_rise=self._allocated_rise)
        jumps = _plus(self._before, self._start, -1)
        first, second = self._jump(self._first), self._jump(self._second)
        rises = self._used_rise, self._allocated_rise
        return Course(slope, self._jump(jumps), first, second, *rises)

    def _books(self) -> Books:
        pool, tables = self._pool, self._tables
        free, cached = pool.num_free, pool.num_cached_free
        return free, cached, tables.used_bytes, self._rooms.over_bytes, tables.pad_bytes

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
