"""The prefix cache of a paged allocator: whose blocks hold what, and since when that is known.

Full blocks become known content when they are allocated for a prompt, or once the token that fills
them has returned; a lookup at admission takes the longest run of known blocks below the last token
(vLLM 0.33, v1/core/kv_cache_manager.py). Content that nobody else can name gets no key while its
sequence runs; a preempted one gets keys under which it finds its own blocks again.
"""

from kvsim.memory.content_keys import NO_KEYS, ContentKeys, KeyRuns
from kvsim.memory.paged.filling import Filling
from kvsim.memory.paged.hits import Hits
from kvsim.memory.paged.host_tier import HostTier
from kvsim.memory.paged.names import BlockNames
from kvsim.memory.paged.session_hint import hint_of
from kvsim.memory.paged.table import Table
from kvsim.memory.prefix import CacheTotals
from kvsim.sequence import Sequence
from kvsim.speculation import Speculation
from kvsim.vllm.sizes import Sizes

NEVER = 1 << 62  # tokens


class PrefixCache:
    """Keys, lookups and registration. enabled: without it nothing is ever found or kept.

    names: of blocks. step: tokens after which something may become known in all groups.
    lag: tokens by which generated content becomes known late. host: a second tier for what is
    evicted. speculation: with tokens drafted ahead, who says what is known (`cover`); the hash of a
    block may cover tokens behind it. holds_back: what chained modules may yet write again is not
    known before. names_returned: what accepted drafts fill is known when their step returns; else
    when their sequence is scheduled next.
    units: of content, in a block. lookahead, redrafted: of the tokens known, the last ones that no
    hash covers; of the slots filled, those that may yet be written again.
    Of live sequences it changes `memory.registered`, `memory.covered` and `memory.runs` alone.
    """

    def __init__(
        self,
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
        self._size, self._same = step, sizes.same
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
        self._memo: tuple[Sequence, int, Hits] | None = None  # of `hits`: for whom, which version
        self._query_tokens = 0
        self._hit_tokens = 0

    @property
    def totals(self) -> CacheTotals:
        """What was looked up and found so far."""
        host = self._host
        if host is None:
            return CacheTotals(self._query_tokens, self._hit_tokens)
        return CacheTotals(self._query_tokens, self._hit_tokens, host.hit_tokens, host.moved_bytes)

    # --- looking up ----------------------------------------------------------------------------

    def table_of(self, seq: Sequence) -> Table:
        """The table of a sequence, made with its keys when it is first asked for."""
        if seq.memory is None:
            runs = self._content.of(seq) if self.enabled else NO_KEYS
            seq.memory = self._fresh(seq, runs, len(runs))
            if self.enabled and self._names.names_private:
                self._add_private(seq, seq.memory)
        table: Table = seq.memory
        return table

    def _fresh(self, seq: Sequence, runs: KeyRuns, num_shareable: int) -> Table:
        table = self._names.fresh(runs, num_shareable)
        if seq.request.session is not None or seq.request.priority:
            table.hint = hint_of(seq.request)
        return table

    def _add_private(self, seq: Sequence, table: Table) -> None:
        """What of `seq` lies behind that with keys gets some that nobody else gets."""
        missing = seq.final_tokens // self._unit - len(table.runs)
        if missing > 0:
            table.add_keys(self._content.private(), missing)

    def hits(self, seq: Sequence) -> Hits:
        """What the cache holds for a waiting sequence: a run that ends before its last token."""
        memo = self._memo
        if memo is not None and memo[0] is seq and memo[1] == self._names.version:
            return memo[2]
        table = self.table_of(seq)
        most = known = 0
        if table.num_shareable or seq.num_preemptions:
            most = (seq.num_tokens - max(1, self.lookahead)) // self._unit
            known = (seq.num_tokens - self.lookahead) // self._unit
        found = self._names.find(table, known, most)
        self._memo = (seq, self._names.version, found)
        return found

    def host_keys(self, seq: Sequence, num_blocks: int) -> list[int]:
        """Content of `seq` that the host has behind the `num_blocks` found on the device."""
        if self._host is None:
            return []
        most = (seq.num_tokens - 1) // self._size
        return self._host.run_of(self.table_of(seq).runs.listed(num_blocks, most))

    @property
    def has_host(self) -> bool:
        """Whether there is a second tier."""
        return self._host is not None

    def admitted(self, seq: Sequence, cached_tokens: int, host_keys: list[int]) -> int:
        """`seq` took its hits over; returns the bytes that come from the host for it."""
        first_time = not seq.num_preemptions  # vLLM counts resumptions apart
        if self.enabled and first_time:
            self._query_tokens += seq.num_tokens
            self._hit_tokens += cached_tokens
        if self._host is None:
            return 0
        return self._host.load(host_keys, self._size if first_time else 0)

    def may_become_admissible(self, head: Sequence, num_hits: int) -> bool:
        """Whether decoding alone could make `head`, with so many hits, easier to admit: its next
        cached block is being filled right now, or another block of the same content may stand in
        for one of its hits.
        """
        table = self.table_of(head)
        if num_hits and self._names.may_move(table, num_hits):
            return True
        if not self._filling.num:
            return False
        shareable = table.num_shareable // self.units
        most = min(shareable, (head.num_tokens - 1) // self._size)
        return self._filling.may_make(table.runs, most, self.units)

    # --- registering ---------------------------------------------------------------------------

    def known(self, table: Table) -> int:
        """Slots of a sequence that does not decode whose content is known: under overlapping
        steps, a token that was decoded last has not returned yet.
        """
        decoded = table.tokens > table.returned > 0
        return table.tokens - self.lag * decoded

    def filled(self, seq: Sequence, table: Table) -> None:
        """The table's slots are valid: its full blocks become known content."""
        if self._speculation is not None:
            self.cover(table, table.tokens, seq.num_tokens)
            return
        if table.registered < (most := self._most_registered(table)):
            full = min(self.known(table) // self._size, most)
            if full > table.registered:
                self._names.register(table, full, in_step=True)

    def cover(self, table: Table, tokens: int, known_tokens: int, *, in_step: bool = True) -> None:
        """Of a sequence of which `known_tokens` tokens are known, the first `tokens` slots hold
        what they will: their full blocks become known content. in_step: see `BlockNames.register`.
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
        """The same where blocks differ: what is computed and what has keys count apart, the one up
        to the last place where a hit can end, the other block by block.
        """
        computed = tokens - self.redrafted
        hashed = (known_tokens - self.lookahead) // self._unit
        hashed_tokens = min(hashed, len(table.runs)) * self._unit
        self._names.name(table, computed, hashed_tokens, in_step=in_step)
        known = min(computed, known_tokens - self.lookahead) // self._size
        table.covered = max(known, table.covered)
        table.registered = min(table.covered, len(table.runs) // self.units)
        table.cover_at = (known + 1) * self._size

    def join(self, seq: Sequence, table: Table) -> None:
        """`seq` decodes: blocks that it fills take their keys."""
        if table.registered < self._most_registered(table):
            self._filling.join(seq, table)

    def _most_registered(self, table: Table) -> int:
        """How many blocks take their keys as they fill."""
        keys = table.num_shareable if self._names_late else len(table.runs)
        return keys // self.units

    def leave(self, seq: Sequence, table: Table) -> None:
        """`seq` decodes no more."""
        self._filling.leave(seq, table)

    def advanced(self, clock: int, steps: int = 1) -> None:
        """Decoders took `steps` slots each from `clock` on: register the blocks filled by them."""
        if self._filling.num:
            self._filling.advanced(clock, steps)

    def turns_before(self, order: int, clock: int) -> None:
        """Decoders before `order` have had their turn in the step that begins at `clock`."""
        if self._filling.num:
            self._filling.turns_before(order, clock)

    def _register_next(self, table: Table, clock: int) -> bool:
        """Register the block of a decoder whose content is known from `clock` on, unless it was.
        Returns whether that was the last one that has keys.
        """
        full = (table.base + clock) // self._size
        if full != table.registered + 1:
            return False
        self._names.register(table, full, in_step=True)
        return full == self._most_registered(table)

    def released(self, seq: Sequence, table: Table) -> int:
        """`seq`, still holding its blocks, is about to return them: returns how many of them, from
        the first on, hold known content. Leaves it a table for the next time.
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
