"""The change of the ledger of a pool of blocks while decoders take and free blocks."""

from kvsim.memory.ledger import NOTHING, Course, Jumps, Usage, course_of, filling, usage_of
from kvsim.memory.paged.blocks import OUTPUT, STATE, WINDOW
from kvsim.memory.paged.pool import BlockPool
from kvsim.memory.paged.shape import BlockShape
from kvsim.memory.paged.tables import BlockTables
from kvsim.memory.parts import CACHED_OUTPUTS, CACHED_STATES, CACHED_WINDOWS, STATES


class BlockMoves:
    """Reads the books after each step of one `advance` in which blocks were taken or freed.

    slope_bytes: bytes that decoders fill in a step. gives_back: blocks are freed on the way too, so
    that more may be held then than at the end.
    """

    def __init__(
        self,
        shape: BlockShape,
        pool: BlockPool,
        tables: BlockTables,
        slope_bytes: int,
        *,
        gives_back: bool = False,
    ) -> None:
        self._shape, self._pool, self._tables = shape, pool, tables
        self._slope_bytes, self._gives_back = slope_bytes, gives_back
        self._used_rise = self._allocated_rise = 0
        self._free_before, self._used_before = pool.num_free, tables.used_bytes
        self._free = Jumps(pool.num_free)
        self._cached = Jumps(pool.num_cached_free)
        self._used = Jumps(tables.used_bytes)
        self._over = Jumps(tables.over_bytes)
        self._pad = Jumps(tables.pad_bytes)
        self._states = Jumps(tables.state_bytes)
        kept = self._kept = pool.kept.copy()
        self._outputs = Jumps(kept[OUTPUT])
        self._windows = Jumps(kept[WINDOW])
        self._checkpoints = Jumps(kept[STATE])

    def at(self, t: int) -> None:
        """Blocks were taken or freed at step t."""
        pool, tables = self._pool, self._tables
        if self._gives_back:
            rise = self._used.value - self._used_before + self._slope_bytes * (t - 1)
            self._used_rise = max(self._used_rise, rise)
            rise = (self._free_before - pool.num_free) * self._shape.block_bytes
            self._allocated_rise = max(self._allocated_rise, rise)
        # Unchanged books are skipped here: this is called in every step that takes blocks.
        if pool.num_free != self._free.value:
            self._free.read(pool.num_free, t)
        if pool.num_cached_free != self._cached.value:
            self._cached.read(pool.num_cached_free, t)
        if tables.used_bytes != self._used.value:
            self._used.read(tables.used_bytes, t)
        if tables.over_bytes != self._over.value:
            self._over.read(tables.over_bytes, t)
        if tables.pad_bytes != self._pad.value:
            self._pad.read(tables.pad_bytes, t)
        if tables.state_bytes != self._states.value:
            self._states.read(tables.state_bytes, t)
        kept = pool.kept
        if kept != self._kept:
            self._kept = kept.copy()
            self._outputs.read(kept[OUTPUT], t)
            self._windows.read(kept[WINDOW], t)
            self._checkpoints.read(kept[STATE], t)

    def course(self) -> Course:
        """The change of the ledger."""
        free, cached, used, over, pad = self._free, self._cached, self._used, self._over, self._pad
        slope, size = filling(self._slope_bytes), self._shape.block_bytes
        if not (free.moved or cached.moved or used.moved or over.moved or pad.moved):
            jumps = first = second = NOTHING
        else:
            jumps = self._ledger(free.total, cached.total, used.total, over.total, pad.total)
            first = self._ledger(free.first, cached.first, used.first, over.first, pad.first)
            second = self._ledger(free.second, cached.second, used.second, over.second, pad.second)
        parts = self._states.part(STATES) + self._outputs.part(CACHED_OUTPUTS, size)
        parts += self._windows.part(CACHED_WINDOWS, size)
        parts += self._checkpoints.part(CACHED_STATES, size)
        return course_of(slope, jumps, first, second, self._used_rise, self._allocated_rise, parts)

    def _ledger(self, free: int, cached: int, used: int, over: int, pad: int) -> Usage:
        """The change of the ledger by gains of free and cached blocks, used bytes, slots never to
        be filled and padding.
        """
        size = self._shape.block_bytes
        reserved, idle = -free * size - used - over - pad, (free - cached) * size
        return usage_of((used, reserved, over, pad, cached * size, 0, 0, 0, 0, idle))
