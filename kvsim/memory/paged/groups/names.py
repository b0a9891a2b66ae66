"""What blocks of several groups of layers are found by: tables as the prefix cache sees them.

A block is known by the content of all tokens up to its end, in one group of layers. Which blocks of
windows and states are known at all is a question of retention (see retention.py). Where prefixes
are matched in units smaller than blocks (see inner_hits.py), blocks are known to a unit inside too:
those of full attention to the last unit of a prompt, a state to the end of a chunk.
"""

from collections.abc import Sequence
from typing import ClassVar

from kvsim.memory.paged.block_pool import NULL_BLOCK, BlockPool
from kvsim.memory.paged.content import KeyRuns
from kvsim.memory.paged.groups.grouping import BlockGroup
from kvsim.memory.paged.groups.hits import Hits, longest_hit, looks_back
from kvsim.memory.paged.groups.inner_hits import InnerHits
from kvsim.memory.paged.groups.places import Places
from kvsim.memory.paged.groups.retention import Retention
from kvsim.memory.paged.groups.table import GroupTable
from kvsim.memory.paged.table import Table
from kvsim.plumbing.units import ceil_div


class GroupNames:
    """Names blocks of tables and looks them up. See `prefix_cache.Tables`.

    states_kept: recurrent states are kept at block ends, for others to continue from. unit_tokens:
    of the units that prefixes are matched in, where they are smaller than blocks. in_step: keys of
    states that the step being scheduled is still to make. late: see `names_late`, which nothing
    else forbids.
    """

    # What a window gives back while it runs must be found again.
    names_private: ClassVar[bool] = True

    def __init__(
        self,
        pool: BlockPool,
        groups: Sequence[BlockGroup],
        block_size: int,
        retention_tokens: int | None,
        *,
        states_kept: bool,
        unit_tokens: int | None,
        places: Places,
        late: bool,
    ) -> None:
        self.in_step: set[int] = set()
        self._pool, self._size, self._num = pool, block_size, len(groups)
        self._windows = looks_back(groups, states_kept=states_kept)
        self._states = [g for g, group in enumerate(groups) if group.state_bytes]
        self._placed = [g for g in range(self._num) if states_kept or g not in self._states]
        self._state_places = places
        self._drops = _dropping(groups, self._state_places.drops)
        self._retention = {
            g: Retention(
                window,
                block_size,
                retention_tokens,
                drops=self._drops[g],
                below_junctions=places.counts_drops,
            )
            for g, window in enumerate(self._windows)
            if window is not None
        }
        # Groups that look as far back name the same positions.
        kinds = {g: (self._windows[g], g in self._states, self._drops[g]) for g in self._placed}
        alike = list(dict.fromkeys(kinds[g] for g in self._placed))
        self._kind_of = [(g, alike.index(kinds[g])) for g in self._placed]
        self._kinds = [next(g for g in self._placed if kinds[g] == kind) for kind in alike]
        looks = [window for window in self._windows if window is not None]
        # A window shorter than a block could give back what is not known yet.
        self.names_late = late and not self._states and min(looks, default=0) >= block_size
        self._unit = unit_tokens or block_size
        self._inner: InnerHits | None = None
        if unit_tokens is not None:
            states = [bool(group.state_bytes) for group in groups]
            units, drops = block_size // unit_tokens, any(self._drops)
            beyond = drops and places.counts_drops
            self._inner = InnerHits(pool, states, unit_tokens, units, drops=drops, beyond=beyond)

    def boundaries(self, prompt_tokens: int) -> tuple[int, ...]:
        """After how many blocks others, with the same prompt or a longer one, can go on from it."""
        last = (prompt_tokens - 1) // self._size
        if not any(self._drops) or not self._state_places.counts_drops:
            return (last,)
        return max(0, last - 1), max(0, prompt_tokens // self._size - 1)

    @property
    def version(self) -> int:
        return self._pool.version

    def fresh(self, runs: KeyRuns, num_shareable: int) -> GroupTable:
        """An empty table."""
        return GroupTable(runs, num_shareable, self._num)

    def find(self, table: Table, known: int, most: int) -> Hits:
        """The longest prefix, at most the first `most` keys, that every group can continue from;
        `known` keys are of tokens that are there.
        """
        assert isinstance(table, GroupTable)
        keys = table.keys[:known]
        if self._inner is not None:
            return self._inner.find(keys, most)
        limit = len(keys) if self._state_places.counts_drops else most
        return longest_hit(self._pool, self._windows, keys[:limit], most, self._size, self._drops)

    def may_move(self, table: Table, num_hits: int) -> bool:
        """Never asked: while the head of the queue has hits, runs end when a block moves."""
        return False

    def register(self, table: Table, full: int, *, in_step: bool) -> None:
        """The first `full` blocks hold known content from now on, which the step being scheduled
        makes if `in_step`.
        """
        assert isinstance(table, GroupTable)
        if full <= table.registered:
            return
        places = [self.places(table, g, full) for g in self._kinds]
        for g, kind in self._kind_of:
            if places[kind]:
                self._register_in(table, g, places[kind], in_step=in_step)
        table.registered = full
        if self._inner is not None:
            self._name_tail(table, full * self._size)

    def register_returning(self, table: GroupTable, groups: Sequence[int], full: int) -> None:
        """The same for these groups alone, which give these blocks back: they look as far back as
        each other, and all of the blocks that they have given back before have been named.
        """
        places = self.places(table, groups[0], min(full, len(table.keys)))
        if places:
            for g in groups:
                self._register_in(table, g, places, in_step=True)

    def places(self, table: GroupTable, g: int, full: int) -> Sequence[int]:
        """Which of the first `full` positions of group g get keys now."""
        start = max(table.registered, table.skipped[g])
        if g not in self._retention:
            return range(start, full)
        junction = table.junction_tokens // self._size
        return self._retention[g].kept(start, full, table.boundaries, junction)

    def _register_in(
        self, table: GroupTable, g: int, places: Sequence[int], *, in_step: bool
    ) -> None:
        """The blocks at these positions in group g hold known content, but for null ones."""
        skipped, held = table.skipped[g], table.lists[g]
        if g in self._states:
            places = [place for place in places if held[place - skipped] != NULL_BLOCK]
        blocks = [held[place - skipped] for place in places]
        units, num, names = self._size // self._unit, self._num, table.keys
        keys = [names[(place + 1) * units - 1] * num + g for place in places]
        if g in self._states and in_step:
            self.in_step.update(keys)
        if self._inner is not None:
            for block in blocks:
                self._pool.forget(block)  # it was known to a point inside
        self._pool.register(blocks, keys)

    def name_inside(self, table: GroupTable, *, checkpoint: bool) -> None:
        """A chunk that ends with the table's last slot makes known what ends inside a block, where
        prefixes are matched in units. checkpoint: it leaves a state on the way.
        """
        if self._inner is None:
            return
        self._name_tail(table, table.tokens)
        last = self._state_places.tail(table.prompt_tokens, self._unit)
        for g in self._states:
            if checkpoint:
                self._name_checkpoint(table, g, last)
            elif table.tokens == last and (last % self._size or self._state_places.behind):
                block = self._block(table, g, ceil_div(last, self._size) - 1)
                if self._name_state(table, g, block, last) and last % self._size:
                    table.copied[g] = block

    def _block(self, table: GroupTable, g: int, place: int) -> int:
        return table.lists[g][place - table.skipped[g]]

    def _name_state(self, table: GroupTable, g: int, block: int, tokens: int) -> bool:
        """`block` holds the state after so many tokens and no other; False: that was known."""
        key = self._unit_key(table, g, tokens)
        if self._pool.key_of(block) == key:
            return False
        self.in_step.difference_update(self._pool.forget(block))
        self._pool.add_key(block, key)
        self.in_step.add(key)
        return True

    def _name_tail(self, table: GroupTable, known_tokens: int) -> None:
        """Full attention is known to the last unit of the prompt, wherever in a block it ends."""
        for g in self._placed:
            limit = self._tail_limit(table.prompt_tokens, g)
            tail = limit // self._unit * self._unit
            known = min(known_tokens, len(table.keys) * self._unit)
            if g not in self._states and tail % self._size and tail <= known:
                block = self._block(table, g, tail // self._size)
                self._pool.add_key(block, self._unit_key(table, g, tail))

    def _tail_limit(self, prompt_tokens: int, g: int) -> int:
        """Tokens of a prompt that group g may be known to: all, where a hit loses its last unit."""
        places = self._state_places
        return prompt_tokens - (places.counts_drops and not self._drops[g])

    def _name_checkpoint(self, table: GroupTable, g: int, last: int) -> None:
        """The block before the running state's holds the state at the last place in the chunk; it
        is known if that is the prompt's own, the junction or a place to be retained.
        """
        at, size = self._state_places.last(table.tokens, self._unit), self._size
        block = self._block(table, g, ceil_div(table.tokens, size) - 2)
        retained = not at % size and self._retention[g].kept(at // size - 1, at // size, ())
        if retained or at in (last, table.junction_tokens):
            self._name_state(table, g, block, at)
            return
        lost = self._pool.forget(block)
        self.in_step.difference_update(lost)
        self._pool.num_evicted += bool(lost)

    def _unit_key(self, table: GroupTable, g: int, tokens: int) -> int:
        """Of what ends after so many tokens, a multiple of the unit."""
        return table.keys[tokens // self._unit - 1] * self._num + g

    def is_being_made(self, hits: Hits) -> bool:
        """Whether a state that these hits go on from got its key in this very step."""
        if not self.in_step:
            return False
        last = (blocks[-1] for g, blocks in enumerate(hits.blocks) if g in self._states and blocks)
        return any(self._pool.key_of(block) in self.in_step for block in last)


def _dropping(groups: Sequence[BlockGroup], drops: bool) -> list[bool]:
    """Which groups lose the last unit of a hit: those with a drafter's layers; all, if none has."""
    known = any(group.drafts for group in groups)
    return [drops and not group.state_bytes and (group.drafts or not known) for group in groups]
