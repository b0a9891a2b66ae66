"""Hits of a prefix cache with several groups of layers.

All groups must have the same prefix cached. Full attention needs all its blocks, a window of W
tokens the blocks of the last W - 1 tokens. A chunk of local attention needs the blocks from the
chunk's first token on, a recurrent layer the state at its end.

Blocks that hold states are long (hundreds of tokens and more). If prefixes are matched in smaller
units, hits may end inside such blocks. Full attention is then cached up to the last whole block,
and inside the next block up to where a prompt ended. A state is cached where a chunk ended. vLLM
0.33,
v1/core/kv_cache_coordinator.py and v1/core/single_type_kv_cache_manager.py.
"""

from collections.abc import Sequence

from kvsim.memory.content_keys import KeyRuns
from kvsim.memory.paged.blocks import INSIDE, NOTHING_FOUND, Found, Table
from kvsim.memory.paged.pool import BlockPool
from kvsim.memory.paged.windows import Reach, reaches_of, skipped_blocks
from kvsim.plumbing.units import ceil_div
from kvsim.vllm.grouping import BlockGroup
from kvsim.vllm.sizes import Sizes


class Hits:
    """The longest prefix cached in all groups.

    tokens: its length. first, found: for each group, the position of the first block that it needs,
    and the cached blocks from there on. The prefix may end inside the last block. junction: the
    shared-prefix boundary, the length of the longest prefix that some group has cached, if longer
    than tokens; else 0. Other sequences share that prefix, so the sequence that computes it caches
    what the other groups need at its end.
    """

    __slots__ = ("first", "found", "junction", "tokens")

    def __init__(
        self, tokens: int, first: Sequence[int], found: Sequence[Found], junction: int = 0
    ) -> None:
        self.tokens, self.first, self.found, self.junction = tokens, first, found, junction


class Kind:
    """Groups of layers with equal attention spans and block sizes, which are looked up together.

    reach: the window or chunk; None for full attention. drops: hits lose their last unit, since the
    layers of a drafter (EAGLE) must compute it again.
    """

    def __init__(
        self,
        members: Sequence[int],
        block_size: int,
        reach: Reach | None,
        recurrent: bool,
        drops: bool,
    ) -> None:
        self.members, self.block_size, self.reach = members, block_size, reach
        self.full, self.recurrent, self.drops = reach is None, recurrent, drops


def kinds_of(groups: Sequence[BlockGroup], *, states_kept: bool, drops: bool) -> list[Kind]:
    """The cached groups by kind.

    drops: hits lose their last unit in the kinds with layers of a drafter. If it is unknown which
    kinds have such layers, all kinds but recurrent states lose it.
    """
    reaches = reaches_of(groups, states_kept=states_kept)
    buckets: dict[int, list[int]] = {}
    for g, group in enumerate(groups):
        if states_kept or not group.state_bytes:
            buckets.setdefault(group.bucket, []).append(g)
    known = any(group.draft_layers for group in groups)
    found = []
    for members in buckets.values():
        first, recurrent = groups[members[0]], groups[members[0]].state_bytes > 0
        drafting = any(groups[g].draft_layers for g in members)
        dropping = drops and not recurrent and (drafting or not known)
        reach = reaches[members[0]]
        found.append(Kind(tuple(members), first.block_size, reach, recurrent, dropping))
    return found


