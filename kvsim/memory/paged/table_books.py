"""Blocks and bytes that block tables hold."""

from collections.abc import Collection, Sequence

from kvsim.memory.paged.blocks import (
    OUTPUT,
    STATE,
    WINDOW,
    Part,
    Table,
    num_leading_shared,
)
from kvsim.memory.paged.hybrid.copies import Copies
from kvsim.memory.paged.names import BlockNames
from kvsim.memory.paged.pool import BlockPool
from kvsim.memory.paged.shapes import TableShapes
from kvsim.plumbing.units import ceil_div
from kvsim.speculation import Speculation
from kvsim.vllm.grouping import BlockGroup
from kvsim.vllm.sizes import Sizes


class TableBooks(TableShapes):
    """The totals of all block tables.

    used_bytes: valid slots and states, shared ones once; state_bytes: the states among them.
    pad_bytes: padding of held blocks. scratch_bytes: scratch states on which drafts are verified,
    the last blocks of each table of states, one for each draft token; never shared. over_bytes:
    slots of last blocks that will never be filled, in each group. draft_slots: invalid slots
    allocated for drafts.
    counts_units: `take_units` replaces `start_units`, since blocks have no numbers and no token is
    drafted. names: keys of the blocks. retires_behind_gaps: see BlockRules.
    """

    def __init__(
        self,
        pool: BlockPool,
        groups: Sequence[BlockGroup],
        sizes: Sizes,
        block_bytes: int,
        names: BlockNames,
        *,
        states_kept: bool,
        retires_behind_gaps: bool,
        speculation: Speculation | None,
    ) -> None:
        super().__init__(
            groups, sizes, block_bytes, states_kept=states_kept, speculation=speculation
        )
        self._pool, self._names, self._tracked = pool, names, pool.tracked
        self._behind_gaps = retires_behind_gaps
        self.used_bytes = self.state_bytes = self.pad_bytes = self.scratch_bytes = 0
        self.over_bytes = self.draft_slots = 0
        self.counts_units = not (pool.tracked or self._scratch)
        self._single = [g for g in range(len(groups)) if g not in self.placed]
        # Reasons to cache blocks, other than full attention's PROMPT.
        self._why = [
            STATE if group.state_bytes else OUTPUT if reach is None else WINDOW
            for group, reach in zip(groups, self.reaches, strict=True)
        ]
        self.copies = Copies(pool, self._why)
        # Groups with single blocks, as states are: they are few, with gaps.
        self._singly = [pool.singly or bool(group.state_bytes) for group in groups]
        # Whether the order of the freed blocks can be observed.
        self._one_by_one = pool.tracked or not pool.blank_first
        self._all_pads = sum(each.pad_bytes for each in self._shapes)
        slots: dict[int, int] = {}  # bytes of a token in groups with blocks of so many units
        for group in groups:
            if group.slot_bytes:
                span = group.block_size // sizes.unit
                slots[span] = slots.get(span, 0) + group.slot_bytes
        self._slots = sorted(slots.items())

    # --- bytes ---------------------------------------------------------------------------------

    def _book(self, g: int, blocks: int, slots: int) -> None:
        """Add distinct blocks held by group g, and valid slots in them; negative to subtract."""
        group = self.groups[g]
        states = blocks * group.state_bytes
        self.pad_bytes += blocks * self._pads[g]
        self.used_bytes += slots * group.slot_bytes + states
        self.state_bytes += states

    def held_for_copy(self, blocks: int) -> None:
        """Add full blocks of the single table held by copies alone; negative to subtract."""
        self._book(0, blocks, blocks * self._sizes.blocks[0])

    def _book_scratch(self, tables: int, state_bytes: int) -> None:
        """Add tables of a group with scratch states, which are held and not used."""
        num_bytes = tables * self._scratch * state_bytes
        self.scratch_bytes += num_bytes
        self.used_bytes -= num_bytes
        self.state_bytes -= num_bytes

    def unfilled_bytes(self, count: int, final_tokens: int) -> int:
        """Bytes never to be filled of a table of `count` units, by its sequence's final slots."""
        unit, total = self._sizes.unit, 0
        for span, slot_bytes in self._slots:
            room = ceil_div(count, span) * span * unit
            if room > final_tokens:
                total += (room - final_tokens) * slot_bytes
        return total

    def grown(self, final_tokens: int, before: int, after: int) -> None:
        """A table grew from `before` to `after` units. final_tokens: final slots of its
        sequence.
        """
        more = self.unfilled_bytes(after, final_tokens)
        if more:
            self.over_bytes += more - self.unfilled_bytes(before, final_tokens)

    def closed(self, table: Table, final_tokens: int) -> None:
        """A table frees its blocks."""
        self.draft_slots -= table.drafts
        self.gave_up(final_tokens, table.count)

    def gave_up(self, final_tokens: int, count: int) -> None:
        """Slots never to be filled of a table of `count` units are no longer booked."""
        self.over_bytes -= self.unfilled_bytes(count, final_tokens)

    def drafting(self, table: Table, drafts: int) -> None:
        """Set the slots of a table that are allocated for drafts."""
        self.draft_slots += drafts - table.drafts
        table.drafts = drafts

    # --- giving back ---------------------------------------------------------------------------

    def _give_singly(
        self,
        g: int,
        parts: list[Part],
        table: Table,
        nameless: Collection[int],
        slot_blocks: int = 0,
        *,
        slots: int = 0,
        prompt_end: int = 0,
    ) -> None:
        """Group g frees single blocks; all but those with keys or at a place in `nameless` are
        blank. slot_blocks, slots: number of full blocks among them, and other valid slots.
        """
        size, hint = self._sizes.blocks[g], table.hint
        shared = self._pool.give_back_singly(parts, self._why[g], prompt_end, nameless, hint=hint)
        if shared:
            shared -= self.copies.num_alone([(extent, 1) for _, extent, _ in parts])
        self._book(g, shared - len(parts), (shared - slot_blocks) * size - slots)

    def _give(
        self,
        g: int,
        parts: list[Part],
        prompt_end: int,
        nameless: Sequence[int],
        held: int,
        blocks: list[int],
        start: int,
    ) -> int:
        """Group g frees `held` blocks, or only those with keys: see `BlockPool.give_back`. Returns
        the number of blocks with keys.
        """
        num = 0
        for _, _, count in parts:
            num += count
        num_blank = max(0, held - num - len(nameless))
        shared = self._pool.give_back(
            parts, self._why[g], prompt_end, nameless, num_blank, blocks, start
        )
        if shared:
            self._book(g, shared, shared * self._sizes.blocks[g])
        return num

    def _num_prompt(self, g: int, table: Table) -> int:
        """Number of blocks of group g that lie in the prompt, a partly filled one only with a key
        at the end of the prompt.
        """
        size = self._sizes.blocks[g]
        end = table.prompt_tokens // size
        return end + 1 if table.tokens < (end + 1) * size else end

    def _without_keys(self, table: Table, g: int, kept: Sequence[int]) -> Sequence[int]:
        """Places of blocks with known content but no keys: `kept`, and blocks with unshareable
        keys, which lose these.
        """
        parts, most = table.parts[g], self._names.lookable_blocks(table, g)
        place, _, num = parts[-1]
        if place + num <= most:
            return kept
        end = place + num + len(kept)
        while parts and parts[-1][0] >= most:
            self._pool.forget_part(parts.pop())
        return range(parts[-1][0] + parts[-1][2] if parts else 0, end)

    # --- what is held --------------------------------------------------------------------------

    def held_blocks(self, table: Table) -> list[int]:
        """Number of blocks that a table holds in each group."""
        held = [1 + self._scratch] * len(self.groups)
        for g, each in self._shape_of.items():
            held[g] = self._end(table, each) - table.skipped[g]
            if self._singly[g]:
                held[g] = len(table.parts[g])
        return held

    def leading_shared(self, table: Table) -> int:
        """Leading tokens in blocks shared with other tables, in all groups without a window."""
        if not self._pool.num_shared:
            return 0
        shared, sizes = num_leading_shared, self._sizes.blocks
        full = [g for g in self.placed if self.reaches[g] is None]
        return min((shared(table.parts[g]) * sizes[g] for g in full), default=0)

    def length(self, table: Table) -> int:
        """Positions of the first group's table, including freed and null ones."""
        each = self._shape_of.get(0)
        return 1 + self._scratch if each is None else self._end(table, each)

    def blocks_of(self, table: Table) -> list[int]:
        """The numbers of the blocks of a table, group by group."""
        if len(self._singly) == 1 and not self._singly[0]:
            return table.lists[0]
        return [block for numbers in self.numbers_by_group(table) for block in numbers]

    def numbers_by_group(self, table: Table) -> list[list[int]]:
        """The numbers of the blocks of a table, for each group."""
        return [self._numbers(table, g) for g in range(len(self.groups))]

    def _numbers(self, table: Table, g: int) -> list[int]:
        if self._singly[g] and g in self._shape_of:
            return [block for _, extent, _ in table.parts[g] for block in extent.blocks]
        return table.lists[g]
