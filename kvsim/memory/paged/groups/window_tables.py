"""Block tables where no group of layers holds states: neighbouring groups with one window have
blocks at the same positions, and take and give them together.

In the order in which they would one by one, so that the pool cannot tell the difference.
"""

from itertools import groupby

from kvsim.memory.paged.groups.table import GroupTable
from kvsim.memory.paged.groups.tables import GroupTables


class WindowTables(GroupTables):
    """The same as `GroupTables`, for groups of which none has states."""

    def _arrange(self) -> None:
        groups = self.groups
        neighbours = groupby(range(len(groups)), key=self.windows.__getitem__)
        self._neighbours = [list(members) for _, members in neighbours]
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
        if more == 1:
            for held, block in zip(lists, self._pool.take(len(lists)), strict=True):
                held.append(block)
        elif more > 0:
            blocks = self._pool.take(more * len(lists))
            for g, held in enumerate(lists):
                held += blocks[g * more : (g + 1) * more]
        if more > 0:
            self.pad_bytes += more * self._all_pads
            table.count = count
        table.states = max(table.states, states)
        table.begun = True

    def give_back_below(self, table: GroupTable, computed: int) -> None:
        for looks_back_tokens, members in self._sliding:
            skip = (computed - looks_back_tokens + 1) // self._size
            if skip > table.skipped[members[0]]:
                more = min(skip, table.count) - table.skipped[members[0]]
                if more > 0:
                    self._give_back_first(table, members, more)

    def _give_back_first(self, table: GroupTable, members: list[int], more: int) -> None:
        """These groups return the first `more` blocks of each."""
        lists, skipped, size = table.lists, table.skipped, self._size
        known = skipped[members[0]] + more
        if self._names.names_late and known > table.registered:
            self._names.register_returning(table, members, known)
        if more == 1:
            blocks = [lists[g][0] for g in members]
            if self._pool.give_back_blank(blocks):
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
        if not self._names.names_late or known <= table.registered:
            super().close(table, known)
        elif table.registered:
            self._names.register(table, min(known, len(table.keys)), in_step=False)
            super().close(table, known)
        else:
            self._close_nameless(table, known)

    def _close_nameless(self, table: GroupTable, known: int) -> None:
        """The same where no block has a key: what would have got one is cached without it."""
        pool, lists, size = self._pool, table.lists, self._size
        for members in self._neighbours:
            skipped = table.skipped[members[0]]
            places = self._names.places(table, members[0], known)
            start = end = 0
            if places:
                start, end = places[0] - skipped, places[-1] + 1 - skipped
            in_one_run = end - start == len(places)
            slots = table.tokens - skipped * size
            for g in members:
                held = lists[g]
                if in_one_run:
                    cached, blank = held[start:end], held[:start] + held[end:]
                else:
                    kept = {held[place - skipped] for place in places}
                    cached = [block for block in held if block in kept]
                    blank = [block for block in held if block not in kept]
                shared = pool.give_back_parts(cached, blank)
                self._book(g, shared - len(held), shared * size - slots)
