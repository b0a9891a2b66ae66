"""How the ledger of several block tables moves while decoders take blocks and give them back."""

from kvsim.memory.ledger import NOTHING, Course, Usage
from kvsim.memory.paged.block_pool import BlockPool
from kvsim.memory.paged.groups.tables import GroupTables
from kvsim.memory.paged.shape import BlockShape
from kvsim.memory.paged.slot_counts import SlotCounts


class GroupMoves:
    """Compares the books after each step of one `advance` in which blocks moved with those before.

    slope_bytes: what decoders fill a step. token_bytes: what one slot costs, all layers together.
    """

    def __init__(
        self,
        shape: BlockShape,
        pool: BlockPool,
        tables: GroupTables,
        counts: SlotCounts,
        token_bytes: int,
        slope_bytes: int,
    ) -> None:
        self._shape, self._pool, self._tables, self._counts = shape, pool, tables, counts
        self._token_bytes = token_bytes
        self._slope_bytes = slope_bytes
        self._jumps = self._first = self._second = NOTHING
        self._used_rise = self._allocated_rise = 0
        self._before = self._books()

    def at(self, t: int) -> None:
        """Blocks moved at step t."""
        after = self._books()
        jump = self._jump(after)
        self._before = after
        self._used_rise = max(self._used_rise, self._jumps.used + self._slope_bytes * (t - 1))
        self._jumps = _plus(self._jumps, jump, 1)
        self._first = _plus(self._first, jump, t)
        self._second = _plus(self._second, jump, t * (t - 1) // 2)
        self._allocated_rise = max(self._allocated_rise, self._jumps.allocated)

    def course(self) -> Course:
        """How the ledger moved."""
        slope = Usage(used=self._slope_bytes, reserved=-self._slope_bytes)
        rises = self._used_rise, self._allocated_rise
        return Course(slope, self._jumps, self._first, self._second, *rises)

    def _books(self) -> tuple[int, int, int, int, int]:
        pool, tables = self._pool, self._tables
        free, cached = pool.num_free, pool.num_cached_free
        return free, cached, tables.used_bytes, self._counts.over, tables.pad_bytes

    def _jump(self, after: tuple[int, ...]) -> Usage:
        free, cached, used, over, pad = (b - a for a, b in zip(self._before, after, strict=True))
        block_bytes, over_bytes = self._shape.block_bytes, over * self._token_bytes
        return Usage(
            used=used,
            reserved=-free * block_bytes - used - over_bytes - pad,
            overprovisioned=over_bytes,
            rounding=pad,
            cached=cached * block_bytes,
            idle=(free - cached) * block_bytes,
        )


def _plus(total: Usage, jump: Usage, times: int) -> Usage:
    return Usage(*(a + b * times for a, b in zip(total, jump, strict=True)))
