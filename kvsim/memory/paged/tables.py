"""Block tables of the groups of layers over one pool: the blocks that they take, hold and free."""

from collections.abc import Collection, Sequence

from kvsim.memory.paged.block_keys import BlockNames
from kvsim.memory.paged.blocks import (
    NO_BLOCKS,
    NO_PARTS,
    OUTPUT,
    STATE,
    WINDOW,
    Extent,
    Part,
    Table,
    num_leading_shared,
)
from kvsim.memory.paged.group_lookup import Hits
from kvsim.memory.paged.hybrid.copies import Copies
from kvsim.memory.paged.hybrid.states import grown_states, retired_states
from kvsim.memory.paged.pool import BlockPool
from kvsim.memory.paged.windows import GroupsOfOneShape, TableShapes
from kvsim.plumbing.units import ceil_div


class BlockTables:
    """Allocates and frees the blocks of tables, and tracks totals over all tables.

    shapes: positions of blocks. names: keys of the blocks. retires_behind_gaps: see BlockRules.
    used_bytes: valid slots and states, shared ones once; state_bytes: the states among them.
    pad_bytes: padding of held blocks. scratch_bytes: scratch states on which drafts are verified,
    the last blocks of each table of states, one for each draft token; never shared. over_bytes:
    slots of last blocks that will never be filled, in each group. draft_slots: invalid slots
    allocated for drafts. counts_units: `take_units` replaces `start_units`, since blocks have no
    numbers and no token is drafted.
    """

    def __init__(
        self,
        pool: BlockPool,
        shapes: TableShapes,
        names: BlockNames,
        *,
        retires_behind_gaps: bool,
    ) -> None:
        self._pool, self._names, self._tracked = pool, names, pool.tracked
        self.shapes, self._sizes, self._pads = shapes, shapes.sizes, shapes.pads
        self.groups = groups = shapes.groups
        self._scratch, self._extra = shapes.scratch, shapes.extra
        self._behind_gaps = retires_behind_gaps
        self.used_bytes = self.state_bytes = self.pad_bytes = self.scratch_bytes = 0
        self.over_bytes = self.draft_slots = 0
        self.counts_units = not (pool.tracked or self._scratch)
        self._single = [g for g in range(len(groups)) if g not in shapes.placed]
        # Reasons to cache blocks, other than full attention's PROMPT.
        self.why = [
            STATE if group.state_bytes else OUTPUT if reach is None else WINDOW
            for group, reach in zip(groups, shapes.reaches, strict=True)
        ]
        self.copies = Copies(pool, self.why)
        # Groups with single blocks, as states are: they are few, with gaps.
        self._singly = [pool.singly or bool(group.state_bytes) for group in groups]
        # Whether the order of the freed blocks can be observed.
        self._one_by_one = pool.tracked or not pool.blank_first
        self._all_pads = sum(each.pad_bytes for each in shapes.all)
        slots: dict[int, int] = {}  # bytes of a token in groups with blocks of so many units
        for group in groups:
            if group.slot_bytes:
                span = group.block_size // shapes.sizes.unit
                slots[span] = slots.get(span, 0) + group.slot_bytes
        self._slots = sorted(slots.items())

    # --- bytes ---------------------------------------------------------------------------------

    def _book(self, g: int, blocks: int, slots: int) -> None:
        """Count `blocks` more distinct blocks held by group g with `slots` valid slots; negative to
        subtract.
        """
        group = self.groups[g]
        states = blocks * group.state_bytes
        self.pad_bytes += blocks * self._pads[g]
        self.used_bytes += slots * group.slot_bytes + states
        self.state_bytes += states

    def held_for_copy(self, g: int, blocks: int) -> None:
        """Count `blocks` more full blocks of group g that only offload copies pin; may be < 0."""
        slots = 0 if self.groups[g].state_bytes else self._sizes.blocks[g]
        self._book(g, blocks, blocks * slots)

    def _book_scratch(self, tables: int, state_bytes: int) -> None:
        """Count scratch states (held, not used) of `tables` more tables of a group. state_bytes:
        bytes of one state.
        """
        num_bytes = tables * self._scratch * state_bytes
        self.scratch_bytes += num_bytes
        self.used_bytes -= num_bytes
        self.state_bytes -= num_bytes

    def unfilled_bytes(self, count: int, final_tokens: int) -> int:
        """Bytes of the last blocks that are never filled, for a table of `count` units of a
        sequence with `final_tokens` slots in the end.
        """
        unit, total = self._sizes.unit, 0
        for span, slot_bytes in self._slots:
            room = ceil_div(count, span) * span * unit
            if room > final_tokens:
                total += (room - final_tokens) * slot_bytes
        return total

    def grown(self, final_tokens: int, before: int, after: int) -> None:
        """Count that a table grew from `before` to `after` units. final_tokens: slots of its
        sequence in the end.
        """
        more = self.unfilled_bytes(after, final_tokens)
        if more:
            self.over_bytes += more - self.unfilled_bytes(before, final_tokens)

    def closed(self, table: Table, final_tokens: int) -> None:
        """Count that a table frees its blocks. final_tokens: slots of its sequence in the end."""
        self.draft_slots -= table.drafts
        self.gave_up(final_tokens, table.count)

    def gave_up(self, final_tokens: int, count: int) -> None:
        """Stop counting never-filled slots of a table of `count` units."""
        self.over_bytes -= self.unfilled_bytes(count, final_tokens)

    def drafting(self, table: Table, drafts: int) -> None:
        """Record the number of slots of a table that are allocated for drafts."""
        self.draft_slots += drafts - table.drafts
        table.drafts = drafts

    # --- taking --------------------------------------------------------------------------------

    def open(self, table: Table, hits: Hits) -> None:
        """Open an empty table with its cache hits. A recurrent layer that keeps one state a
        sequence also takes the block for that state.
        """
        table.tokens = hits.tokens
        self._names.opened(table, hits.tokens)
        if hits.tokens:
            self._take_over(table, hits)
        if self.shapes.sliding:
            table.kept_until = [
                self._names.kept_until(table, each.members[0]) for each in self.shapes.sliding
            ]
        for g in self._single:
            table.lists[g] = self._pool.take(1 + self._scratch)
            self._book(g, 1 + self._scratch, 0)
            self._book_scratch(1, self.groups[g].state_bytes)

    def _take_over(self, table: Table, hits: Hits) -> None:
        table.count = ceil_div(hits.tokens, self._sizes.unit)
        for each in self.shapes.all:
            if each.states:
                table.states = ceil_div(hits.tokens, each.block_size)
            for g in each.members:
                found, first = hits.found[g], hits.first[g]
                parts = table.parts[g]
                if found.num and hits.tokens % each.block_size:
                    found, last = found.without_last()
                    table.copied[g] = last.parts[0][0]
                    self._pool.share(last, 0, [])
                revived = found.num
                if self._pool.singly:
                    revived += self.copies.num_alone(found.parts)
                revived -= self._pool.share(found, first, parts)
                if self._tracked and not self._singly[g]:
                    table.lists[g] = [block for part in parts for block in part[1].blocks]
                self._book(g, revived, revived * each.block_size)
                table.skipped[g] = first

    def grow(
        self,
        table: Table,
        count: int,
        states: int,
        *,
        checkpoint: bool = False,
        loaded_tokens: int = 0,
    ) -> None:
        """Allocate blocks until each attention group holds `count` units and each state group
        `states` positions, and blocks for copies. Frees none.

        loaded_tokens: number of tokens loaded from another memory; the part outside the windows
        takes no blocks.
        """
        before = table.count
        more_states = 0
        if self.shapes.num_placed_states and states > table.states:
            more_states = self.shapes.new_states(table, states, checkpoint=checkpoint)
        new = len(table.copied) + more_states * self.shapes.num_placed_states
        if count > before:
            for each in self.shapes.attending:
                more = -(-count // each.span) - self._first_new(each, before, loaded_tokens)
                if more:
                    new += more * each.num
                    self.pad_bytes += more * each.pad_bytes
            table.count = count
        if new:
            blocks = self._pool.take(new)
            if blocks or more_states or loaded_tokens or self._pool.singly:
                self._deal(
                    table, blocks, before, states, more_states, loaded_tokens, checkpoint=checkpoint
                )
        if states > table.states:
            scratch = self._scratch if table.begun else 0
            table.last_state, table.states = table.states - 1 - scratch, states
        table.begun = True

    def _deal(
        self,
        table: Table,
        blocks: list[int],
        before: int,
        states: int,
        more_states: int,
        loaded_tokens: int,
        *,
        checkpoint: bool,
    ) -> None:
        """Distribute newly allocated blocks to the copies, to the units from `before` on and to the
        new states of a table, group by group.
        """
        at, pool, count = 0, self._pool, table.count
        for each in self.shapes.all:
            first = 0 if each.states else self._first_new(each, before, loaded_tokens)
            more = more_states if each.states else -(-count // each.span) - first
            for g in each.members:
                if loaded_tokens and first > -(-before // each.span):
                    left_out = first - -(-before // each.span)
                    self._book(g, 0, -left_out * each.block_size)
                    table.skipped[g] = first
                if g in table.copied:
                    (copy,) = pool.deal(g, blocks[at : at + 1], 1)
                    self._copy(table, g, copy)
                    at += 1
                if not more:
                    continue
                if not self._singly[g]:
                    table.lists[g] += blocks[at : at + more]
                    at += more
                    continue
                parts, dealt = table.parts[g], pool.deal(g, blocks[at : at + more], more)
                at += more
                if each.states:
                    scratch = self._scratch
                    grown_states(table, parts, dealt, states, scratch, checkpoint=checkpoint)
                    self._book(g, more, 0)
                    if not table.begun:
                        self._book_scratch(1, self.groups[g].state_bytes)
                else:
                    parts.extend((first + index, extent, 1) for index, extent in enumerate(dealt))

    def _first_new(self, each: GroupsOfOneShape, before: int, loaded_tokens: int) -> int:
        """The first position for which a table of `before` units must allocate a block."""
        first = -(-before // each.span)
        if not loaded_tokens or each.reach is None or each.states:
            return first
        skipped = each.reach.skipped_tokens(loaded_tokens - self._extra)
        return max(first, skipped // each.block_size)

    def left_bytes(self, table: Table) -> int:
        """Bytes of a table's slots that are outside its windows."""
        return sum(
            table.skipped[each.members[0]] * each.block_size * each.slot_bytes
            for each in self.shapes.sliding
            if not each.states
        )

    def left_out(self, hit_tokens: int, loaded_tokens: int) -> tuple[int, int]:
        """(blocks, bytes of their slots) that windows let a table skip when it loads
        `loaded_tokens` tokens after a hit of `hit_tokens`.
        """
        before, blocks, slot_bytes = ceil_div(hit_tokens, self._sizes.unit), 0, 0
        for each in self.shapes.sliding:
            left_out = self._first_new(each, before, loaded_tokens) - -(-before // each.span)
            blocks += left_out * each.num
            slot_bytes += left_out * each.block_size * each.slot_bytes
        return blocks, slot_bytes

    def _copy(self, table: Table, g: int, copy: Extent) -> None:
        """Complete a copy on write for group g: continue in a copy of a hit block, or leave a copy
        for later hits.
        """
        block, parts, size = table.copied.pop(g), table.parts[g], self._sizes.blocks[g]
        place, tokens = divmod(table.tokens, size)
        if any(extent is block for _, extent, _ in parts):
            key = self.copies.of_maker(block, copy, place, hint=table.hint)
            self._names.in_step.add((key, g))
        else:
            self.copies.of_hit(block, place, hint=table.hint)
            parts.append((place, copy, 1))
            self._book(g, 1, tokens)

    def start_units(self, tables: Sequence[Table]) -> None:
        """Allocate one more block in every attention group for each table, in order. Requires that
        all blocks hold one unit and no state.
        """
        pool, placed = self._pool, self.shapes.placed
        num = len(placed)
        self.pad_bytes += len(tables) * self._all_pads
        blocks = pool.take(len(tables) * num)
        for table in tables:
            table.count += 1
        if pool.singly:
            for at, g in enumerate(placed):
                dealt = pool.deal(g, blocks[at::num], len(tables))
                for table, extent in zip(tables, dealt, strict=True):
                    table.parts[g].append((table.count - 1, extent, 1))
        elif blocks:
            for at, table in enumerate(tables):
                for place, g in enumerate(placed):
                    table.lists[g].append(blocks[at * num + place])

    def take_units(self, num: int) -> None:
        """Allocate one more block in every attention group for `num` tables, counted without block
        numbers. The tables' `count` is updated later.
        """
        self.pad_bytes += num * self._all_pads
        self._pool.take(num * len(self.shapes.placed))

    # --- giving back ---------------------------------------------------------------------------

    def give_back_below(self, table: Table, computed: int) -> None:
        """Free the blocks outside the windows: no token after the first `computed` ones attends to
        these.
        """
        for index, each in enumerate(self.shapes.sliding):
            reach, first = each.reach, each.members[0]
            assert reach is not None
            passed = reach.skipped_tokens(computed if each.states else computed - self._extra)
            skip, start = passed // each.block_size, table.skipped[first]
            if skip <= start:
                continue
            end = min(skip, self.shapes.end(table, each))
            if end > start:
                if start < table.kept_until[index] and self._names.names_late:
                    self._name_leaving(table, each, end)
                if each.states and not self._behind_gaps:
                    for g in each.members:
                        for gone in retired_states(table, g, end):
                            self._give_singly(g, gone, table, ())
                    self._pool.given_back()
                else:
                    self._slide(table, each, start, end)

    def _name_leaving(self, table: Table, each: GroupsOfOneShape, end: int) -> None:
        """Cache blocks before position `end` that have no keys yet and are about to be freed."""
        if end > self._names.known_blocks(table.registered, each.members[0]):
            self._names.register_returning(table, each.members, end)

    def _slide(self, table: Table, each: GroupsOfOneShape, start: int, end: int) -> None:
        """Free the blocks of these groups from position `start` to `end`."""
        held = end - start
        num_blank = 0
        for g in each.members:
            table.skipped[g] = end
            parts = table.parts[g]
            gone = self._pool.cut_before(parts, end) if parts and parts[0][0] < end else NO_PARTS
            if self._singly[g]:
                self._give_singly(g, gone, table, (), 0 if each.states else held)
                continue
            self._book(g, -held, -held * each.block_size)
            if self._one_by_one:
                blocks = table.lists[g][:held]
                del table.lists[g][:held]
                self._give(g, gone, 0, (), held, blocks, start)
            else:
                num_blank += held
                if gone:
                    num_blank -= self._give(g, gone, 0, (), 0, NO_BLOCKS, start)
        if num_blank:
            self._pool.give_back(NO_PARTS, 0, 0, (), num_blank)
        self._pool.given_back()

    def close(self, table: Table, known: int, *, last_first: bool = False) -> None:
        """Free all blocks of a table. known: for a finished sequence, number of leading blocks with
        known content, with or without keys. last_first: free the blocks of the last layer group
        first, then those of the group before it.
        """
        shape_of = self.shapes.of_group
        order = range(len(self.groups))
        if last_first:  # blocks without content: those of the last group are still reused first
            order = order[::-1]
            self._pool.front.put_later_below(below=True)
        for g in order:
            each = shape_of.get(g)
            if each is None:
                self._pool.give_back(NO_PARTS, 0, 0, (), 1 + self._scratch, table.lists[g])
                self._book(g, -1 - self._scratch, 0)
                self._book_scratch(-1, self.groups[g].state_bytes)
                continue
            start, end = table.skipped[g], self.shapes.end(table, each)
            parts, slots = table.parts[g], table.tokens - start * each.block_size
            kept: Sequence[int] = ()
            if known and (self._names.names_late or not self._names.names_private):
                kept = self._names.places(table, g, self._names.known_blocks(known, g))
            prompt_end = 0
            if self.why[g] == OUTPUT:  # full attention: blocks without gaps
                prompt_end = self._num_prompt(g, table)
            if self._singly[g]:
                if each.states:
                    slots = 0
                    if table.begun:
                        self._book_scratch(-1, self.groups[g].state_bytes)
                self._give_singly(g, parts, table, kept, slots=slots, prompt_end=prompt_end)
                continue
            if known and parts and self.shapes.reaches[g] is None:
                kept = self._without_keys(table, g, kept)
            self._book(g, start - end, -slots)
            self._give(g, parts, prompt_end, kept, end - start, table.lists[g], start)
        self._pool.front.put_later_below(below=False)
        self._pool.given_back()

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
        """Group g frees single blocks; blocks without keys and not at a position in `nameless`
        become blank. slot_blocks, slots: number of full blocks among these, and other valid slots.
        """
        size, hint = self._sizes.blocks[g], table.hint
        shared = self._pool.give_back_singly(parts, self.why[g], prompt_end, nameless, hint=hint)
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
            parts, self.why[g], prompt_end, nameless, num_blank, blocks, start
        )
        if shared:
            self._book(g, shared, shared * self._sizes.blocks[g])
        return num

    def _num_prompt(self, g: int, table: Table) -> int:
        """Number of blocks of group g inside the prompt. A partly filled block counts only if it
        has a key for the prompt's end.
        """
        size = self._sizes.blocks[g]
        end = table.prompt_tokens // size
        return end + 1 if table.tokens < (end + 1) * size else end

    def _without_keys(self, table: Table, g: int, kept: Sequence[int]) -> Sequence[int]:
        """Positions of blocks that stay cached without a key of their own: `kept`, and blocks with
        unshareable keys, which are removed.
        """
        parts, most = table.parts[g], self._names.lookable_blocks(table, g)
        place, _, num = parts[-1]
        if place + num <= most:
            return kept
        end = place + num + len(kept)
        while parts and parts[-1][0] >= most:
            self._pool.forget_part(parts.pop())
        return range(parts[-1][0] + parts[-1][2] if parts else 0, end)

    def decided(self) -> None:
        """A step has been scheduled: its content can be hit by the next step."""
        self._names.in_step.clear()
        if self._pool.singly or self.shapes.num_placed_states:
            self.copies.decided()

    # --- what is held --------------------------------------------------------------------------

    def held_blocks(self, table: Table) -> list[int]:
        """Number of blocks that a table holds in each group."""
        held = [1 + self._scratch] * len(self.groups)
        for g, each in self.shapes.of_group.items():
            held[g] = self.shapes.end(table, each) - table.skipped[g]
            if self._singly[g]:
                held[g] = len(table.parts[g])
        return held

    def leading_shared(self, table: Table) -> int:
        """Number of leading tokens in blocks shared with other tables, in all groups without a
        window.
        """
        if not self._pool.num_shared:
            return 0
        shared, sizes = num_leading_shared, self._sizes.blocks
        full = [g for g in self.shapes.placed if self.shapes.reaches[g] is None]
        return min((shared(table.parts[g]) * sizes[g] for g in full), default=0)

    def length(self, table: Table) -> int:
        """Number of entries in the first group's table, including freed and null blocks."""
        each = self.shapes.of_group.get(0)
        return 1 + self._scratch if each is None else self.shapes.end(table, each)

    def blocks_of(self, table: Table) -> list[int]:
        """The numbers of the blocks of a table, group by group."""
        if len(self._singly) == 1 and not self._singly[0]:
            return table.lists[0]
        return [block for numbers in self.numbers_by_group(table) for block in numbers]

    def numbers_by_group(self, table: Table) -> list[list[int]]:
        """The numbers of the blocks of a table, for each group."""
        return [self._numbers(table, g) for g in range(len(self.groups))]

    def _numbers(self, table: Table, g: int) -> list[int]:
        if self._singly[g] and g in self.shapes.of_group:
            return [block for _, extent, _ in table.parts[g] for block in extent.blocks]
        return table.lists[g]
