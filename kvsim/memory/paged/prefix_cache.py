"""The prefix cache of a paged allocator: when full blocks are cached, and how hits are found.

Full blocks are cached (registered under their hash) when they are allocated for a prompt, or once
the token that fills them has returned. A lookup at admission takes the longest run of cached blocks
before the last token (vLLM 0.33, v1/core/kv_cache_manager.py). Content that no other sequence can
hit gets no keys while its sequence runs. When the sequence is preempted, it gets keys to find its
own blocks again.
"""

from kvsim.memory.allocator import CacheTotals
from kvsim.memory.content_keys import NO_KEYS, ContentKeys, KeyRuns
from kvsim.memory.paged.block_keys import BlockNames
from kvsim.memory.paged.blocks import Table
from kvsim.memory.paged.decoders import Filling
from kvsim.memory.paged.group_lookup import Hits
from kvsim.memory.paged.host_tier import HostTier
from kvsim.memory.paged.pool import BlockPool
from kvsim.memory.paged.session_hint import hint_of
from kvsim.sequence import Sequence
from kvsim.speculation import Speculation
from kvsim.vllm.sizes import Sizes

NEVER = 1 << 62  # tokens


class PrefixCache:
    """Block hashes (keys), lookups and registration of full blocks.

    enabled: if false, every lookup misses and nothing is cached. names: registers blocks under
    keys. step: tokens of a block that all groups can register at once. lag: tokens by which
    generated content is hashed late. host: second tier for evicted content. speculation: if tokens
    are drafted, callers report final slots (`cover`); the hash of a block may cover tokens after
    it. holds_back: slots that chained draft modules may write again are not registered.
    names_returned: accepted drafts are cached when their step returns; else when their sequence is
    scheduled next. units: hash units in a block. lookahead: number of last known tokens without a
    hash. redrafted: number of last filled slots that may be written again. Of live sequences it
    changes only `memory.registered`, `memory.covered` and `memory.runs`.
    """

    def __init__(
        self,
        pool: BlockPool,
        names: BlockNames,
        step: int,
        sizes: Sizes,
        *,
        enabled: bool,
        lag: int,
        host: HostTier | None,
        speculation: Speculation | None,
        holds_back: bool,
        names_returned: bool,
    ) -> None:
        self.enabled = enabled
        self.lag = lag
        self._names, self._names_late = names, names.names_late
        self._pool, self._lookup, self._num_groups = pool, names.lookup, len(sizes.blocks)
        self._size, self._same = step, sizes.same and not names.redrafted
        self._speculation = speculation
        self.lookahead = 0 if speculation is None else speculation.hash_lookahead
        again = 0 if speculation is None else speculation.redrafted_tokens
        self.redrafted = again if holds_back else 0
        self._names_returned = names_returned
        self._unit = sizes.match
        self.units = step // self._unit
        self._content = ContentKeys(self._unit, self.lookahead)
        self._host = host
        self._filling = Filling(self._register_next, step, lag)
        self._memo: tuple[Sequence, int, Hits] | None = None  # of `hits`
        self._query_tokens = 0
        self._hit_tokens = 0

    @property
    def totals(self) -> CacheTotals:
        """Tokens looked up and hit since the start of the run."""
        host = self._host
        if host is None:
            return CacheTotals(self._query_tokens, self._hit_tokens)
        return CacheTotals(self._query_tokens, self._hit_tokens, host.hit_tokens, host.moved_bytes)

    # --- looking up ----------------------------------------------------------------------------

    def table_of(self, seq: Sequence) -> Table:
        """The block table of a sequence; the first call creates it and computes its keys."""
        if seq.memory is None:
            runs = self._content.of(seq) if self.enabled else NO_KEYS
            seq.memory = self._fresh(seq, runs, len(runs))
            if self.enabled and self._names.names_private:
                self._add_private(seq, seq.memory)
        table: Table = seq.memory
        return table

    def _fresh(self, seq: Sequence, runs: KeyRuns, num_shareable: int) -> Table:
        table = Table(runs, num_shareable, self._num_groups, self._names.num_kinds)
        if seq.request.session is not None or seq.request.priority:
            table.hint = hint_of(seq.request)
        return table

    def _add_private(self, seq: Sequence, table: Table) -> None:
        """Add keys that no other sequence has, for the tokens of `seq` after its last shareable
        key.
        """
        missing = seq.final_tokens // self._unit - len(table.runs)
        if missing > 0:
            table.add_keys(self._content.private(), missing)

    def hits(self, seq: Sequence) -> Hits:
        """The cached prefix of a waiting sequence, which ends before its last token."""
        memo = self._memo
        if memo is not None and memo[0] is seq and memo[1] == self._pool.version:
            return memo[2]
        found = self._lookup.find(*self._asked(seq))
        self._memo = (seq, self._pool.version, found)
        return found

    def hits_apart(self, seq: Sequence) -> Hits:
        """The prefix of a waiting sequence that is cached in full attention, even if other groups
        have less of it (`Lookup.find_apart`).
        """
        if not self._lookup.finds_states:
            return self.hits(seq)
        return self._lookup.find_apart(*self._asked(seq))

    def _asked(self, seq: Sequence) -> tuple[Table, int, int]:
        """Arguments of a lookup: the table, its number of keys, and the limit on units."""
        table = self.table_of(seq)
        if not (table.num_shareable or seq.num_preemptions):
            return table, 0, 0
        most = (seq.num_tokens - max(1, self.lookahead)) // self._unit
        return table, (seq.num_tokens - self.lookahead) // self._unit, most

    def host_keys(self, seq: Sequence, num_blocks: int) -> list[int]:
        """Keys of the blocks of `seq` cached in host memory, following `num_blocks` device hits."""
        if self._host is None:
            return []
        most = (seq.num_tokens - 1) // self._size
        return self._host.run_of(self.table_of(seq).runs.listed(num_blocks, most))

    @property
    def has_host(self) -> bool:
        """Whether there is a host tier."""
        return self._host is not None

    def admitted(self, seq: Sequence, cached_tokens: int, host_keys: list[int]) -> int:
        """Count the hits of the admitted `seq`; returns the bytes to load from the host."""
        first_time = not seq.num_preemptions  # vLLM counts resumptions apart
        if self.enabled and first_time:
            self._query_tokens += seq.num_tokens
            self._hit_tokens += cached_tokens
        if self._host is None:
            return 0
        return self._host.load(host_keys, self._size if first_time else 0)

    def may_become_admissible(self, head: Sequence, num_hits: int) -> bool:
        """Whether decoding alone could make `head`, with `num_hits` hits, easier to admit.

        Possible if another sequence is filling its next block now, or a duplicate block may replace
        one of its hits.
        """
        table = self.table_of(head)
        if num_hits:
            # Asked only if no table frees blocks while its sequence runs: elsewhere, while the head
            # has hits, runs of steps end when a block is taken or freed.
            hits = self._pool.find(0, table.runs, 0, num_hits)
            if self._pool.has_duplicate_free(hits):
                return True
        if not self._filling.num:
            return False
        shareable = table.num_shareable // self.units
        most = min(shareable, (head.num_tokens - 1) // self._size)
        return self._filling.may_make(table.runs, most, self.units)

    # --- registering ---------------------------------------------------------------------------

    def known(self, table: Table) -> int:
        """Number of slots of a sequence that is not decoding with known tokens. With overlapping
        steps, its last decoded token has not returned yet.
        """
        decoded = table.tokens > table.returned > 0
        return table.tokens - self.lag * decoded

    def filled(self, seq: Sequence, table: Table) -> None:
        """Cache the full blocks of a sequence after its slots became valid."""
        if self._speculation is not None:
            self.cover(table, table.tokens, seq.num_tokens)
            return
        if table.registered < (most := self._most_registered(table)):
            full = min(self.known(table) // self._size, most)
            if full > table.registered:
                self._names.register(table, full, in_step=True)

    def cover(self, table: Table, tokens: int, known_tokens: int, *, in_step: bool = True) -> None:
        """Cache the full blocks among the first `tokens` slots, which no draft can change any more
        (vLLM's cache_blocks). known_tokens: known tokens of the sequence. in_step: see
        `BlockNames.register`.
        """
        if not self.enabled:
            table.cover_at = NEVER
            return
        if not (in_step or self._names_returned):
            return
        if not self._same:
            self._cover_apart(table, tokens, known_tokens, in_step=in_step)
            return
        full = min(tokens - self.redrafted, known_tokens - self.lookahead) // self._size
        table.cover_at = (max(full, table.covered) + 1) * self._size
        if full > table.covered:
            table.covered = full
            if (named := min(full, len(table.runs) // self.units)) > table.registered:
                self._names.register(table, named, in_step=in_step)

    def _cover_apart(self, table: Table, tokens: int, known_tokens: int, *, in_step: bool) -> None:
        """`cover` for layer groups with blocks of different sizes.

        Computed tokens count up to the last point where a hit can end; hashed tokens count block by
        block.
        """
        computed = tokens - self.redrafted
        hashed = (known_tokens - self.lookahead) // self._unit
        hashed_tokens = min(hashed, len(table.runs)) * self._unit
        self._names.name(table, computed, hashed_tokens, in_step=in_step)
        known = min(computed, known_tokens - self.lookahead) // self._size
        table.covered = max(known, table.covered)
        table.registered = min(table.covered, len(table.runs) // self.units)
        # Groups that lose a block register it `redrafted` tokens after the others.
        again = known * self._size + self._names.redrafted
        table.cover_at = again if known and computed < again else (known + 1) * self._size

    def join(self, seq: Sequence, table: Table) -> None:
        """Start registering the blocks that the decoding `seq` fills."""
        if table.registered < self._most_registered(table):
            self._filling.join(seq, table)

    def _most_registered(self, table: Table) -> int:
        """Number of leading blocks to register as soon as they are full."""
        keys = table.num_shareable if self._names_late else len(table.runs)
        return keys // self.units

    def leave(self, seq: Sequence, table: Table) -> None:
        """Stop registering the blocks that `seq` fills by decoding."""
        self._filling.leave(seq, table)

    def advanced(self, clock: int, steps: int = 1) -> None:
        """Decoders took `steps` slots each from `clock` on: register the blocks filled by them."""
        if self._filling.num:
            self._filling.advanced(clock, steps)

    def turns_before(self, order: int, clock: int) -> None:
        """Register the blocks filled by decoders that precede `order` in the step that begins at
        `clock`, since they were scheduled first.
        """
        if self._filling.num:
            self._filling.turns_before(order, clock)

    def _register_next(self, table: Table, clock: int) -> bool:
        """Cache a decoder's next block, which is full at `clock`, unless it is cached. Returns True
        after the last block with a key.
        """
        full = (table.base + clock) // self._size
        if full != table.registered + 1:
            return False
        self._names.register(table, full, in_step=True)
        return full == self._most_registered(table)

    def finished(self, table: Table, final_tokens: int) -> None:
        """Cache the full blocks of a finished sequence."""
        if self._speculation is not None:
            self.cover(table, final_tokens, final_tokens, in_step=False)
        elif self.enabled:
            full = min(table.tokens // self._size, len(table.runs) // self.units)
            if full > table.registered:
                self._names.register(table, full, in_step=False)

    def released(self, seq: Sequence, table: Table) -> int:
        """Prepare to free the blocks of `seq`; returns its number of leading cached blocks. Leaves
        `seq` a table for its next admission.
        """
        full = 0
        if self.enabled:
            if self._speculation is None:
                full = (table.tokens if seq.finished else self.known(table)) // self._size
            else:
                if seq.finished:
                    self.cover(table, seq.final_tokens, seq.num_tokens, in_step=False)
                full = table.covered
            if not seq.finished:
                self._add_private(seq, table)
            named = len(table.runs) // self.units
            if seq.finished and self._names_late:
                named = self._most_registered(table)
            if (named := min(full, named)) > table.registered:
                self._names.register(table, named, in_step=False)
        seq.memory = None if seq.finished else self._fresh(seq, table.runs, table.num_shareable)
        self._memo = None
        return full
