"""What block tables hold, in blocks and bytes."""

from collections.abc import Collection, Iterable, Sequence

from kvsim.memory.paged.extent import (
    OUTPUT,
    STATE,
    WINDOW,
    Extent,
    Part,
    extents_of,
    num_leading_shared,
)
from kvsim.memory.paged.hybrid.copies import Copies
from kvsim.memory.paged.names import BlockNames
from kvsim.memory.paged.pool import BlockPool
from kvsim.memory.paged.shapes import TableShapes
from kvsim.memory.paged.table import Table
from kvsim.plumbing.errors import InvariantError
from kvsim.plumbing.units import ceil_div
from kvsim.speculation import Speculation
from kvsim.vllm.grouping import BlockGroup
from kvsim.vllm.sizes import Sizes


class TableBooks(TableShapes):
    """used_bytes: valid slots and states, shared ones once; of them state_bytes: states. pad_bytes:
    of held blocks, what no slot or state of their group can fill. scratch_bytes: of states that
    drafts are tried on, the last blocks of each table of states, as many as tokens are drafted;
    nobody else ever has them. over_bytes: slots of last blocks that will never be filled, window by
    window and group by group. draft_slots: slots not valid that drafts were, or may be, written to.

    counts_units: `take_units` does for `start_units`, since no block has a number, and no token is
    drafted. names: what the blocks are found by. retires_behind_gaps: see BlockRules.
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
        # Why blocks are kept, but for full attention's of prompts.
        self._why = [
            STATE if group.state_bytes else OUTPUT if window is None else WINDOW
            for group, window in zip(groups, self.windows, strict=True)
        ]
        self.copies = Copies(pool, self._why)
        # Blocks of which groups are kept one by one: of states there are few, and gaps.
        self._singly = [pool.singly or bool(group.state_bytes) for group in groups]
        # In the order in which a version without blank blocks in front, and numbers, show it.
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
        """Group g holds so many more distinct blocks, and valid slots in them (negative: less)."""
        group = self.groups[g]
        states = blocks * group.state_bytes
        self.pad_bytes += blocks * self._pads[g]
        self.used_bytes += slots * group.slot_bytes + states
        self.state_bytes += states

    def held_for_copy(self, blocks: int) -> None:
        """Copies alone hold so many more full blocks of the one table (negative: less)."""
        self._book(0, blocks, blocks * self._sizes.blocks[0])

    def _book_scratch(self, tables: int, state_bytes: int) -> None:
        """So many more tables of a group have scratch states: held and not used."""
        num_bytes = tables * self._scratch * state_bytes
        self.scratch_bytes += num_bytes
        self.used_bytes -= num_bytes
        self.state_bytes -= num_bytes

    def unfilled_bytes(self, count: int, final_tokens: int) -> int:
        """Of a table with room for `count` units whose sequence will hold so many slots."""
        unit, total = self._sizes.unit, 0
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

    def closed(self, table: Table, final_tokens: int) -> None:
        """A table returns its blocks."""
        self.draft_slots -= table.drafts
        self.gave_up(final_tokens, table.count)

    def gave_up(self, final_tokens: int, count: int) -> None:
        """What a table with room for `count` units will never fill is no longer booked."""
        self.over_bytes -= self.unfilled_bytes(count, final_tokens)

    def drafting(self, table: Table, drafts: int) -> None:
        """So many slots of a table are drafts' from now on."""
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
        """Group g returns blocks that are kept one by one; all but those with keys, and those at
        the places `nameless`, hold nothing. slot_blocks, slots: full blocks among them, and valid
        slots beside.
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
        """Group g returns `held` blocks, or those with keys alone: see `BlockPool.give_back`.
        Returns how many have keys.
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
        """How many blocks of group g's table lie in its prompt; one that is not full is known by
        the prompt's end alone.
        """
        size = self._sizes.blocks[g]
        end = table.prompt_tokens // size
        return end + 1 if table.tokens < (end + 1) * size else end

    def _without_keys(self, table: Table, g: int, kept: Sequence[int]) -> Sequence[int]:
        """Places of blocks that are known without keys: these, and those with keys that no other
        sequence has: these lose their keys.
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
        """How many blocks a table holds in each group."""
        held = [1 + self._scratch] * len(self.groups)
        for g, each in self._shape_of.items():
            held[g] = self._end(table, each) - table.skipped[g]
            if self._singly[g]:
                held[g] = len(table.parts[g])
        return held

    def leading_shared(self, table: Table) -> int:
        """Leading tokens whose blocks other tables hold too, in all groups without a window."""
        if not self._pool.num_shared:
            return 0
        shared, sizes = num_leading_shared, self._sizes.blocks
        full = [g for g in self.placed if self.windows[g] is None]
        return min((shared(table.parts[g]) * sizes[g] for g in full), default=0)

    def length(self, table: Table) -> int:
        """Positions of the first group's table, given back and null ones counted."""
        each = self._shape_of.get(0)
        return 1 + self._scratch if each is None else self._end(table, each)

    def blocks_of(self, table: Table) -> list[int]:
        """The numbers of the blocks of a table, group by group."""
        if len(self._singly) == 1 and not self._singly[0]:
            return table.lists[0]
        return [block for numbers in self.numbers_by_group(table) for block in numbers]

    def numbers_by_group(self, table: Table) -> list[list[int]]:
        """The same for each group."""
        return [self._numbers(table, g) for g in range(len(self.groups))]

    def _numbers(self, table: Table, g: int) -> list[int]:
        if self._singly[g] and g in self._shape_of:
            return [block for _, extent, _ in table.parts[g] for block in extent.blocks]
        return table.lists[g]

    def check(self, live: Iterable[tuple[int, Table]]) -> None:
        """Raise InvariantError unless the books agree with the tables of sequences with so many
        valid slots each.
        """
        ends = self.copies.ends
        states = pad = 0
        num_blocks, seen = len(ends), set[Extent]()
        parts: list[list[Part]] = [[(0, extent, 1) for extent in ends]]
        lists = [extent.blocks for extent in ends]
        used = 0
        valid: dict[Extent, int] = {}  # bytes of valid slots, block by block
        for tokens, table in live:
            held = self.held_blocks(table)
            num_blocks += sum(held)
            numbers = [self._numbers(table, g) for g in range(len(self.groups))]
            lists += numbers
            if self._tracked and held != [len(blocks) for blocks in numbers]:
                raise InvariantError(f"{held} blocks held in lists of other lengths")
            for g, group in enumerate(self.groups):
                parts.append(table.parts[g])
                extents = extents_of(table.parts[g])
                shared = sum(extent.num for extent in extents if extent in seen)
                seen.update(extents)
                pad += (held[g] - shared) * self._pads[g]
                states += (held[g] - shared) * group.state_bytes
                if group.state_bytes:
                    states -= self._scratch * group.state_bytes
                elif self._singly[g]:
                    for place, extent, _ in table.parts[g]:
                        slots = min(group.block_size, tokens - place * group.block_size)
                        valid[extent] = max(slots * group.slot_bytes, valid.get(extent, 0))
                else:
                    start = table.skipped[g] + shared
                    used += (tokens - start * group.block_size) * group.slot_bytes
        self._pool.check(parts, num_blocks, lists)
        found = used + sum(valid.values()) + states, states, pad
        booked = self.used_bytes, self.state_bytes, self.pad_bytes
        if found != booked:
            raise InvariantError(f"used, states and padding are {found} bytes, booked as {booked}")

    def check_slots(self, tables: Iterable[tuple[Table, int]], draft_slots: int) -> None:
        """Raise InvariantError unless the books agree with these tables and final slots, and with
        so many slots of drafts.
        """
        over = sum(self.unfilled_bytes(table.count, final) for table, final in tables)
        if (over, draft_slots) != (self.over_bytes, self.draft_slots):
            raise InvariantError(
                f"{over} over-provisioned bytes and {draft_slots} slots of drafts, booked as"
                f" {self.over_bytes} and {self.draft_slots}"
            )
