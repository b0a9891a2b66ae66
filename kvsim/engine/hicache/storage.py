"""The L3 storage as SGLang's scheduler uses it (0.5.23, host memory mode "cache").

All pages that reach host memory are written to the storage, and waiting requests are looked up in
it.
"""

from collections.abc import Iterable
from typing import Any

from kvsim.engine.connectors.totals import TierTotals
from kvsim.engine.hicache.contents import StorageContents
from kvsim.engine.hicache.copies import TierCopies
from kvsim.engine.hicache.lookup_deadlines import LookupDeadlines
from kvsim.engine.hicache.lookups import Prefetch, StorageQuery, StorageRead, StorageWrite
from kvsim.engine.hicache.retries import Retries
from kvsim.engine.hicache.servers import StorageServer
from kvsim.engine.hicache.settings import StorageSettings
from kvsim.engine.hicache.storage_times import StorageTimes
from kvsim.memory.radix.allocator import RadixAllocator
from kvsim.memory.radix.hicache.fetched import hang
from kvsim.memory.radix.node import HostLock, Node
from kvsim.sequence import Sequence


class Storage:
    """One engine's use of the storage.

    contents: shared with other engines; None: this engine has its own. lookups: lookups in flight,
    by request. brought: number of tokens that the newest find of a request added to the tree.
    num_waits, waited_ps: number of lookups that delayed a request, and total delay. waits_ps: delay
    of each request that is not admitted yet.
    """

    def __init__(
        self,
        allocator: RadixAllocator,
        copies: TierCopies,
        times: StorageTimes,
        settings: StorageSettings,
        contents: StorageContents | None = None,
    ) -> None:
        self._allocator, self._copies = allocator, copies
        self._tree, self._page = allocator.tree, allocator.page_tokens
        self._times, self._settings = times, settings
        self._contents = contents or StorageContents(self._page)
        self._contents.joined(self)
        self._keys, self._stored = self._contents.keys, self._contents.stored
        self._queries, self._reads, self._writes = StorageServer(), StorageServer(), StorageServer()
        self.lookups: dict[Sequence, Prefetch] = {}
        self.brought: dict[Sequence, int] = {}
        self._matched: dict[Sequence, int] = {}  # at the last lookup
        self._retries = Retries(settings.retry_passes, settings.most_retries)
        self._deadlines = LookupDeadlines(settings, copies.link.tick_ps)
        self._answers: list[Prefetch] = []
        self._read: list[Prefetch] = []
        self._written: list[HostLock] = []
        self._num_writes = 0
        self._asked_tokens = 0  # by lookups in flight
        self.num_waits = self.waited_ps = 0
        self.waits_ps: dict[Sequence, int] = {}
        self._stopped: list[Prefetch] = []  # cut lookups with reads that have ended
        self._unread = 0  # tokens to be freed in the next pass
        allocator.backup.acknowledged = self._write

    # --- the clock --------------------------------------------------------------------------------

    @property
    def servers(self) -> tuple[StorageServer, StorageServer, StorageServer]:
        """The servers that run queries, reads and writes, in this order."""
        return self._queries, self._reads, self._writes

    @property
    def busy(self) -> bool:
        """Whether a lookup or a write is in flight."""
        return bool(self.lookups or self._num_writes)

    @property
    def counts_passes(self) -> bool:
        """Whether passes of the scheduler change the state of lookups or reads, at whatever time
        they run.
        """
        return bool(
            self._retries.waiting
            or self._unread
            or self._stopped
            or self._read
            or any(lookup.assumed and not lookup.taken for lookup in self.lookups.values())
        )

    @property
    def next_ps(self) -> int | None:
        """Time of the next end of a batch or deadline; None: nothing is in flight."""
        for server in self.servers:
            server.start()
        at_once = (*(each for each in self._answers if each.assumed), *self._read)
        if any(not lookup.cut for lookup in at_once):
            return self._copies.now_ps  # known without asking, or without a page to read
        ends = [server.end_ps for server in self.servers if server.end_ps is not None]
        ends += self._deadlines.of(self.lookups)  # of none but under "timeout"
        return min((end for end in ends if end > self._copies.now_ps), default=None)

    @property
    def totals(self) -> TierTotals:
        """Totals of reads and writes so far."""
        page_bytes = self._page * self._allocator.token_bytes
        return TierTotals(
            "hicache-storage",
            None,
            self._writes.pages * page_bytes,
            self._reads.pages * page_bytes,
            self._writes.busy_ps,
            self._queries.busy_ps + self._reads.busy_ps,
        )

    def _log(self, entry: list[Any]) -> None:
        if self._copies.journal is not None:
            self._copies.journal.add("l3", entry)

    # --- the scheduler's pass ---------------------------------------------------------------------

    def begin(self, queue: Iterable[Sequence], head: Sequence | None) -> None:
        """Begin a pass, after ended copies were processed: process what the servers have ended."""
        unread, self._unread = self._unread, 0
        for lookup in self._answers:
            self._answered(lookup)
        self._answers.clear()
        for lookup in self._stopped:
            self._unread += (lookup.taken - lookup.read) * self._page
        self._stopped.clear()
        for lookup in self._read:
            if self.lookups.get(lookup.seq) is lookup:
                self._end(lookup)
            elif not lookup.cut:
                self._unread += lookup.taken * self._page
        self._read.clear()
        for lock in self._written:
            self._num_writes -= 1
            self._tree.release_host(lock)
        self._written.clear()
        self._tree.host.free += unread
        for seq, known in self._retries.due(queue, head):
            self._look_up_again(seq, known)

    def serve(self, now_ps: int) -> None:
        """Run the servers up to now_ps, including those of all engines that share the storage."""
        self._contents.serve(now_ps)

    def close(self) -> None:
        """Release the contents of an engine that has died."""
        self._contents.left(self)

    # --- to the storage ---------------------------------------------------------------------------

    def _write(self, node: Node) -> None:
        """Queue the write of a node that has reached host memory."""
        lock = self._tree.host.lock(node)
        keys = self._keys.of_node(node)
        self._num_writes += 1
        write = StorageWrite(keys, lock, self._times, self._stored, self._written.append, self._log)
        self._writes.submit(self._copies.now_ps, write)

    # --- from the storage -------------------------------------------------------------------------

    def look_up(self, seq: Sequence, known: int | None = None) -> None:
        """Look up the tokens of a waiting request that are in neither device nor host memory.

        known: the storage has the first `known` tokens, so only these are read.
        """
        anchor, begin = self._allocator.anchor(seq)
        self._matched[seq] = begin
        end = seq.num_tokens - 1
        if anchor.parent is not None and not anchor.on_host:
            return
        self._retries.cancel(seq)
        if self._deadlines.expired(seq) or seq in self.lookups:
            return
        assumed = known is not None and begin < known <= end
        tokens = ((known if assumed and known else end) - begin) // self._page * self._page
        if tokens < max(self._settings.threshold_tokens, self._page):
            return
        if self._asked_tokens >= self._tree.host.tokens // 2:
            self._retries.missed(seq, known)
            return
        content = self._allocator.slots(seq).content
        keys = list(self._keys.of(self._keys.last(anchor), content, begin, begin + tokens))
        lookup = self.lookups[seq] = Prefetch(seq, anchor, begin, keys, assumed=assumed)
        if anchor.parent is not None:
            lookup.lock = self._tree.host.lock(anchor)
        self._asked_tokens += tokens
        query = StorageQuery(lookup, self._times, self._stored, self._answers.append, self._log)
        self._queries.submit(self._copies.now_ps, query)

    def _answered(self, lookup: Prefetch) -> None:
        """Process the answer to a query.

        SGLang identifies a lookup by its request alone. So a late answer to a cut lookup ends the
        next lookup of that request.
        """
        current = self.lookups.get(lookup.seq)
        if current is not None and lookup.cut:
            self._close(current)
            if self._settings.policy == "best_effort":
                self._retries.missed(lookup.seq)
        elif current is not None:
            self._answer(lookup, current)

    def _answer(self, lookup: Prefetch, current: Prefetch) -> None:
        """Allocate host memory for the pages found and queue their read, or end the `current`
        lookup.
        """
        tree, page, known = self._tree, self._page, None
        tokens = (lookup.found or 0) * page
        if tokens >= self._settings.threshold_tokens:
            known = lookup.begin + tokens
            if tree.host.free < tokens:
                self._allocator.backup.evict(tokens)
                tokens = min(tokens, tree.host.free // page * page)
            if tokens >= self._settings.threshold_tokens:
                tree.host.free -= tokens
                lookup.taken = tokens // page
                read = StorageRead(lookup, self._times, self._ended, self._log)
                self._reads.submit(self._copies.now_ps, read)
                return
        self._close(current)
        self._retries.missed(lookup.seq, known)

    def _ended(self, lookup: Prefetch) -> None:
        """Note that a read has ended, or was cut."""
        (self._stopped if lookup.cut else self._read).append(lookup)

    def _close(self, lookup: Prefetch) -> None:
        """End the lookup of a request, and record its delay."""
        del self.lookups[lookup.seq]
        if lookup.skipped_ps is not None:
            wait_ps = self._copies.now_ps - lookup.skipped_ps
            self.num_waits += 1
            self.waited_ps += wait_ps
            self.waits_ps[lookup.seq] = self.waits_ps.get(lookup.seq, 0) + wait_ps
        self._asked_tokens -= len(lookup.keys) * self._page
        if lookup.lock is not None:
            self._tree.release_host(lookup.lock)

    def _end(self, lookup: Prefetch) -> None:
        """Insert the pages read so far into the tree, and end the lookup."""
        content, tokens = self._allocator.slots(lookup.seq).content, lookup.read * self._page
        if tokens:
            begin = lookup.begin
            new = hang(self._tree, lookup.anchor, content, begin, begin + tokens)
            if new:  # the newest find counts, not the sum
                self.brought[lookup.seq] = new
        lookup.cut_ps = self._copies.now_ps
        self._close(lookup)

    def _look_up_again(self, seq: Sequence, known: int | None = None) -> None:
        self._retries.tried(seq)
        self.look_up(seq, known)

    def came_back(self, seq: Sequence) -> None:
        """A retracted request waits again: look it up."""
        self._retries.forget(seq)
        self.look_up(seq)

    # --- admission --------------------------------------------------------------------------------

    def passes_over(self, seq: Sequence) -> bool:
        """Whether admission skips a waiting request in this pass because its lookup is pending."""
        lookup = self.lookups.get(seq)
        if lookup is None:
            return False
        policy, now_ps = self._settings.policy, self._copies.now_ps
        if policy == "best_effort":
            if lookup.taken and lookup.read == lookup.taken:
                return True
            if not lookup.taken:
                self._retries.missed(seq)
            self._end(lookup)
            return False
        if policy == "timeout":
            done = lookup.taken and lookup.read == lookup.taken
            if not done and self._deadlines.passed(seq, now_ps):
                self._deadlines.expire(seq)
                self._retries.cancel(seq)
                self._end(lookup)
                return False
            self._deadlines.start(seq, now_ps, len(lookup.keys) * self._page)
        if lookup.skipped_ps is None:
            lookup.skipped_ps = now_ps
        return True

    def lost_match(self, seq: Sequence, tokens: int) -> bool:
        """Whether `seq`, which now hits `tokens` tokens, hit more when it was looked up; if so it
        is looked up again.
        """
        if tokens >= self._matched.get(seq, 0):
            return False
        if self._retries.spent(seq):
            self._matched[seq] = tokens
            return False
        self._look_up_again(seq)
        return True

    def admitted(self, seqs: Iterable[Sequence]) -> None:
        """Drop the lookups' state of requests that were admitted."""
        for seq in seqs:
            self._matched.pop(seq, None)
            self._retries.forget(seq)
            self._deadlines.forget(seq)
            self.waits_ps.pop(seq, None)

    def left(self, seq: Sequence) -> None:
        """Drop the state of a request that has all its tokens."""
        self.brought.pop(seq, None)
