"""Block tables of several groups of layers over one pool: what they hold in bytes, and what they
need.

A recurrent state that is kept for others lies in blocks at positions as keys and values do: the
block that ends at n tokens holds the state after n. A sequence goes on from its last one, so it is
a window of two tokens; and a step that computes several blocks leaves a state at its end alone, so
the positions between are null.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from mypy_extensions import mypyc_attr

from kvsim.memory.paged.groups.hits import Hits, looks_back
from kvsim.memory.paged.groups.names import GroupNames
from kvsim.memory.paged.groups.table import GroupTable
from kvsim.memory.paged.kept import OUTPUT, STATE, WINDOW
from kvsim.plumbing.errors import InvariantError
from kvsim.plumbing.units import ceil_div
from kvsim.speculation import Speculation
from kvsim.vllm.grouping import BlockGroup
from kvsim.vllm.sizes import Sizes

MANY = 1 << 30  # states, null ones between them, however few


@mypyc_attr(allow_interpreted_subclasses=True)
class GroupTables:
    """Moves blocks between the pool and tables. names: what the blocks are found by.

    states_kept: recurrent states are kept at block ends, for others to continue from; else a group
    of them has one block a sequence. slides: some table gives blocks back while its sequence runs.
    placed: the groups whose tables have positions.
    windows: how many tokens back each group looks, None for all.
    sizes: of each group's blocks. used_bytes: valid slots and states, shared ones once; of them
    state_bytes: states. pad_bytes: of held blocks, what no slot or state of their group can fill.
    scratch_bytes: of states that drafts are tried on, the last blocks of each table of states, as
    many as tokens are drafted; nobody else ever has them.
    """

    def __init__(
        self,
        groups: Sequence[BlockGroup],
        sizes: Sizes,
        block_bytes: int,
        names: GroupNames,
        *,
        states_kept: bool,
        speculation: Speculation | None = None,
    ) -> None:
        self.groups, self._names, self._sizes = groups, names, sizes
        self._scratch = 0 if speculation is None else speculation.tokens
        self._extra = 0 if speculation is None else speculation.redrafted_tokens
        self.placed = [g for g, group in enumerate(groups) if states_kept or not group.state_bytes]
        self.windows = looks_back(groups, states_kept=states_kept)
        self.slides = any(self.windows[g] is not None for g in self.placed)
        self.used_bytes = 0
        self.state_bytes = 0
        self.pad_bytes = 0
        self.scratch_bytes = 0
        self._states = [g for g, group in enumerate(groups) if group.state_bytes]
        self._single = [] if states_kept else self._states
        # Why blocks are kept, but for full attention's of prompts.
        self._why = [
            STATE if group.state_bytes else OUTPUT if window is None else WINDOW
            for group, window in zip(groups, self.windows, strict=True)
        ]
        self._pads = [
            block_bytes - (group.state_bytes or group.slot_bytes * group.block_size)
            for group in groups
        ]
        attending = [g for g in self.placed if not groups[g].state_bytes]
        # How many groups of tokens have blocks of so many units.
        counts = Counter(groups[g].block_size // sizes.unit for g in attending)
        self._spans = sorted(counts.items())
        self.num_placed_states = len(self.placed) - len(attending)

    @property
    def has_states(self) -> bool:
        """Whether some group holds recurrent states."""
        return bool(self._states)

    @property
    def counts_units(self) -> bool:
        """Whether `take_units` does for `start_units`: no block has a number, and no token is
        drafted.
        """
        return False

    # --- moving blocks -------------------------------------------------------------------------

    def open(self, table: GroupTable, hits: Hits) -> None:
        """An empty table takes over its hits, and a block for each state that is not placed."""
        raise NotImplementedError

    def grow(self, table: GroupTable, count: int, states: int, *, checkpoint: bool = False) -> None:
        """Take blocks: for what is to be copied, and until every placed group has room for so many
        units, and so many positions of states; none gives any back.
        """
        raise NotImplementedError

    def start_units(self, tables: Sequence[GroupTable]) -> None:
        """Each of these takes a block in every placed group, one table after the other. Needs: all
        blocks hold one unit.
        """
        raise NotImplementedError

    def take_units(self, num: int) -> None:
        """The same of so many tables, which hear of it later by their `count`."""
        raise NotImplementedError

    def give_back_below(self, table: GroupTable, computed: int) -> None:
        """Blocks that no token after the first `computed` ones attends to return to the pool."""
        raise NotImplementedError

    def close(self, table: GroupTable, known: int) -> None:
        """All blocks of a table return to the pool. known: of a sequence that has finished, so many
        of its blocks hold known content, whether or not that has got its keys.
        """
        raise NotImplementedError

    def decided(self) -> None:
        """A step has been scheduled: what it makes can be hit in the next."""
        self._names.in_step.clear()

    def _book(self, g: int, blocks: int, slots: int) -> None:
        """Group g holds so many more distinct blocks, and valid slots in them (negative: less)."""
        group = self.groups[g]
        states = blocks * group.state_bytes
        self.pad_bytes += blocks * self._pads[g]
        self.used_bytes += slots * group.slot_bytes + states
        self.state_bytes += states

    def _num_prompt(self, g: int, table: GroupTable, start: int) -> int:
        """How many blocks of group g's table, from position `start` on, lie in its prompt; one that
        is not full is known by the prompt's end alone.
        """
        size = self._sizes.blocks[g]
        end = table.prompt_tokens // size
        if table.tokens < (end + 1) * size:
            end += 1
        return max(end - start, 0)

    # --- what is needed ------------------------------------------------------------------------

    def missing(self, table: GroupTable, count: int, states: int, *, checkpoint: bool) -> int:
        """Blocks taken by a table that grows to so many units and positions of states, for copies
        too.
        """
        more = len(table.copied)
        if count > table.count:
            for span, times in self._spans:
                more += (ceil_div(count, span) - ceil_div(table.count, span)) * times
        if self.num_placed_states and states > table.states:
            most = 1 + checkpoint + (0 if table.begun else self._scratch)
            more += self.num_placed_states * min(states - table.states, most)
        return more

    @property
    def most_new_blocks(self) -> int:
        """Blocks taken by a decoder in one step, at most, beside copies."""
        return len(self.placed)

    def new_blocks(self, slots: int) -> int:
        """Blocks taken by a decoder with so many slots for one more, a number of units."""
        units = slots // self._sizes.unit
        more = sum(times for span, times in self._spans if units % span == 0)
        return more + self._new_states(slots)

    def _new_states(self, slots: int) -> int:
        return sum(slots % self._sizes.blocks[g] == 0 for g in self._states if g in self.placed)

    @property
    def blocks_of_unit(self) -> int:
        """Blocks taken by a table of tokens for one unit more, where all blocks are one."""
        return sum(times for _, times in self._spans)

    def state_starts(self, table: GroupTable, num_tokens: int) -> range:
        """After how many tokens each position begins that a table of states up to so many has yet
        to take.
        """
        if not self.num_placed_states:
            return range(0)
        least, states = self._sizes.least, self.states_for(num_tokens)
        return range(
            (table.states - self._scratch) * least, (states - self._scratch) * least, least
        )

    def gives(self, table: GroupTable, computed: int) -> list[tuple[int, int]]:
        """(tokens, blocks): how many blocks at most a table will give back after how many computed
        tokens, up to `computed`.
        """
        found = []
        for g in self.placed:
            window, size = self.windows[g], self._sizes.blocks[g]
            if window is not None:
                blocks = MANY if self.groups[g].state_bytes else 1
                looks_back = window - 1 + (0 if self.groups[g].state_bytes else self._extra)
                first = (table.skipped[g] + 1) * size + looks_back
                found += [(tokens, blocks) for tokens in range(first, computed + 1, size)]
        return found

    def states_for(self, num_tokens: int) -> int:
        """Positions of a table of states of which the last is that after so many tokens, scratch
        ones included.
        """
        return ceil_div(num_tokens, self._sizes.least) + self._scratch

    # --- what is held --------------------------------------------------------------------------

    def held_blocks(self, table: GroupTable) -> list[int]:
        """How many blocks a table holds in each group."""
        raise NotImplementedError

    def leading_shared(self, table: GroupTable) -> int:
        """Leading tokens whose blocks other tables hold too, in all groups without a window."""
        raise NotImplementedError

    def length(self, table: GroupTable) -> int:
        """Positions of the first group's table, given back and null ones counted."""
        raise NotImplementedError

    def blocks_of(self, table: GroupTable) -> list[int]:
        """The blocks of a table, group by group."""
        raise NotImplementedError

    def check(self, live: Iterable[tuple[int, GroupTable]]) -> None:
        """Raise InvariantError unless the books agree with the tables of sequences with so many
        valid slots each.
        """
        raise NotImplementedError

    def _check_bytes(self, slots: int, states: int, padding: int) -> None:
        """The same of bytes: of valid slots, of states that are held, and of padding."""
        found = slots + states, states, padding
        booked = self.used_bytes, self.state_bytes, self.pad_bytes
        if found != booked:
            raise InvariantError(f"used, states and padding are {found} bytes, booked as {booked}")
