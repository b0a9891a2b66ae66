"""Windows of groups of layers, and the positions of blocks in their tables.

Adjacent groups with the same attention span and block size hold blocks at the same positions, and
allocate and free them in the same steps. vLLM 0.33: `get_num_skipped_tokens` of each manager in
v1/core/single_type_kv_cache_manager.py.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from kvsim.memory.paged.blocks import Table
from kvsim.plumbing.units import ceil_div
from kvsim.speculation import Speculation
from kvsim.vllm.grouping import BlockGroup
from kvsim.vllm.sizes import Sizes

STATE_WINDOW = 2  # a state continues from the one before it
MANY = 1 << 30  # positions of states, most of which are null


class Reach:
    """A limited attention span: a window of the last `tokens` tokens, the next one included, or, if
    `chunked`, the chunk of the next token. Chunks begin at multiples of `tokens`.

    kept_tokens: number of computed tokens that the next token may need.
    """

    __slots__ = ("chunked", "kept_tokens", "tokens")

    def __init__(self, tokens: int, *, chunked: bool = False) -> None:
        self.tokens, self.chunked = tokens, chunked
        self.kept_tokens = tokens if chunked else tokens - 1

    def skipped_tokens(self, computed: int) -> int:
        """Number of leading tokens that no token after the first `computed` ones attends to; 0 if
        `computed` is negative.
        """
        if self.chunked:
            return computed - computed % self.tokens
        return computed - self.kept_tokens

    def frees(self, skipped: int, computed: int, size: int) -> list[tuple[int, int]]:
        """(tokens, blocks) pairs: after `tokens` computed tokens, `blocks` blocks of `size` tokens
        are freed, for all counts up to `computed`.

        skipped: number of leading blocks that the table has freed already.
        """
        if not self.chunked:
            first = (skipped + 1) * size + self.kept_tokens
            return [(tokens, 1) for tokens in range(first, computed + 1, size)]
        each = self.tokens
        ends = range(skipped * size // each * each + each, computed + 1, each)
        return [(end, end // size - (end - each) // size) for end in ends]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reach) and (self.tokens, self.chunked) == (
            other.tokens,
            other.chunked,
        )

    def __hash__(self) -> int:
        return hash((self.tokens, self.chunked))


def reaches_of(groups: Sequence[BlockGroup], *, states_kept: bool) -> list[Reach | None]:
    """The limited attention span of each group; None: it attends to all tokens, or has one state
    for each sequence.
    """
    return [_reach_of(group, states_kept=states_kept) for group in groups]


def _reach_of(group: BlockGroup, *, states_kept: bool) -> Reach | None:
    if group.state_bytes and states_kept:
        return Reach(STATE_WINDOW)
    if group.chunk_tokens is not None:
        return Reach(group.chunk_tokens, chunked=True)
    return None if group.window_tokens is None else Reach(group.window_tokens)


def skipped_blocks(reach: Reach | None, computed: int, block_size: int) -> int:
    """Number of leading blocks that no token after the first `computed` ones attends to."""
    if reach is None:
        return 0
    return max(0, reach.skipped_tokens(computed)) // block_size


class GroupsOfOneShape:
    """The groups `members`, which allocate and free blocks at the same positions.

    num: number of groups. reach: limited attention span, None without one. span: units in a block.
    states: whether the groups hold recurrent states. pad_bytes, state_bytes: bytes of padding and
    of state in a block of each group; slot_bytes: bytes of a slot. pads: bytes of padding of each
    group's blocks.
    """

    def __init__(
        self,
        members: list[int],
        reach: Reach | None,
        groups: Sequence[BlockGroup],
        unit: int,
        pads: Sequence[int],
    ) -> None:
        first = groups[members[0]]
        self.members, self.num, self.reach = members, len(members), reach
        self.block_size, self.span = first.block_size, first.block_size // unit
        self.states = first.state_bytes > 0
        self.pad_bytes = sum(pads[g] for g in members)
        self.state_bytes = sum(groups[g].state_bytes for g in members)
        self.slot_bytes = sum(groups[g].slot_bytes for g in members)


class TableShapes:
    """The shapes of the tables of one allocator.

    states_kept: recurrent states are cached at block ends (see hybrid/states.py); else each group
    of them has one block a sequence. slides: some table frees blocks while its sequence runs.
    placed: groups that have tables with positions. reaches: of each group, None for all. sizes:
    block sizes of each group. pads: bytes of padding of a block of each group. scratch: scratch
    states of a table, one for each draft token. extra: last computed tokens that drafts write
    again. all, of_group: the groups of one shape, in order and by group; attending: those of
    tokens, sliding: those with a reach. blocks_of_unit: blocks taken for one more unit if every
    block is one unit. most_new_blocks: most blocks that a decoder takes in one step, without
    copies.
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
        self.groups, self.sizes = groups, sizes
        self.scratch = 0 if speculation is None else speculation.tokens
        self.extra = 0 if speculation is None else speculation.redrafted_tokens
        self.placed = [g for g, group in enumerate(groups) if states_kept or not group.state_bytes]
        self.reaches = reaches_of(groups, states_kept=states_kept)
        self.slides = any(self.reaches[g] is not None for g in self.placed)
        self.pads = [
            block_bytes - (group.state_bytes or group.slot_bytes * group.block_size)
            for group in groups
        ]

        def shape(g: int) -> tuple[Reach | None, int, bool]:
            return self.reaches[g], groups[g].block_size, groups[g].state_bytes > 0

        self.all = [
            GroupsOfOneShape(list(members), reach, groups, sizes.unit, self.pads)
            for (reach, _, _), members in groupby(self.placed, key=shape)
        ]
        self.of_group = {g: each for each in self.all for g in each.members}
        self.attending = [each for each in self.all if not each.states]
        self.sliding = [each for each in self.all if each.reach is not None]
        # Number of groups of tokens by the units of their blocks.
        spans = Counter(each.span for each in self.attending for _ in each.members)
        self._spans = sorted(spans.items())
        self.num_placed_states = sum(each.num for each in self.all if each.states)
        self.blocks_of_unit = sum(each.num for each in self.attending)
        self.most_new_blocks = len(self.placed)

    def end(self, table: Table, each: GroupsOfOneShape) -> int:
        """Number of positions of the tables of these groups."""
        return table.states if each.states else -(-table.count // each.span)

    def new_states(self, table: Table, states: int, *, checkpoint: bool) -> int:
        """Number of blocks that each table of states allocates to grow to `states` positions."""
        most = 1 + checkpoint + (0 if table.begun else self.scratch)
        return min(states - table.states, most)

    def missing(self, table: Table, count: int, states: int, *, checkpoint: bool) -> int:
        """Number of blocks, including copies, that a table allocates to grow to `count` units and
        `states` positions of states.
        """
        more = len(table.copied)
        if count > table.count:
            for span, times in self._spans:
                more += (ceil_div(count, span) - ceil_div(table.count, span)) * times
        if self.num_placed_states and states > table.states:
            more += self.num_placed_states * self.new_states(table, states, checkpoint=checkpoint)
        return more

    def new_blocks(self, slots: int) -> int:
        """Number of blocks that a decoder with `slots` slots (a whole number of units) allocates
        for one more slot.
        """
        units = slots // self.sizes.unit
        more = sum(times for span, times in self._spans if units % span == 0)
        return more + sum(
            each.num for each in self.all if each.states and slots % each.block_size == 0
        )

    def state_starts(self, table: Table, num_tokens: int) -> range:
        """Token counts at which a table of states needs its next position, up to `num_tokens`."""
        if not self.num_placed_states:
            return range(0)
        least, states = self.sizes.least, self.states_for(num_tokens)
        return range((table.states - self.scratch) * least, (states - self.scratch) * least, least)

    def frees(self, table: Table, computed: int) -> list[tuple[int, int]]:
        """(tokens, blocks) pairs: after `tokens` computed tokens a table frees at most `blocks`
        blocks, for all counts up to `computed`.
        """
        found = []
        for each in self.sliding:
            assert each.reach is not None
            size, extra = each.block_size, 0 if each.states else self.extra
            for g in each.members:
                frees = each.reach.frees(table.skipped[g], computed - extra, size)
                found += [
                    (tokens + extra, MANY if each.states else blocks) for tokens, blocks in frees
                ]
        return found

    def states_for(self, num_tokens: int) -> int:
        """Number of positions of a table of states that holds the state after `num_tokens` tokens,
        scratch states included.
        """
        return ceil_div(num_tokens, self.sizes.least) + self.scratch
