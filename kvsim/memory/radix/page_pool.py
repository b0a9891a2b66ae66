"""A pool of pages without numbers, content in transfer, and the pool's ledger."""

from kvsim.memory.ledger import Usage
from kvsim.memory.parts import ARRIVING, IN_TRANSIT, KEPT_FOR_READERS, NO_PARTS, Parts
from kvsim.memory.radix.decoders import RadixDecoders
from kvsim.memory.radix.holds import Holds, Slots
from kvsim.memory.radix.radix_host import out_of_host
from kvsim.memory.radix.second_memory import SecondMemory
from kvsim.memory.radix.tree import Match, RadixTree
from kvsim.plumbing.errors import InvariantError
from kvsim.plumbing.units import ceil_div
from kvsim.sequence import Sequence


class PagePool:
    """Counts of pages: free, held by sequences, and in the tree.

    free: tokens of free pages. tree: cached content; unlocked content counts as cached in the
    ledger. second: what sequences hold of a second pool, in the bytes of capacity_bytes that are
    not slots. holds: tree nodes that waiting and live sequences lock. live: sequences with memory.
    valid: valid slots outside the tree, of all live sequences. over: slots of last pages never to
    be filled.
    """

    def __init__(
        self,
        capacity_bytes: int,
        token_bytes: int,
        page_tokens: int,
        pool_tokens: int,
        tree: RadixTree,
        second: SecondMemory,
        holds: Holds,
    ) -> None:
        self.capacity_bytes, self.token_bytes = capacity_bytes, token_bytes
        self.page_tokens, self.pool_tokens = page_tokens, pool_tokens
        self.tree, self.second, self.holds = tree, second, holds
        self.decoders = RadixDecoders(self.page_tokens)
        self.live: dict[Sequence, Slots] = {}
        self.free = pool_tokens
        self.valid = self.over = 0
        second.attach(self.decoders, holds, self.live, self._make_second_room)

    def pages(self, tokens: int) -> int:
        """Number of slots in the pages that `tokens` tokens take: `tokens` rounded up to whole
        pages.
        """
        return ceil_div(tokens, self.page_tokens) * self.page_tokens

    def whole(self, tokens: int) -> int:
        """`tokens` rounded down to whole pages."""
        return tokens - tokens % self.page_tokens

    def available_tokens(self) -> int:
        """Slots that can be allocated now: free and evictable ones."""
        return self.free + self.tree.evictable

    def missing(self, hit: Match, tokens: int) -> int:
        """Number of available slots that a waiting sequence with the hits `hit` takes to hold
        `tokens` tokens.
        """
        return self.pages(tokens) - hit.tokens + hit.unlocked

    # --- taking --------------------------------------------------------------------------------

    def make_room(self, tokens: int) -> None:
        """Evict cached content until `tokens` slots are free, or none is left to evict."""
        if self.free < tokens:
            self.free += self.tree.evict(tokens - self.free)
        self._make_second_room(self.second.units_of(tokens))

    def _make_second_room(self, units: int) -> None:
        """Evict the oldest content of the second pool until `units` units are free."""
        if units > self.second.part.free:
            self.free += self.tree.make_second_room(units)

    def take(self, tokens: int) -> None:
        """Allocate `tokens` slots in both pools, evicting cached content as needed."""
        self.make_room(tokens)
        self.free -= tokens
        if self.free < 0:
            raise self.lack(f"{tokens} tokens taken from {self.free + tokens} free ones")
        self.second.take(tokens)

    def lack(self, fault: str) -> Exception:
        """The exception for missing pages: InvariantError if kvsim is at fault, or the error with
        which SGLang ends.
        """
        return out_of_host(self.tree.host) if self.tree.stuck else InvariantError(fault)

    def grow(self, seq: Sequence, slots: Slots, num_tokens: int) -> None:
        """Grow a sequence that does not decode to `num_tokens` slots, which become valid."""
        granted, begin = max(slots.granted, self.pages(num_tokens)), slots.tokens
        self.take(granted - slots.granted)
        self.valid += num_tokens - begin
        slots.tokens, slots.granted = num_tokens, granted
        self.count_over(seq, slots, granted)
        self.second.grown(slots, begin, num_tokens)

    def count_over(self, seq: Sequence, slots: Slots, granted: int) -> None:
        """Count the slots of a sequence's last page that it will never fill. granted: its slots."""
        over = max(0, granted - max(slots.tokens, seq.final_tokens))
        self.over += over - slots.over
        slots.over = over


