"""Names of what ends inside a block, where a block is longer than what a key covers.

Full attention is known to the last unit of a prompt, wherever in a block it ends. A state is known
where a chunk ended, and at a checkpoint within the chunk. vLLM 0.33,
v1/core/single_type_kv_cache_manager.py, `_cache_partial_tail_block`.
"""

from collections.abc import Sequence

from kvsim.memory.paged.block_pool import NULL_BLOCK
from kvsim.memory.paged.groups.hits import Kind
from kvsim.memory.paged.groups.places import Places
from kvsim.memory.paged.groups.retention import Retention
from kvsim.memory.paged.groups.table import GroupTable
from kvsim.memory.paged.pool import NumberedPool
from kvsim.plumbing.units import ceil_div
from kvsim.vllm.sizes import Sizes


class Inside:
    """Beside `GroupNames`, with its kinds of groups and their retention. in_step, drafts: as there.

    Where hits end with blocks, a name inside one is never looked up: it only keeps, for drafts,
    what lies behind the last token with a key.
    """

    def __init__(
        self,
        pool: NumberedPool,
        kinds: Sequence[Kind],
        sizes: Sizes,
        places: Places,
        retention: Sequence[Retention | None],
        in_step: set[int],
        *,
        drafts: bool,
    ) -> None:
        self._pool, self._sizes, self._places = pool, sizes, places
        self._num, self._in_step = len(sizes.blocks), in_step
        self._tails = [
            kind
            for kind in kinds
            if kind.full and kind.block_size > sizes.match and (sizes.inner or drafts)
        ]
        self._states = [
            (g, retained)
            for kind, retained in zip(kinds, retention, strict=True)
            if kind.recurrent and retained is not None
            for g in kind.members
        ]

    def name_tails(self, table: GroupTable, tokens: int, hashed_tokens: int) -> None:
        """Of a table with so many computed tokens, and so many with keys, the end of the prompt."""
        unit = self._sizes.match
        for kind in self._tails:
            size = kind.block_size
            # All tokens of a prompt where a hit loses its last unit.
            limit = table.prompt_tokens - (self._places.counts_drops and not kind.drops)
            tail = min(limit, hashed_tokens) // unit * unit
            known = self._sizes.cacheable(tokens, size, drops=kind.drops)
            if tail % size and 0 < tail <= known:
                for g in kind.members:
                    block = table.lists[g][tail // size - table.skipped[g]]
                    self._pool.add_key(block, self._key(table, g, tail))

    def name(self, table: GroupTable, *, checkpoint: bool) -> None:
        """Of a table whose last slot ends a chunk. checkpoint: it leaves a state on the way."""
        self.name_tails(table, table.tokens, len(table.runs) * self._sizes.match)
        last = self._places.tail(table.prompt_tokens, self._sizes.match)
        for g, retention in self._states:
            size = self._sizes.blocks[g]
            if checkpoint:
                self._name_checkpoint(table, g, retention)
            elif self._sizes.cacheable(table.tokens, size, drops=False) == last > 0:
                place = ceil_div(last, size) - 1 - table.skipped[g]
                if place < 0 or not (last % size or self._places.behind):
                    continue
                block = table.lists[g][place]
                if block != NULL_BLOCK and self._name_state(table, g, block, last) and last % size:
                    table.copied[g] = block

    def _name_state(self, table: GroupTable, g: int, block: int, tokens: int) -> bool:
        """`block` holds the state after so many tokens and no other; False: that was known."""
        key = self._key(table, g, tokens)
        if self._pool.key_of(block) == key:
            return False
        self._in_step.difference_update(self._pool.forget(block))
        self._pool.add_key(block, key)
        self._in_step.add(key)
        return True

    def _name_checkpoint(self, table: GroupTable, g: int, retention: Retention) -> None:
        """The block before the running state's holds the state at the last place in the chunk; it
        is known if that is the prompt's own, the junction or a place to be retained.
        """
        aligned, size = self._sizes.aligned, self._sizes.blocks[g]
        at = self._places.last(table.tokens, aligned)
        block = table.lists[g][ceil_div(table.tokens, size) - 2 - table.skipped[g]]
        retained = not at % size and retention.kept(at // size - 1, at // size, ())
        last = self._places.tail(table.prompt_tokens, aligned)
        if retained or at in (last, table.junction_tokens):
            self._name_state(table, g, block, at)
            return
        lost = self._pool.forget(block)
        self._in_step.difference_update(lost)
        self._pool.num_evicted += bool(lost)

    def _key(self, table: GroupTable, g: int, tokens: int) -> int:
        """Of what ends after so many tokens, a multiple of the unit."""
        return table.keys[tokens // self._sizes.match - 1] * self._num + g
