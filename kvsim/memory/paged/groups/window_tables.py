"""Block tables where no group of layers holds states: neighbouring groups with one window, in
blocks of one size, have blocks at the same positions, and take and give them together.

In the order in which they would one by one, so that the pool cannot tell the difference.
"""

from collections.abc import Sequence
from itertools import groupby

from kvsim.memory.paged.groups.list_tables import ListTables
from kvsim.memory.paged.groups.table import GroupTable


class WindowTables(ListTables):
    """The same as `ListTables`, for groups of which none has states."""

    def _arrange(self) -> None:
        groups, sizes = self.groups, self._sizes
        kinds = [*zip(self.windows, sizes.blocks, strict=True)]
        neighbours = groupby(range(len(groups)), key=kinds.__getitem__)
        self._neighbours = [list(members) for _, members in neighbours]
        self._even = sizes.unit == sizes.whole
        self._size = sizes.whole
        self._sliding: list[tuple[int, list[int]]] = []
        for members in self._neighbours:
            window = self.windows[members[0]]
            if window is not None:
                self._sliding.append((window + self._extra, members))
        # Of neighbours, by the first: padding of a block of each, and a slot of each.
        self._weights = {
            alike[0]: (sum(self._pads[g] for g in alike), sum(groups[g].slot_bytes for g in alike))
            for alike in self._neighbours
        }
        self._all_pads = sum(self._pads)

    def grow(self, table: GroupTable, count: int, states: int, *, checkpoint: bool = False) -> None:
        more, lists = count - table.count, table.lists
        if not self._even:
            if more > 0:
                self._grow_apart(table, count)
        elif more == 1:
            for held, block in zip(lists, self._pool.take(len(lists)), strict=True):
                held.append(block)
        elif more > 0 and len(lists) == 1:
            lists[0] += self._pool.take(more)
        elif more > 0:
            blocks = self._pool.take(more * len(lists))
            for g, held in enumerate(lists):
                held += blocks[g * more : (g + 1) * more]
        if more > 0:
            if self._even:
                self.pad_bytes += more * self._all_pads
            table.count = count
        table.states = max(table.states, states)
        table.begun = True

    def _grow_apart(self, table: GroupTable, count: int) -> None:
        """Take blocks until every group has room for so many units, where that is not as many."""
        positions, lists = self._sizes.positions, table.lists
        for members in self._neighbours:
            first = members[0]
            more = positions(first, count) - table.skipped[first] - len(lists[first])
            if more > 0:
                blocks = self._pool.take(more * len(members))
                for at, g in enumerate(members):
                    lists[g] += blocks[at * more : (at + 1) * more]
                self.pad_bytes += more * self._weights[first][0]

    def give_back_below(self, table: GroupTable, computed: int) -> None:
        for looks_back_tokens, members in self._sliding:
            first = members[0]
            skip = (computed - looks_back_tokens + 1) // self._sizes.blocks[first]
            if skip > table.skipped[first]:
                more = min(skip - table.skipped[first], len(table.lists[first]))
                if more > 0:
                    self._give_back_first(table, members, more)

    def _give_back_first(self, table: GroupTable, members: list[int], more: int) -> None:
        """These groups return the first `more` blocks of each."""
        lists, skipped, size = table.lists, table.skipped, self._sizes.blocks[members[0]]
        known = skipped[members[0]] + more
        if self._names.names_late and known > table.registered:
            self._names.register_returning(table, members, known)
        if more == 1:
            blocks = [lists[g][0] for g in members]
            if self._pool.give_back_alone(blocks):
                for g in members:
                    del lists[g][0]
                    skipped[g] += 1
                pads, slot_bytes = self._weights[members[0]]
                self.pad_bytes -= pads
                self.used_bytes -= slot_bytes * size
                return
        for g in members:
            self._give_back(g, table, lists[g][:more], more * size)
            del lists[g][:more]
            skipped[g] += more

    def close(self, table: GroupTable, known: int) -> None:
        if not self.slides or not self._names.names_late or known <= table.registered:
            super().close(table, known)
        elif table.registered:
            self._names.register(table, min(known, len(table.runs)), in_step=False)
            super().close(table, known)
        else:
            self._close_nameless(table, known)

    def _close_nameless(self, table: GroupTable, known: int) -> None:
        """The same where no block has a key: what would have got one is cached without it."""
        lists, size = table.lists, self._size
        parts: list[tuple[list[int], list[int], int]] = []  # cached, blank, a prompt's: by group
        used = pads = 0
        for members in self._neighbours:
            first = members[0]
            skipped = table.skipped[first]
            places = self._names.places(table, first, known)
            num_prompt = 0
            if self.windows[first] is None:
                num_prompt = self._num_prompt(first, table, skipped)
            for g in members:
                kept, rest = _parted(lists[g], places, skipped)
                parts.append((kept, rest, num_prompt))
            pad_bytes, slot_bytes = self._weights[first]
            used += slot_bytes * (table.tokens - skipped * size)
            pads += pad_bytes * len(lists[first])
        blank = [block for _, rest, _ in parts for block in rest]
        # The end of a table goes before its beginning, table by table.
        if self._pool.give_back_alone(blank, [b for kept, *_ in parts for b in reversed(kept)]):
            for (kept, _, num_prompt), why in zip(parts, self._why, strict=True):
                self._pool.kept.add(kept[num_prompt:], why)
            self.used_bytes -= used
            self.pad_bytes -= pads
            return
        for g, (kept, rest, num_prompt) in enumerate(parts):
            shared = self._pool.give_back_parts(kept, rest, self._why[g], num_prompt)
            slots = table.tokens - table.skipped[g] * size
            self._book(g, shared - len(lists[g]), shared * size - slots)


def _parted(held: list[int], places: Sequence[int], skipped: int) -> tuple[list[int], list[int]]:
    """Of a table from position `skipped` on: the blocks at these places, and the others."""
    if not places:
        return [], held
    start, end = places[0] - skipped, places[-1] + 1 - skipped
    if end - start == len(places):
        return held[start:end], held[:start] + held[end:]
    kept = {held[place - skipped] for place in places}
    return [b for b in held if b in kept], [b for b in held if b not in kept]