class TransferredPages:
    """Pages of requests in transfer between engines (P/D disaggregation).

    expected: sequences that receive content. kept: computed sequences that another engine has not
    read yet.
    """

    def __init__(self, pool: PagePool) -> None:
        self._pool = pool
        self.expected: dict[Sequence, Slots] = {}
        self.kept: dict[Sequence, Slots] = {}

    def expect(self, seq: Sequence, num_tokens: int, missing: int = 0) -> None:
        """Allocate pages for the first `num_tokens` slots of a waiting sequence, which will receive
        transferred KV. A pinned sequence uses its hits. The pool must have enough free pages.

        missing: hit tokens in host memory, for which `loaded` adds slots later.
        """
        pool = self._pool
        slots = pool.live[seq] = pool.holds.held(seq)
        slots.tokens = slots.granted = slots.protected
        granted = pool.pages(num_tokens) - missing
        pool.take(granted - slots.granted)
        slots.granted = granted
        pool.count_over(seq, slots, granted)
        self.expected[seq] = slots

    def loaded(self, seq: Sequence, tokens: int) -> None:
        """Note that `tokens` more tokens of a sequence in transfer are in the tree and locked by
        it.
        """
        slots = self.expected[seq]
        slots.tokens += tokens
        slots.granted += tokens
        self._pool.count_over(seq, slots, slots.granted)

    def arrived(self, seq: Sequence, num_tokens: int) -> None:
        """The transfer has ended: the first `num_tokens` slots of the sequence are valid."""
        self._pool.grow(seq, self.expected.pop(seq), num_tokens)

    def keep_for_reader(self, seq: Sequence) -> None:
        """Hold the memory of the computed `seq` until another engine has read it."""
        self.kept[seq] = self._pool.live[seq]


class PageLedger:
    """Reads the state of a pool of pages and of its transfers into a ledger; changes nothing."""

    def __init__(self, pool: PagePool, transferred: TransferredPages) -> None:
        self._pool, self._transferred = pool, transferred

    @property
    def saved_bytes(self) -> int | None:
        """See `Allocator.saved_bytes`."""
        held = self._pool.tree.locked - self._pool.tree.in_transit
        return (self._pool.holds.protected - held) * self._pool.token_bytes

    def usage(self, head: Sequence | None) -> Usage:
        """See `Allocator.usage`."""
        pool = self._pool
        tree, part, size = pool.tree, pool.second.part, pool.token_bytes
        unit = part.unit_bytes
        short = head is not None and not self._head_fits(head)
        used = tree.locked + pool.valid
        empty = pool.pool_tokens - pool.free - tree.evictable - used - pool.over
        valid, reserved, over = pool.second.shares(empty, pool.over)
        free = pool.free * size + part.free * unit
        pools = pool.pool_tokens * size + part.pool * unit
        return Usage(
            used * size + (part.locked + valid) * unit,
            empty * size + reserved * unit,
            pool.over * size + over * unit,
            0,
            tree.evictable * size + part.evictable * unit,
            0,
            pool.capacity_bytes - pools,
            0,
            free if short else 0,
            0 if short else free,
        )

    def _head_fits(self, head: Sequence) -> bool:
        pool = self._pool
        hit = pool.holds.hit(head)
        if not pool.second.head_fits(pool.pages(head.num_tokens) - hit.tokens):
            return False
        return pool.missing(hit, head.num_tokens) <= pool.available_tokens()

    @property
    def parts(self) -> Parts:
        """See `Allocator.parts`."""
        copied, parts = self._pool.tree.in_transit, NO_PARTS
        if self._transferred.expected or self._transferred.kept:
            coming = sum(s.granted - s.tokens - s.over for s in self._transferred.expected.values())
            kept = self._pool.holds.only_these(self._transferred.kept.values())
            size = self._pool.token_bytes
            parts = (ARRIVING, coming * size), (KEPT_FOR_READERS, kept * size)
        return (*parts, (IN_TRANSIT, copied * self._pool.token_bytes)) if copied else parts

    def check(self) -> None:
        """See `Allocator.check`."""
        pool = self._pool
        pool.tree.check()
        own = valid = over = protected = 0
        for seq, slots in pool.live.items():
            tokens = pool.decoders.tokens(seq, slots)
            granted = pool.decoders.granted(seq, slots)
            if not slots.protected <= tokens <= granted:
                raise InvariantError(f"{seq} has {tokens} valid slots of {granted} granted")
            own += granted - slots.protected
            valid += tokens - slots.protected
            over += max(0, granted - max(tokens, seq.final_tokens))
        holds = pool.holds
        protected = sum(s.protected for s in (*pool.live.values(), *holds.pinned.values()))
        found, counted = (
            (valid, over, protected),
            (pool.valid, pool.over, holds.protected),
        )
        if found != counted:
            raise InvariantError(f"slots of live sequences are {found}, counted as {counted}")
        total = pool.free + own + pool.tree.locked + pool.tree.evictable
        if total != pool.pool_tokens or pool.free < 0:
            raise InvariantError(f"{total} of {pool.pool_tokens} tokens accounted for")
        self._check_second()

    def _check_second(self) -> None:
        pool = self._pool
        part = pool.second.part
        own = sum(pool.second.own_units(seq, slots) for seq, slots in pool.live.items())
        pinned = sum(slots.states for slots in pool.holds.pinned.values())
        total = part.free + part.evictable + part.locked + own + pinned
        if total != part.pool or part.free < 0:
            raise InvariantError(f"{total} of {part.pool} units of the second pool accounted for")
