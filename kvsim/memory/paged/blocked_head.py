"""How long the head of the waiting queue stays blocked for lack of memory while others decode."""

from kvsim.memory.paged.admission import AdmissionNeeds
from kvsim.memory.paged.decoding import Decoding
from kvsim.memory.paged.group_lookup import Hits
from kvsim.memory.paged.pool import BlockPool
from kvsim.memory.paged.prefix_cache import PrefixCache
from kvsim.sequence import Sequence


class BlockedHead:
    """Predicts how long the head of the waiting queue lacks blocks of `pool`.

    put_off: whether the head waits for a state that a step in flight computes. freed_since: whether
    copies freed blocks after the last step was scheduled.
    """

    def __init__(
        self, pool: BlockPool, needs: AdmissionNeeds, cache: PrefixCache, decoding: Decoding
    ) -> None:
        self._pool, self._needs, self._cache, self._decoding = pool, needs, cache, decoding
        self.put_off = self.freed_since = False

    def steps(self, head: Sequence, block_size: int, limit: int, *, busy: bool) -> int:
        """See `Allocator.steps_head_stays_blocked`. block_size: tokens in the smallest block."""
        hits = self._needs.hits(head)
        spare = self._pool.num_free - self._needs.need_of_head(head, hits, busy=busy)
        if self._decoding.even:
            if self._cache.may_become_admissible(head, hits.tokens // block_size):
                return 0
            if spare >= 0:
                limit = self._decoding.steps_within(spare, limit)
            if self._cache.has_host and len(self._cache.table_of(head).runs):
                # A block that is taken may evict content of `head` from the host tier.
                return self._decoding.steps_within(0, limit)
            return limit
        return self._one_by_one(head, hits, limit, spare, busy=busy)

    def _one_by_one(self, head: Sequence, hits: Hits, limit: int, spare: int, *, busy: bool) -> int:
        """`steps` for tables that free blocks while their sequences run.

        The result ends at the next allocation or free of a block if the head has hits that an
        allocation could evict. The same holds if the whole head fits but not chunk by chunk.
        """
        unsettled = self.put_off or self.freed_since or self._decoding.copying
        if unsettled or self._cache.may_become_admissible(head, 0):
            return 0
        free = self._pool.num_free
        most = self._needs.need(head, hits, head.num_tokens, whole=False, busy=busy)
        known = hits.tokens > 0 or hits.junction > 0
        # If all free blocks are cached, the ledger does not show which block is blank next.
        unknown_next = spare < 0 and free == self._pool.num_cached_free
        delicate = known or unknown_next or (spare >= 0 and most > free)
        return self._decoding.forecast.steps_head_stays_blocked(spare, limit, delicate=delicate)

    def waits(self, head: Sequence) -> tuple[bool, bool] | None:
        """(whether `head` may lack blocks, whether it has hits), for a head that could not start
        while others run.

        None: the end of its wait cannot be predicted.
        """
        hits = self._needs.hits(head)
        if self.put_off or self._cache.may_become_admissible(head, 0):
            return None
        tokens, free = head.num_tokens, self._pool.num_free
        lacking = self._needs.need(head, hits, tokens, whole=True, busy=True) > free
        lacking = lacking or self._needs.need(head, hits, tokens, whole=False, busy=True) > free
        return lacking, hits.tokens > 0 or hits.junction > 0
