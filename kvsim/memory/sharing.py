"""A base for new allocators that share blocks: a subclass only chooses the block to evict.

It provides blocks of one size, a prefix cache and the accounting, one block and one step at a time.
A subclass may override one method, `choose_victim`: which free cached block is evicted first.
Sequences that begin with the same full blocks hold the same blocks. It is slow compared to
`kvsim.memory.paged`, which moves runs of blocks at once and is tested against it.
"""

from collections.abc import Iterable, Mapping
from typing import cast

from mypy_extensions import mypyc_attr

from kvsim.memory.allocator import ADMITTED, GROWN, Admission, CacheTotals, Demand, Growth
from kvsim.memory.content_keys import ContentKeys, KeyRuns
from kvsim.memory.ledger import Usage, split_free
from kvsim.memory.options import MemorySpec
from kvsim.memory.stepwise import Grant, Holding, StepwiseAllocator
from kvsim.plumbing.errors import InvariantError
from kvsim.plumbing.units import ceil_div
from kvsim.sequence import Sequence


class TableKeys:
    """Keys (hashes) of the blocks of a sequence: shareable keys, followed by private keys."""

    def __init__(self, shared: KeyRuns, own: int) -> None:
        self._shared, self._own = shared, own

    def at(self, place: int) -> int:
        """The key of the block at position `place`."""
        return self._shared.at(place) if place < len(self._shared) else self._own + place


class SharedBlock:
    """A block of the pool. key: hash of its content, None before the block is full; owners: number
    of sequences that hold it.
    """

    __slots__ = ("key", "owners")

    def __init__(self) -> None:
        self.key: int | None = None
        self.owners = 1


class BlockHolding(Holding):
    """The blocks of one live sequence. keys: keys of its content; num_named: number of cached
    blocks.
    """

    __slots__ = ("blocks", "keys", "num_named")

    def __init__(
        self, grant: Grant, tokens: int, blocks: list[SharedBlock], keys: TableKeys, num_named: int
    ) -> None:
        super().__init__(grant, tokens)
        self.blocks = blocks
        self.keys = keys
        self.num_named = num_named


