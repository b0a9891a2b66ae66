"""Block tables of the sequences that hold memory: opened with cache hits, filled by steps, and
closed.
"""

from kvsim.memory.options import MemorySpec
from kvsim.memory.paged.admission import Lookahead
from kvsim.memory.paged.block_keys import BlockNames
from kvsim.memory.paged.blocks import Table
from kvsim.memory.paged.group_lookup import Hits
from kvsim.memory.paged.prefix_cache import PrefixCache
from kvsim.memory.paged.tables import BlockTables
from kvsim.plumbing.units import ceil_div
from kvsim.sequence import Sequence
from kvsim.vllm.sizes import Sizes


class LiveTables:
    """The live sequences and the valid slots of their tables.

    seqs: the sequences, in the order in which their tables were opened. steps: steps scheduled so
    far, where a run of steps counts as two at most. ahead: number of steps in flight while a step
    is scheduled.
    """

    def __init__(
        self,
        memory: MemorySpec,
        tables: BlockTables,
        cache: PrefixCache,
        names: BlockNames,
        drafts: Lookahead,
        sizes: Sizes,
    ) -> None:
        self.seqs: dict[Sequence, None] = {}
        self.steps = 0
        self.ahead, self._plants = memory.steps_ahead, memory.rules.plants_junctions
        self._token_bytes = memory.layout.bytes_per_token
        self._tables, self._cache, self._names = tables, cache, names
        self._drafts, self._sizes = drafts, sizes

    def __contains__(self, seq: Sequence) -> bool:
        return seq in self.seqs

    def open(self, seq: Sequence, hits: Hits) -> Table:
        """Open the table of a waiting sequence with its cache hits."""
        table: Table = seq.memory
        table.prompt_tokens = seq.prompt_tokens
        table.boundaries = self._names.boundaries(seq.prompt_tokens)
        table.junction_tokens = self.junction(hits)
        self.seqs[seq] = None
        self._tables.open(table, hits)
        self._tables.grown(seq.final_tokens, 0, table.count)
        return table

    def junction(self, hits: Hits) -> int:
        """The shared-prefix boundary of `hits` in tokens; 0 unless the engine version caches
        something there.
        """
        return hits.junction if self._plants else 0

    def room(self, num_tokens: int) -> tuple[int, int]:
        """Units of token tables, and positions of state tables, for a step up to slot
        `num_tokens`.
        """
        units = ceil_div(self._drafts.room(num_tokens), self._sizes.unit)
        return units, self._tables.shapes.states_for(num_tokens)

    # --- valid slots ---------------------------------------------------------------------------

    def filled(self, seq: Sequence, num_tokens: int, *, checkpoint: bool) -> None:
        """Mark the first `num_tokens` slots as valid, as far as their tokens are known, and cache
        the full blocks among them.
        """
        table: Table = seq.memory
        if self.ahead:
            oldest = self.steps - self.ahead
            table.launches = [each for each in table.launches if each[0] > oldest]
            table.launches.append((self.steps, table.tokens))
        self.set_valid(table, num_tokens, min(num_tokens, seq.num_tokens))
        self._cache.filled(seq, table)
        self._names.name_inside(table, checkpoint=checkpoint)

    def set_valid(self, table: Table, num_tokens: int, valid_tokens: int) -> None:
        """Set the valid slots among those up to `num_tokens` and those of the next drafts."""
        self._tables.used_bytes += (valid_tokens - table.tokens) * self._token_bytes
        table.computed, table.tokens = table.tokens, valid_tokens
        self._tables.drafting(table, self._drafts.unused(num_tokens, valid_tokens))

    def returned(self, table: Table) -> int:
        """Slots of a table from steps that have returned when the next step is scheduled."""
        for launched, slots in table.launches:
            if self.steps - launched <= self.ahead:
                return slots
        return table.tokens

    # --- release -------------------------------------------------------------------------------

    def close(self, seq: Sequence, *, last_first: bool = False) -> None:
        """Free the blocks of a sequence's table. last_first: see `BlockTables.close`."""
        table: Table = seq.memory
        del self.seqs[seq]
        known = self._cache.released(seq, table)
        self._tables.close(table, known if seq.finished else 0, last_first=last_first)
        self._tables.closed(table, seq.final_tokens)
