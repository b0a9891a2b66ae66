"""The ledger of a pool of pages, and what each sequence holds of it."""

from collections.abc import Iterator
from typing import Protocol

from mypy_extensions import mypyc_attr

from kvsim.memory.allocator import Allocator
from kvsim.memory.ledger import Usage, split_free
from kvsim.memory.parts import ARRIVING, KEPT_FOR_READERS, NO_PARTS, Parts
from kvsim.memory.prefix import CacheTotals
from kvsim.memory.radix.decoders import RadixDecoders
from kvsim.memory.radix.hicache.backup import Backup
from kvsim.memory.radix.holds import Holds, Slots
from kvsim.memory.radix.tree import Match, RadixTree
from kvsim.plumbing.errors import InvariantError
from kvsim.plumbing.units import ceil_div
from kvsim.sequence import Sequence


class Keeper(Protocol):
    """Is notified when pages of sequences change owner."""

    def filing(self, seq: Sequence, tokens: int) -> None:
        """The tree is about to take over the first `tokens` own tokens of `seq`, known or not."""

    def released(self, seq: Sequence) -> None:
        """The remaining own pages of `seq` are free."""


@mypyc_attr(allow_interpreted_subclasses=True)
class PageLedger(Allocator):
    """The reading half of a radix allocator; admission, growth and release are in a subclass.

    caching: finished content is cached. free: tokens of free pages. tree: known content; unlocked
    content counts as cached. backup: copies to the tree's host memory; write_threshold: see there.
    keeper: notified of pages that change owner. pool_tokens: slots of the pool; not given: as many
    as the bytes hold. grid: see `Holds`.
    """

    def __init__(
        self,
        capacity_bytes: int,
        token_bytes: int,
        page_size: int,
        *,
        caching: bool,
        max_sequences: int | None = None,
        pool_tokens: int | None = None,
        tree: RadixTree | None = None,
        write_threshold: int | None = None,
        grid: int = 1,
    ) -> None:
        self.capacity_bytes = capacity_bytes
        self.token_bytes = token_bytes
        self.page_tokens = page_size
        self.keeps_prefixes = caching
        self.max_sequences = max_sequences
        if pool_tokens is None:
            pool_tokens = capacity_bytes // (page_size * token_bytes) * page_size
        self.pool_tokens = pool_tokens
        self.free = self.pool_tokens
        self.tree = RadixTree(page_size) if tree is None else tree
        self.backup = Backup(self.tree, write_threshold)
        self.keeper: Keeper | None = None
        self._holds = Holds(self.tree, self.backup, grid=grid, caching=caching)
        self._decoders = RadixDecoders(page_size)
        self._live: dict[Sequence, Slots] = {}
        self._expected: dict[Sequence, Slots] = {}  # content being transferred
        self._kept: dict[Sequence, Slots] = {}  # not read yet by another engine
        self._valid = 0  # valid slots beside the tree, of all live sequences
        self._over = 0  # slots of last pages never to be filled
        self._query_tokens = 0
        self._hit_tokens = 0

    def _pages(self, tokens: int) -> int:
        """Slots of the pages that `tokens` tokens take."""
        return ceil_div(tokens, self.page_tokens) * self.page_tokens

    def available_tokens(self) -> int:
        """Slots that can be allocated now: free and evictable ones."""
        return self.free + self.tree.evictable

    def _missing(self, hit: Match, tokens: int) -> int:
        """Available slots that a waiting sequence takes to hold `tokens` tokens."""
        return self._pages(tokens) - hit.tokens + hit.unlocked

    # --- the ledger ----------------------------------------------------------------------------

    def granted_tokens(self, seq: Sequence) -> int:
        slots = self._live.get(seq)
        return self._decoders.granted(seq, slots) if slots is not None else 0

    def own_tokens(self) -> Iterator[tuple[Sequence, int]]:
        """(sequence, slots beside the tree in whole pages) of each live sequence."""
        for seq, slots in self._live.items():
            yield seq, self._decoders.granted(seq, slots) - slots.protected

    def shared_tokens(self, seq: Sequence) -> int:
        return self.tree.num_shared(self._holds.slots(seq).node)

    def missing_tokens(self, seq: Sequence, tokens: int) -> int:
        return max(0, self._pages(tokens) - self.granted_tokens(seq))

    def cache_totals(self) -> CacheTotals:
        if not self.keeps_prefixes:
            return CacheTotals()
        return CacheTotals(self._query_tokens, self._hit_tokens)

    @property
    def saved_bytes(self) -> int | None:
        return (self._holds.protected - self.tree.locked) * self.token_bytes

    def usage(self, head: Sequence | None, *, busy: bool) -> Usage:
        tree, size = self.tree, self.token_bytes
        need = None if head is None else self._missing(self._holds.hit(head), head.num_tokens)
        external, short, idle = split_free(self.free, tree.evictable, need, placeable=True)
        used = tree.locked + self._valid
        held = self.pool_tokens - self.free - tree.evictable
        return Usage(
            used * size,
            (held - used - self._over) * size,
            self._over * size,
            0,
            tree.evictable * size,
            0,
            self.capacity_bytes - self.pool_tokens * size,
            external * size,
            short * size,
            idle * size,
        )

    @property
    def parts(self) -> Parts:
        if not (self._expected or self._kept):
            return NO_PARTS
        coming = sum(s.granted - s.tokens - s.over for s in self._expected.values())
        kept = self._holds.only_these(self._kept.values())
        return (ARRIVING, coming * self.token_bytes), (KEPT_FOR_READERS, kept * self.token_bytes)

    def check(self) -> None:
        self.tree.check()
        own = valid = over = protected = 0
        for seq, slots in self._live.items():
            tokens = self._decoders.tokens(seq, slots)
            granted = self._decoders.granted(seq, slots)
            if not slots.protected <= tokens <= granted:
                raise InvariantError(f"{seq} has {tokens} valid slots of {granted} granted")
            own += granted - slots.protected
            valid += tokens - slots.protected
            over += max(0, granted - max(tokens, seq.final_tokens))
        holds = self._holds
        protected = sum(s.protected for s in (*self._live.values(), *holds.pinned.values()))
        found, counted = (valid, over, protected), (self._valid, self._over, holds.protected)
        if found != counted:
            raise InvariantError(f"slots of live sequences are {found}, counted as {counted}")
        total = self.free + own + self.tree.locked + self.tree.evictable
        if total != self.pool_tokens or self.free < 0:
            raise InvariantError(f"{total} of {self.pool_tokens} tokens accounted for")
