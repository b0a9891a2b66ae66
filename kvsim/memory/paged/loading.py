"""Blocks of sequences whose KV comes from outside of the device (vLLM 0.33,
v1/core/sched/scheduler.py: WAITING_FOR_REMOTE_KVS).
"""

from mypy_extensions import mypyc_attr

from kvsim.memory.allocator import Demand
from kvsim.memory.paged.allocator import PagedAllocator
from kvsim.memory.paged.extent import NOTHING_FOUND
from kvsim.memory.paged.hits import Hits
from kvsim.memory.paged.table import Table
from kvsim.sequence import Sequence


@mypyc_attr(allow_interpreted_subclasses=True)
class LoadingAllocator(PagedAllocator):
    """A paged allocator under a KV connector: it keeps `kvsim.memory.loading.LoadingPromise`."""

    def start_load(self, seq: Sequence, demand: Demand, kept_blocks: int) -> bool:
        needs, free, busy = self._needs, self.pool.num_free, demand.busy
        hits = needs.hits(seq)
        if needs.need(seq, hits, demand.fit_tokens, whole=True, busy=busy) > free:
            return False
        need = needs.need(seq, hits, demand.num_tokens, whole=False, busy=busy)
        if need > free - kept_blocks:
            return False
        table: Table = seq.memory
        table.prompt_tokens = seq.prompt_tokens
        table.boundaries = self._names.boundaries(seq.prompt_tokens)
        table.junction_tokens = self._junction(hits)
        self._live[seq] = None
        self._tables.open(table, hits)
        self._tables.grown(seq.final_tokens, 0, table.count)
        units, states = self._room(demand.num_tokens)
        self._decoding.grow(seq, table, units, states)
        table.computed = hits.tokens
        self._cache.admitted(seq, hits.tokens, [])
        return True

    def end_load(self, seq: Sequence, num_tokens: int) -> None:
        self._filled(seq, seq.memory, num_tokens, checkpoint=False)

    def resume(self, seq: Sequence, demand: Demand) -> bool:
        free, table = self.pool.num_free, seq.memory
        if self._need_beside(seq, demand.fit_tokens, whole=True, busy=demand.busy) > free:
            return False
        if self._need_beside(seq, demand.num_tokens, whole=False, busy=demand.busy) > free:
            return False
        units, states = self._room(demand.num_tokens)
        self._decoding.grow(seq, table, units, states)
        self._filled(seq, table, demand.num_tokens, checkpoint=False)
        table.computed = demand.cached_tokens
        return True

    def lacking_blocks(self, seq: Sequence) -> int:
        return self._need_beside(seq, seq.num_tokens, whole=True, busy=False)

    def _need_beside(self, seq: Sequence, tokens: int, *, whole: bool, busy: bool) -> int:
        """Blocks that a sequence needs beside those of its table."""
        num = len(self._sizes.blocks)
        held = Hits(seq.memory.count * self._sizes.unit, (0,) * num, (NOTHING_FOUND,) * num)
        need = self._needs.need(seq, held, tokens, whole=whole, busy=busy)
        return max(0, need)

    def tables_of(self, seq: Sequence) -> tuple[list[list[int]], list[int]]:
        self._decoding.catch_up(seq)
        table: Table = seq.memory
        return self._tables.numbers_by_group(table), table.skipped