def key_of(table: Table, tokens: int, block_size: int, unit: int) -> int:
    """The key of content that ends after `tokens` tokens, at the end of a block or inside it."""
    if tokens % block_size:
        return INSIDE + table.runs.at(tokens // unit - 1)
    return table.runs_in(block_size // unit).at(tokens // block_size - 1)


class Lookup:
    """Finds prefixes that all groups have cached.

    A group with drafter layers drops the last unit of its hit, so it looks for one unit more than
    the prefix. beyond: that unit may follow the last unit that can be hit. finds_states: recurrent
    states are looked up together with full attention.
    """

    def __init__(
        self, pool: BlockPool, kinds: Sequence[Kind], sizes: Sizes, *, beyond: bool
    ) -> None:
        self._pool, self._num, self._sizes = pool, len(sizes.blocks), sizes
        # Full attention comes first, as it is looked up from the left.
        self._kinds = sorted(kinds, key=lambda kind: not kind.full)
        self._beyond = beyond
        states = any(kind.recurrent for kind in kinds)
        self.finds_states = states and any(kind.full for kind in kinds)
        self._simple = len(kinds) == 2 and self._kinds[0].full
        self._alone = self._num == 1 and len(kinds) == 1 and kinds[0].full and sizes.same
        self._ends = dict[int, int]()  # by kind: tokens up to the last hit block
        self._starts = dict[int, int]()  # by kind: the first block looked up in a chunk
        self._no_hits = Hits(0, (0,) * self._num, (NOTHING_FOUND,) * self._num)

    def find(self, table: Table, num_keys: int, most: int) -> Hits:
        """The longest cached prefix from which every group can continue. num_keys: number of keys
        of `table` to look up; most: largest length in units.
        """
        num_keys = min(num_keys, len(table.runs))
        most = min(most, num_keys)
        if most <= 0:
            return self._no_hits
        if self._alone:
            return self._in_one_table(table, most)
        tokens = known = most * self._sizes.match
        limit = num_keys if self._beyond else most
        longest, dropped = 0, set[int]()
        lengths: dict[int, int] = {}  # of full attention, looked up once
        while True:
            for index, kind in enumerate(self._kinds):
                if index in lengths:
                    known = min(known, lengths[index])
                    continue
                drops = kind.drops and index not in dropped
                found = self._length(index, kind, table, limit, known, drops=drops)
                if drops:
                    dropped.add(index)
                elif found < known:
                    dropped.clear()
                known = found
                if kind.full:
                    lengths[index] = found
                longest = max(longest, known)
            if known >= tokens:
                break
            tokens = known
            if self._simple:
                break
        return self._hits(table, tokens, longest if longest > tokens and self._num > 1 else 0)

    def find_apart(self, table: Table, num_keys: int, most: int) -> Hits:
        """The prefix cached in full attention, even if other groups have less of it. If another
        group has more, the result is that of `find`.
        """
        num_keys = min(num_keys, len(table.runs))
        most = min(most, num_keys)
        if most <= 0:
            return self._no_hits
        limit, tokens = num_keys if self._beyond else most, most * self._sizes.match
        lengths = [
            self._length(index, kind, table, limit, tokens, drops=kind.drops)
            for index, kind in enumerate(self._kinds)
        ]
        if max(lengths) > lengths[0]:
            return self.find(table, num_keys, most)
        return self._hits(table, lengths[0], 0)

    def _in_one_table(self, table: Table, most: int) -> Hits:
        kind = self._kinds[0]
        found = self._pool.find(0, table.runs, 0, most)
        if kind.drops and found.num:
            found = self._pool.find(0, table.runs, 0, found.num - 1)
        if not found.num:
            return self._no_hits
        return Hits(found.num * kind.block_size, (0,), (found,))

    def _length(
        self, index: int, kind: Kind, table: Table, limit: int, tokens: int, *, drops: bool
    ) -> int:
        """Tokens of the longest prefix, at most `tokens`, from which one kind of groups can
        continue. limit: number of keys to look up.
        """
        aligned, size = self._sizes.aligned, kind.block_size
        if drops and self._num > 1:
            tokens = min(tokens + min(aligned, size), limit * self._sizes.match)
        if kind.recurrent:
            return self._of_state(kind, table, tokens)
        if kind.reach is not None:
            if kind.reach.chunked:
                return self._of_chunk(index, kind, kind.reach, table, tokens)
            return self._of_window(kind, kind.reach, table, tokens, drops=drops)
        found = self._of_full(index, kind, table, limit, tokens)
        if drops and found:
            found -= min(aligned, size)
        return found - found % aligned

    def _runs(self, kind: Kind, table: Table) -> KeyRuns:
        return table.runs_in(kind.block_size // self._sizes.match)

    def _knows(self, kind: Kind, table: Table, tokens: int) -> bool:
        """Whether all groups of `kind` have cached a block that ends after exactly `tokens`
        tokens.
        """
        key = key_of(table, tokens, kind.block_size, self._sizes.match)
        return all(self._pool.block_of(g, key) is not None for g in kind.members)

    def _of_full(self, index: int, kind: Kind, table: Table, limit: int, tokens: int) -> int:
        """`_length` for full attention: whole blocks from the left and, if hits may end inside
        blocks, units of the next one.
        """
        size, unit, runs = kind.block_size, self._sizes.match, self._runs(kind, table)
        num = tokens // size
        for g in kind.members:
            num = self._pool.find(g, runs, 0, num).num
        whole = end = num * size
        if self._sizes.aligned < size:
            most = min(whole + size - unit, tokens // unit * unit, limit * unit)
            inside = range(most, whole, -unit)
            end = next((at for at in inside if self._knows(kind, table, at)), whole)
        self._ends[index] = end
        return end

    def _last_known(self, kind: Kind, runs: KeyRuns, below: int, enough: int) -> tuple[int, int]:
        """The last run of block positions before `below`, at most `enough` long, that all groups of
        a kind have cached, as (first, end); (0, 0): none.
        """
        start, end = 0, below
        while True:
            start, before = 0, end
            for g in kind.members:
                first, last = self._pool.run_below(g, runs, end, enough)
                start = max(start, first)
                end = min(end, last)
            if start < end == before:
                return start, end
            if not end:
                return 0, 0

    def _of_chunk(self, index: int, kind: Kind, reach: Reach, table: Table, tokens: int) -> int:
        """`_length` for chunked local attention: only blocks of the last chunk of `tokens` tokens
        must be cached; earlier ones count as found.
        """
        size, runs = kind.block_size, self._runs(kind, table)
        start, end = reach.skipped_tokens(tokens) // size, tokens // size
        for g in kind.members:
            end = start + self._pool.find(g, runs, start, end).num
        self._starts[index] = start
        return end * size

    def _of_window(
        self, kind: Kind, reach: Reach, table: Table, tokens: int, *, drops: bool
    ) -> int:
        """`_length` for a sliding window: the last run of cached blocks that fills the window, or
        the run at the start of the prefix. drops: one more block is needed, as the last is dropped.
        """
        size, aligned, runs = kind.block_size, self._sizes.aligned, self._runs(kind, table)
        need, each = ceil_div(reach.kept_tokens, size) + drops, aligned // size
        below = tokens // size
        while below:
            start, last = self._last_known(kind, runs, below, need + each)
            end = last - (last - drops) % each
            if end > start and (end - start >= need or not start):
                end -= end % each if end - start < need else 0
                end -= min(drops, end)
                return (end - end % each) * size
            below = start
        return 0

    def _of_state(self, kind: Kind, table: Table, tokens: int) -> int:
        """`_length` for recurrent states: the last position with a cached state."""
        size, aligned, runs = kind.block_size, self._sizes.aligned, self._runs(kind, table)
        if aligned < size:
            last = tokens // aligned * aligned
            places = range(last, 0, -aligned)
            return next((at for at in places if self._knows(kind, table, at)), 0)
        each, below = aligned // size, tokens // size
        while below:
            start, end = self._last_known(kind, runs, below, each)
            end -= end % each
            if end > start:
                return end * size
            below = start
        return 0

    def _hits(self, table: Table, tokens: int, junction: int) -> Hits:
        first, found = [0] * self._num, [NOTHING_FOUND] * self._num
        for index, kind in enumerate(self._kinds):
            size, runs = kind.block_size, self._runs(kind, table)
            start = max(skipped_blocks(kind.reach, tokens, size), self._starts.get(index, 0))
            for g in kind.members:
                first[g] = start
                found[g] = self._pool.find(g, runs, start, tokens // size)
                if tokens % size and found[g].num == tokens // size - start:
                    found[g] = self._with_last(index, kind, g, table, tokens, found[g])
        return Hits(tokens, first, found, junction)

    def _with_last(
        self, index: int, kind: Kind, g: int, table: Table, tokens: int, found: Found
    ) -> Found:
        """Append to `found` the block inside which the prefix ends, which may be cached as a
        whole.
        """
        at, size = tokens, kind.block_size
        if not kind.recurrent:
            end = ceil_div(tokens, size) * size
            at = min(end, self._ends.get(index, end))
        block = self._pool.block_of(g, key_of(table, at, size, self._sizes.match))
        if block is None:
            return found
        return Found(found.num + 1, found.before, [*found.parts, (block, 1)])
