"""Decode steps of all sequences over a pool of pages: how many steps fit, and the pages they
take.
"""

from kvsim.memory.ledger import Course, LedgerJumps
from kvsim.memory.radix.decoders import PageMoves
from kvsim.memory.radix.page_pool import PageLedger, PagePool
from kvsim.sequence import Sequence


class DecodeSteps:
    """Decode steps of all sequences together; one at a time if there is a second pool. begun:
    `begin_decode` has been called for the step being scheduled.
    """

    def __init__(self, pool: PagePool, ledger: PageLedger) -> None:
        self._pool, self._ledger = pool, ledger
        self._second, self._decoders = pool.second, pool.decoders
        self.begun = False

    @property
    def writes_back(self) -> bool:
        """Whether evicted content is first copied to host memory (write_back)."""
        return self._pool.tree.host.write_first is not None

    def steps_that_fit(self, limit: int) -> int:
        """See `Allocator.steps_that_fit`."""
        pages = self._second.room(self._pool.available_tokens()) // self._pool.page_tokens
        return self._second.steps_alike(self._decoders.steps_within(pages, limit))

    def steps_without_copies(self, limit: int) -> int:
        """Number of decode steps, at most `limit`, in which no content is copied to host memory to
        make room.
        """
        if not self.writes_back or not self._pool.tree.evictable:
            return limit
        return self._steps_without_eviction(limit)

    def steps_head_stays_blocked(self, head: Sequence, limit: int) -> int:
        """See `Allocator.steps_head_stays_blocked`.

        Evictions do not change what the head lacks, as it computes what it cannot hit. The result
        is 0 if no page is free but some are evictable. It stops at the first eviction if the head
        has unlocked hits: a smaller first chunk could then be admitted.
        """
        if self._second.in_steps or (not self._pool.free and self._pool.tree.evictable):
            return 0
        hit = self._pool.holds.hit(head)
        spare = self._pool.available_tokens() - self._pool.missing(hit, head.num_tokens)
        if spare >= 0:
            limit = self._decoders.steps_within(spare // self._pool.page_tokens, limit)
        if hit.unlocked:
            limit = self._steps_without_eviction(limit)
        return limit

    def _steps_without_eviction(self, limit: int) -> int:
        """Number of steps, at most `limit`, before which free pages suffice for all decoders."""
        spare = self._pool.free // self._pool.page_tokens - self._decoders.num
        return min(limit, self._decoders.steps_within(spare, limit) + 1) if spare >= 0 else 0

    def advance(self, steps: int) -> Course:
        """See `Allocator.advance`."""
        if self._second.in_steps:
            return self._advance_in_steps(steps)
        decoders, pool = self._decoders, self._pool
        tree, size = pool.tree, pool.page_tokens
        num, done = decoders.num, 0
        moves = PageMoves()
        while done < steps:
            # SGLang makes room for a page per decoder before every step.
            before = tree.evicted
            pool.make_room((num - (0 if done else len(decoders.extended))) * size)
            if tree.evicted > before:
                moves.evicted.add(tree.evicted - before, done + 1)
            span, spare = steps - done, pool.free // size - num
            if spare >= 0 and tree.evictable:
                span = min(span, decoders.steps_within(spare, span, done) + 1)
            pool.free -= decoders.pages(done, span, moves) * size
            done += span
        self._advance_decoders(steps, moves)
        return moves.course(num, size, pool.token_bytes)

    def _advance_in_steps(self, steps: int) -> Course:
        base = self._ledger.usage(None)
        ledger = LedgerJumps(base)
        used = allocated = 0
        for t in range(1, steps + 1):
            self.step()
            now = self._ledger.usage(None)
            ledger.read(now, t)
            used = max(used, now.used - base.used)
            allocated = max(allocated, now.allocated - base.allocated)
        return ledger.course(used, allocated)

    def step(self) -> None:
        """`advance(1)` without the change of the ledger."""
        decoders, pool = self._decoders, self._pool
        size = pool.page_tokens
        if self._second.in_steps and not self.begun:
            pool.make_room(decoders.num_without_room * size)
            self._second.begin_decode([], unreturned=self._second.lag, rides=False)
        self.begun = False
        pool.make_room((decoders.num - len(decoders.extended)) * size)
        tokens = decoders.num_without_room * size
        pool.free -= tokens
        self._second.take(tokens)
        self._advance_decoders(1, PageMoves())

    def _advance_decoders(self, steps: int, moves: PageMoves) -> None:
        """Each decoder fills `steps` slots, taking pages. The slots that stay empty in last pages
        are added to `moves`.
        """
        pool = self._pool
        if pool.free < 0:
            raise pool.lack(f"{steps} steps took {-pool.free} tokens more than are free")
        self._decoders.last_pages(steps, moves)
        self._decoders.advance(steps)
        pool.valid += self._decoders.num * steps
        pool.over += moves.over.total