@mypyc_attr(allow_interpreted_subclasses=True)
class SharingAllocator(StepwiseAllocator):
    """Block tables over one pool with a prefix cache. Every layer keeps every token.

    block_size: tokens of a block. A block is cached as soon as the step that fills it is scheduled.
    The last blocks of a finished sequence are evicted before its first ones.
    """

    def __init__(self, memory: MemorySpec, block_size: int) -> None:
        block_bytes = block_size * memory.layout.bytes_per_token
        num_blocks = memory.capacity_bytes // block_bytes
        super().__init__(memory, memory.capacity_bytes - num_blocks * block_bytes)
        self.keeps_prefixes = True
        self.page_tokens = block_size
        self._block_bytes = block_bytes
        self._num_blank = num_blocks  # free, without known content
        self._cached: dict[SharedBlock, None] = {}  # free, with known content, oldest first
        self._known: dict[int, dict[SharedBlock, None]] = {}  # by their keys
        self._names = ContentKeys(block_size)
        self._keys: dict[Sequence, TableKeys] = {}  # of unfinished sequences
        self._totals = CacheTotals()

    def choose_victim(self, cached: Mapping[SharedBlock, None]) -> SharedBlock:
        """Choose the block to evict from `cached`, the free cached blocks in the order in which
        they were freed.
        """
        return next(iter(cached))

    def grant(self, tokens: int) -> Grant:
        blocks = ceil_div(tokens, self.page_tokens)
        return Grant(blocks * self.page_tokens, blocks * self._block_bytes)

    @property
    def _tables(self) -> dict[Sequence, BlockHolding]:
        """The live sequences with their blocks."""
        return cast("dict[Sequence, BlockHolding]", self._live)

    # --- hits ----------------------------------------------------------------------------------

    def _keys_of(self, seq: Sequence) -> TableKeys:
        keys = self._keys.get(seq)
        if keys is None:
            keys = self._keys[seq] = TableKeys(self._names.of(seq), self._names.private())
        return keys

    def _hits(self, seq: Sequence) -> list[SharedBlock]:
        """Cached leading blocks of a waiting sequence, which end before its last token."""
        found: list[SharedBlock] = []
        keys = self._keys_of(seq)
        for place in range((seq.num_tokens - 1) // self.page_tokens):
            blocks = self._known.get(keys.at(place))
            if not blocks:
                break
            found.append(next(iter(blocks)))
        return found

    def cached_tokens(self, seq: Sequence) -> int:
        return len(self._hits(seq)) * self.page_tokens

    def shared_tokens(self, seq: Sequence) -> int:
        blocks = self._tables[seq].blocks
        shared = next((at for at, each in enumerate(blocks) if each.owners == 1), len(blocks))
        return shared * self.page_tokens

    def cache_totals(self) -> CacheTotals:
        return self._totals

    # --- blocks --------------------------------------------------------------------------------

    @property
    def _num_free(self) -> int:
        return self._num_blank + len(self._cached)

    def _need(self, seq: Sequence, hits: list[SharedBlock], tokens: int) -> int:
        """Number of free blocks that `seq` takes for `tokens` tokens, its free hits included."""
        revived = sum(not block.owners for block in hits)
        return ceil_div(tokens, self.page_tokens) - len(hits) + revived

    def _take(self, num: int) -> list[SharedBlock]:
        for _ in range(num):
            if self._num_blank:
                self._num_blank -= 1
                continue
            victim = self.choose_victim(self._cached)
            del self._cached[victim]
            assert victim.key is not None
            blocks = self._known[victim.key]
            del blocks[victim]
            if not blocks:
                del self._known[victim.key]
        return [SharedBlock() for _ in range(num)]

    def admit(self, seq: Sequence, demand: Demand) -> Admission | None:
        hits = self._hits(seq)
        if self._need(seq, hits, demand.fit_tokens) > self._num_free:
            return None
        for block in hits:
            if not block.owners:
                del self._cached[block]
            block.owners += 1
        grant = self.grant(demand.num_tokens)
        new = grant.slots // self.page_tokens - len(hits)
        blocks = [*hits, *self._take(new)]
        holding = BlockHolding(grant, demand.num_tokens, blocks, self._keys_of(seq), len(hits))
        self._live[seq] = seq.memory = holding
        self._fill(holding)
        if not seq.num_preemptions:
            asked, found = self._totals.query_tokens, self._totals.hit_tokens
            self._totals = CacheTotals(asked + seq.num_tokens, found + demand.cached_tokens)
        return ADMITTED

    def extend(self, seq: Sequence, num_tokens: int, *, turns_before: int = 0) -> Growth | None:
        holding = self._tables[seq]
        grant = self.grant(num_tokens)
        new = grant.slots // self.page_tokens - len(holding.blocks)
        if new > self._num_free:
            return None
        if new > 0:
            holding.blocks += self._take(new)
            holding.grant = grant
        if not holding.decoding:
            holding.computed, holding.tokens = holding.tokens, num_tokens
            self._fill(holding)
        return GROWN

    def _fill(self, holding: BlockHolding) -> None:
        """Cache the full blocks of a sequence."""
        end = holding.tokens // self.page_tokens
        for place in range(holding.num_named, end):
            block, key = holding.blocks[place], holding.keys.at(place)
            block.key = key
            self._known.setdefault(key, {})[block] = None
        holding.num_named = max(holding.num_named, end)

    def _step(self) -> None:
        super()._step()
        for holding in self._tables.values():
            if holding.decoding:
                self._fill(holding)

    def steps_head_stays_blocked(self, head: Sequence, limit: int, *, busy: bool) -> int:
        """See `Allocator.steps_head_stays_blocked`; the result ends when a decoding sequence fills
        a block, which the head could hit.
        """
        if head.prompt_runs is None:
            return limit
        spare = (each.grant.slots - each.tokens for each in self._decoding())
        return max(0, min([limit, *(slots - 1 for slots in spare)]))

    def release(self, seq: Sequence) -> None:
        for block in reversed(self._tables.pop(seq).blocks):
            block.owners -= 1
            if block.owners:
                continue
            if block.key is None:
                self._num_blank += 1
            else:
                self._cached[block] = None
        seq.memory = None
        if seq.finished:
            del self._keys[seq]

    # --- the ledger ----------------------------------------------------------------------------

    @property
    def saved_bytes(self) -> int:
        """Bytes of shared blocks, counted once for each owner but the first."""
        return self._num_saved * self._block_bytes

    @property
    def _num_saved(self) -> int:
        held = sum(len(holding.blocks) for holding in self._tables.values())
        return held - len(self._distinct())

    def _distinct(self) -> set[SharedBlock]:
        return {block for holding in self._tables.values() for block in holding.blocks}

    def usage(self, head: Sequence | None, *, busy: bool) -> Usage:
        used = reserved = over = 0
        for seq, holding in self._tables.items():
            n, q, final = holding.tokens, holding.grant.slots, seq.final_tokens
            used += n
            reserved += max(0, min(q, final) - n)
            over += max(0, q - max(n, final))
        used -= self._num_saved * self.page_tokens  # shared blocks are full ones
        need = None
        if head is not None:
            hits = self._hits(head)
            need = self._need(head, hits, head.num_tokens) * self._block_bytes
        cached_bytes = len(self._cached) * self._block_bytes
        blank_bytes = self._num_blank * self._block_bytes
        external, short, idle = split_free(blank_bytes, cached_bytes, need, placeable=True)
        return Usage(
            used=used * self.token_bytes,
            reserved=reserved * self.token_bytes,
            overprovisioned=over * self.token_bytes,
            metadata=self._metadata_bytes,
            cached=cached_bytes,
            external=external,
            short=short,
            idle=idle,
        )

    def _left_bytes(self) -> int:
        return 0  # every layer keeps every token

    def check(self) -> None:
        super().check()
        blocks = self._distinct()
        owned = sum(block.owners for block in blocks)
        if owned != sum(len(holding.blocks) for holding in self._tables.values()):
            raise InvariantError(f"blocks have {owned} owners, and tables hold other numbers")
        known = {block for found in self._known.values() for block in found}
        self._check_known(known, (*blocks, *self._cached))
        if len(blocks) + self._num_free != self._pool_blocks:
            raise InvariantError(f"{len(blocks)} held and {self._num_free} free of the pool")

    @property
    def _pool_blocks(self) -> int:
        return (self.capacity_bytes - self._metadata_bytes) // self._block_bytes

    def _check_known(self, known: set[SharedBlock], present: Iterable[SharedBlock]) -> None:
        named = {block for block in present if block.key is not None}
        if named != known:
            raise InvariantError(f"{len(known)} blocks can be found, {len(named)} have keys")
