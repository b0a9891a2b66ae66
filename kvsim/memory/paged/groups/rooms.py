"""The room of tables beyond what their sequences will ever fill, and what of it drafts hold."""

from collections.abc import Iterable, Sequence

from kvsim.memory.paged.groups.table import GroupTable
from kvsim.plumbing.errors import InvariantError
from kvsim.plumbing.units import ceil_div
from kvsim.vllm.grouping import BlockGroup
from kvsim.vllm.sizes import Sizes


class Rooms:
    """over_bytes: slots of last blocks that will never be filled, window by window and group by
    group. drafts: slots not valid that drafts were, or may be, written to.
    """

    def __init__(self, groups: Sequence[BlockGroup], sizes: Sizes) -> None:
        self.over_bytes = 0
        self.drafts = 0
        self._unit = sizes.unit
        slots: dict[int, int] = {}  # bytes of a token in groups with blocks of so many units
        for group in groups:
            if group.slot_bytes:
                span = group.block_size // sizes.unit
                slots[span] = slots.get(span, 0) + group.slot_bytes
        self._slots = sorted(slots.items())

    def unfilled_bytes(self, count: int, final_tokens: int) -> int:
        """Of a table with room for `count` units whose sequence will hold so many slots."""
        unit, total = self._unit, 0
        for span, slot_bytes in self._slots:
            room = ceil_div(count, span) * span * unit
            if room > final_tokens:
                total += (room - final_tokens) * slot_bytes
        return total

    def grown(self, final_tokens: int, before: int, after: int) -> None:
        """A table of a sequence that will hold so many slots had `before` units and has `after`."""
        more = self.unfilled_bytes(after, final_tokens)
        if more:
            self.over_bytes += more - self.unfilled_bytes(before, final_tokens)

    def closed(self, table: GroupTable, final_tokens: int) -> None:
        """A table returns its blocks."""
        self.drafts -= table.drafts
        self.gave_up(final_tokens, table.count)

    def gave_up(self, final_tokens: int, count: int) -> None:
        """What a table with room for `count` units will never fill is no longer booked."""
        self.over_bytes -= self.unfilled_bytes(count, final_tokens)

    def drafting(self, table: GroupTable, drafts: int) -> None:
        """So many slots of a table are drafts' from now on."""
        self.drafts += drafts - table.drafts
        table.drafts = drafts

    def check(self, tables: Iterable[tuple[GroupTable, int]], drafts: int) -> None:
        """Raise InvariantError unless the books agree with these tables and final slots, and with
        so many slots of drafts.
        """
        over = sum(self.unfilled_bytes(table.count, final) for table, final in tables)
        if (over, drafts) != (self.over_bytes, self.drafts):
            raise InvariantError(
                f"{over} over-provisioned bytes and {drafts} slots of drafts, booked as"
                f" {self.over_bytes} and {self.drafts}"
            )
