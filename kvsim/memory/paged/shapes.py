"""Where the tables of each group of layers hold blocks, and how many they take as they grow.

Neighbouring groups with one window, in blocks of one size, hold blocks at the same positions, and
take and give them together.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from kvsim.memory.paged.hits import looks_back
from kvsim.memory.paged.table import Table
from kvsim.plumbing.units import ceil_div
from kvsim.speculation import Speculation
from kvsim.vllm.grouping import BlockGroup
from kvsim.vllm.sizes import Sizes

MANY = 1 << 30  # states, null ones between them, however few


class GroupsOfOneShape:
    """Groups that take and give together, those of `members`.

    num: how many groups. window_tokens: how far they look back, None: all. span: units in a block.
    states: they hold recurrent states. pad_bytes, state_bytes: of a block of each; slot_bytes: of a
    slot of each. pads: padding of a block of each group, in bytes.
    """

    def __init__(
        self,
        members: list[int],
        window_tokens: int | None,
        groups: Sequence[BlockGroup],
        unit: int,
        pads: Sequence[int],
    ) -> None:
        first = groups[members[0]]
        self.members, self.num, self.window_tokens = members, len(members), window_tokens
        self.block_size, self.span = first.block_size, first.block_size // unit
        self.states = first.state_bytes > 0
        self.pad_bytes = sum(pads[g] for g in members)
        self.state_bytes = sum(groups[g].state_bytes for g in members)
        self.slot_bytes = sum(groups[g].slot_bytes for g in members)


class TableShapes:
    """Of the tables of one allocator.

    states_kept: recurrent states are kept at block ends, for others to continue from (see
    hybrid/states.py); else a group of them has one block a sequence. slides: some table gives
    blocks back while its sequence runs. placed: the groups whose tables have positions. windows:
    how many tokens back each group looks, None for all. sizes: of each group's blocks.
    blocks_of_unit: taken by a table of tokens for one unit more, where all blocks are one.
    most_new_blocks: taken by a decoder in one step, at most, beside copies.
    """

    def __init__(
        self,
        groups: Sequence[BlockGroup],
        sizes: Sizes,
        block_bytes: int,
        *,
        states_kept: bool,
        speculation: Speculation | None,
    ) -> None:
        self.groups, self._sizes = groups, sizes
        self._scratch = 0 if speculation is None else speculation.tokens
        self._extra = 0 if speculation is None else speculation.redrafted_tokens
        self.placed = [g for g, group in enumerate(groups) if states_kept or not group.state_bytes]
        self.windows = looks_back(groups, states_kept=states_kept)
        self.slides = any(self.windows[g] is not None for g in self.placed)
        self._pads = [
            block_bytes - (group.state_bytes or group.slot_bytes * group.block_size)
            for group in groups
        ]

        def shape(g: int) -> tuple[int | None, int, bool]:
            return self.windows[g], groups[g].block_size, groups[g].state_bytes > 0

        self._shapes = [
            GroupsOfOneShape(list(members), window, groups, sizes.unit, self._pads)
            for (window, _, _), members in groupby(self.placed, key=shape)
        ]
        self._shape_of = {g: each for each in self._shapes for g in each.members}
        self._attending = [each for each in self._shapes if not each.states]
        self._sliding = [each for each in self._shapes if each.window_tokens is not None]
        # How many groups of tokens have blocks of so many units.
        spans = Counter(each.span for each in self._attending for _ in each.members)
        self._spans = sorted(spans.items())
        self.num_placed_states = sum(each.num for each in self._shapes if each.states)
        self.blocks_of_unit = sum(each.num for each in self._attending)
        self.most_new_blocks = len(self.placed)

    def _end(self, table: Table, each: GroupsOfOneShape) -> int:
        """Positions of the tables of these groups."""
        return table.states if each.states else -(-table.count // each.span)

    def _new_states(self, table: Table, states: int, *, checkpoint: bool) -> int:
        """Blocks taken by each table of states that grows to so many positions."""
        most = 1 + checkpoint + (0 if table.begun else self._scratch)
        return min(states - table.states, most)

    def missing(self, table: Table, count: int, states: int, *, checkpoint: bool) -> int:
        """Blocks taken by a table that grows to so many units and positions of states, for copies
        too.
        """
        more = len(table.copied)
        if count > table.count:
            for span, times in self._spans:
                more += (ceil_div(count, span) - ceil_div(table.count, span)) * times
        if self.num_placed_states and states > table.states:
            more += self.num_placed_states * self._new_states(table, states, checkpoint=checkpoint)
        return more

    def new_blocks(self, slots: int) -> int:
        """Blocks taken by a decoder with so many slots for one more, a number of units."""
        units = slots // self._sizes.unit
        more = sum(times for span, times in self._spans if units % span == 0)
        return more + sum(
            each.num for each in self._shapes if each.states and slots % each.block_size == 0
        )

    def state_starts(self, table: Table, num_tokens: int) -> range:
        """After how many tokens each position begins that a table of states up to so many has yet
        to take.
        """
        if not self.num_placed_states:
            return range(0)
        least, states = self._sizes.least, self.states_for(num_tokens)
        return range(
            (table.states - self._scratch) * least, (states - self._scratch) * least, least
        )

    def gives(self, table: Table, computed: int) -> list[tuple[int, int]]:
        """(tokens, blocks): how many blocks at most a table will give back after how many computed
        tokens, up to `computed`.
        """
        found = []
        for each in self._sliding:
            assert each.window_tokens is not None
            size, blocks = each.block_size, MANY if each.states else 1
            looks_back = each.window_tokens - 1 + (0 if each.states else self._extra)
            for g in each.members:
                first = (table.skipped[g] + 1) * size + looks_back
                found += [(tokens, blocks) for tokens in range(first, computed + 1, size)]
        return found

    def states_for(self, num_tokens: int) -> int:
        """Positions of a table of states of which the last is that after so many tokens, scratch
        ones included.
        """
        return ceil_div(num_tokens, self._sizes.least) + self._scratch
