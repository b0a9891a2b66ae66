"""What a waiting sequence can take over, and how many free blocks it needs beside that."""

from kvsim.memory.allocator import Demand, Refusal
from kvsim.memory.paged.forks import Forks
from kvsim.memory.paged.groups.cache import GroupsCache
from kvsim.memory.paged.groups.hits import Hits
from kvsim.memory.paged.groups.needs import Needs
from kvsim.memory.paged.groups.state_chunks import StateChunks
from kvsim.memory.paged.lookahead import Lookahead
from kvsim.memory.paged.pool import Pool
from kvsim.memory.paged.shape import BlockShape
from kvsim.plumbing.units import ceil_div
from kvsim.request import Request
from kvsim.sequence import Sequence
from kvsim.vllm.rules import BlockRules


class AdmissionNeeds:
    """Reads the parts of a paged allocator, and changes none of them.

    rules: of the engine's version. watermark_blocks: an admission leaves free beside others.
    chunks: which chunks of prompts leave a recurrent state behind; None: none does. forks: samples
    that share blocks by copy on write; None: none do. one_table: all layers keep every token.
    """

    def __init__(
        self,
        rules: BlockRules,
        shape: BlockShape,
        pool: Pool,
        needs: Needs,
        cache: GroupsCache,
        drafts: Lookahead,
        chunks: StateChunks | None,
        forks: Forks | None,
        watermark_blocks: int,
        *,
        one_table: bool,
    ) -> None:
        self._rules, self._shape, self._pool = rules, shape, pool
        self._needs, self._cache, self._drafts, self._chunks = needs, cache, drafts, chunks
        self._forks, self._watermark_blocks, self._one_table = forks, watermark_blocks, one_table

    def refusal(self, request: Request) -> Refusal | None:
        """See `Allocator.refusal`."""
        size, rules = self._shape.block_size, self._rules
        final = self._drafts.final_room(request.prompt_tokens + request.output_tokens - 1)
        need, beside = self._needs.of_alone(final), ""
        if rules.watermark_when_idle:
            need += self._watermark_blocks
            beside = " beside its watermark"
        if rules.spare_block and request.output_tokens > 1:
            need = max(need, ceil_div(final - 1, size) + 1)  # for its last step
        unit = f"blocks of {size} tokens"
        if not self._one_table:
            unit += " in a group of layers"
        return self._shape.refusal(need, unit, beside)

    def hits(self, seq: Sequence) -> Hits:
        """Blocks that `seq` can take over: the cache's, or those of its family's prompt."""
        hits = self._cache.hits(seq)
        if self._forks is None or seq.request.n == 1:
            return hits
        shared, size = self._forks.prompt_blocks(seq), self._shape.block_size
        if len(shared) * size <= hits.tokens:
            return hits
        return Hits(len(shared) * size, (0,), (shared,))

    def host_keys(self, seq: Sequence, hits: Hits) -> list[int]:
        """Content of `seq` that the host has behind its hits on the device."""
        if not self._cache.has_host:
            return []
        return self._cache.host_keys(seq, hits.tokens // self._shape.block_size)

    def cached_tokens(self, seq: Sequence) -> int:
        """See `Allocator.cached_tokens`."""
        hits = self.hits(seq)
        tokens = hits.tokens + len(self.host_keys(seq, hits)) * self._shape.block_size
        return min(tokens, seq.num_tokens - 1)

    def leaves_checkpoint(self, seq: Sequence, start: int, end: int) -> bool:
        """Whether a chunk of these tokens takes a block more for a state within it."""
        return self._chunks is not None and self._chunks.leaves_checkpoint(seq, start, end)

    def need(self, seq: Sequence, hits: Hits, tokens: int, *, whole: bool, busy: bool) -> int:
        """Free blocks that an admission of `seq` with these hits takes or asks to be there. whole:
        asked for all it will compute, chunk by chunk.
        """
        states = 1 + self.leaves_checkpoint(seq, hits.tokens, tokens)
        watermark = self._watermark_blocks if busy or self._rules.watermark_when_idle else 0
        lookahead = 0 if whole else self._drafts.room(tokens) - tokens
        return watermark + self._needs.of(hits, tokens, states, whole=whole, lookahead=lookahead)

    def need_of_head(self, head: Sequence, hits: Hits, *, busy: bool) -> int:
        """The same of the head of the queue, for all its tokens."""
        return self.need(head, hits, head.num_tokens, whole=True, busy=busy)

    def lacks(self, seq: Sequence, hits: Hits, demand: Demand) -> bool:
        """Whether `demand` asks for more blocks than are free."""
        free, busy = self._pool.num_free, demand.busy
        if self._rules.spare_block and demand.swapped_in:
            blocks = ceil_div(demand.cached_tokens, self._shape.block_size)
            if blocks + 1 + self._watermark_blocks > free:
                return True
        if self.need(seq, hits, demand.fit_tokens, whole=True, busy=busy) > free:
            return True
        if self._one_table and self._drafts.room(demand.num_tokens) <= demand.fit_tokens:
            return False  # blocks of one table that no step gives back: the first need is more
        return self.need(seq, hits, demand.num_tokens, whole=False, busy=busy) > free
