"""Records the owners of KV blocks over time. The pool reports blocks that are taken or freed; the
next sample supplies the owner and the time.

All blocks of a sample are processed at once, as arrays over the pool's blocks.
"""

from array import array
from collections.abc import Iterable
from collections.abc import Sequence as Row
from itertools import groupby
from operator import itemgetter
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from kvsim.memory.paged.pool import BlockPool
from kvsim.results.addresses import ADDRESS_COLUMNS, HELD, KEPT, Addresses
from kvsim.sequence import Sequence
from kvsim.vllm.rules import FIRST_BLOCK

Blocks = NDArray[np.int64]
Times = NDArray[np.int64] | int  # (n,) of n blocks, or of all of them

# Intervals of blocks written together: many calls in one, in little memory that is used again.
MOST_AT_ONCE = 1 << 13
NO_BLOCKS: Blocks = np.empty(0, dtype=np.int64)
NOT_BLANK = array("q")
FREE = -1  # a third kind, next to HELD and KEPT
TAKEN, REVIVED, FREED = range(3)


@runtime_checkable
class InBlocks(Protocol):
    """An allocator that gives sequences blocks of a pool."""

    pool: BlockPool

    @property
    def block_bytes(self) -> int: ...
    def blocks_of(self, seq: Sequence) -> Row[int]: ...


class BlockRecorder:
    """Listens to a block pool, and records the intervals (start, end, owner) of its blocks as they
    end.

    A block with several owners counts for the first one until all have freed it. Blocks taken in a
    run of equal steps are spread evenly over its time, in the order in which they were taken.
    """

    def __init__(self, allocator: InBlocks, addresses: Addresses) -> None:
        self._allocator = allocator
        self._addresses = addresses
        self._bytes = allocator.block_bytes
        self._unowned = addresses.index("")  # owner of blocks with an owner not known yet
        num_blocks = allocator.pool.num_blocks
        self._kind = np.full(num_blocks, FREE, dtype=np.int8)
        self._since = np.zeros(num_blocks, dtype=np.int64)
        self._owner = np.full(num_blocks, self._unowned, dtype=np.int64)
        self._unnamed = NO_BLOCKS  # held, owner not known yet
        self._named: dict[Sequence, tuple[int, int]] = {}  # preemptions, blocks seen of each
        self._events: list[tuple[int, array[int], array[int]]] = []
        self._now_ps = 0
        self._ended: list[tuple[Blocks, Blocks, Blocks, Blocks]] = []  # blocks, since, until, owner
        self._ended_kinds: list[int] = []  # of these
        self._num_ended = 0  # blocks in them, at most
        self._room = self._most_ended()  # before they are written down
        allocator.pool.listener = self

    def taken(self, blocks: Row[int]) -> None:
        self._events.append((TAKEN, array("q", blocks), NOT_BLANK))

    def revived(self, blocks: Row[int]) -> None:
        self._events.append((REVIVED, array("q", blocks), NOT_BLANK))

    def freed(self, cached: Row[int], blank: Row[int]) -> None:
        self._events.append((FREED, array("q", cached), array("q", blank)))

    # --- a sample ------------------------------------------------------------------------------

    def sample(self, running: Iterable[Sequence], now_ps: int) -> None:
        if self._events:
            num_taken = sum(len(blocks) for what, blocks, _ in self._events if what == TAKEN)
            gap_ps, at = now_ps - self._now_ps, 0
            for what, together in groupby(self._events, itemgetter(0)):
                if what == FREED:
                    for _, cached, blank in together:
                        self._end(np.array(cached), np.array(blank), now_ps)
                    continue
                blocks = _blocks_of([some for _, some, _ in together])
                times: Times = now_ps
                if gap_ps and what == TAKEN:
                    places = np.arange(at + 1, at + len(blocks) + 1)
                    at += len(blocks)
                    times = self._now_ps + _share(gap_ps, places, num_taken + 1)
                self._begin(blocks, times)
            self._events.clear()
            self._name(running)
        self._now_ps = now_ps

    def _begin(self, blocks: Blocks, times: Times) -> None:
        """Record that these blocks have an owner from `times` on."""
        kept = self._kind[blocks] == KEPT
        if kept.any():
            self._stay(blocks[kept], times if isinstance(times, int) else times[kept], KEPT)
        self._kind[blocks], self._since[blocks], self._owner[blocks] = HELD, times, self._unowned
        unnamed = self._unnamed
        self._unnamed = np.concatenate((unnamed, blocks)) if len(unnamed) else blocks

    def _end(self, cached: Blocks, blank: Blocks, now_ps: int) -> None:
        """End the intervals of blocks that a table freed, and give unowned ones the owner of the
        others.

        cached: freed blocks that remain in the prefix cache. blank: freed blocks without content.
        """
        blocks = np.concatenate((cached, blank)) if len(blank) else cached
        if not len(blocks):
            return
        unknown = self._owner[blocks] == self._unowned
        if unknown.any() and not unknown.all():
            self._owner[blocks[unknown]] = self._owner[blocks[np.argmin(unknown)]]
        self._stay(blocks, now_ps, HELD)
        self._kind[cached], self._since[cached], self._kind[blank] = KEPT, now_ps, FREE

    def _name(self, running: Iterable[Sequence]) -> None:
        """Find the owners of blocks taken since the last sample, mostly at the ends of tables."""
        named, tables = {}, []
        for seq in running:
            blocks = self._allocator.blocks_of(seq)
            preemptions, seen = self._named.get(seq, (0, 0))
            seen = seen if preemptions == seq.num_preemptions and seen <= len(blocks) else 0
            named[seq] = (seq.num_preemptions, len(blocks))
            tables.append((seq, blocks, seen))
        self._named = named
        self._own([(seq, blocks[seen:]) for seq, blocks, seen in tables if seen < len(blocks)])
        if len(self._unnamed):
            self._own([(seq, blocks) for seq, blocks, _ in tables])

    def _own(self, tables: list[tuple[Sequence, Row[int]]]) -> None:
        """Assign each block without an owner to the first of the sequences that have it in
        `tables`.
        """
        if not tables:
            return
        blocks = _blocks_of([some for _, some in tables])
        indices = [self._addresses.index(seq.id) for seq, _ in tables]
        owners = np.array(indices).repeat([len(some) for _, some in tables])
        (unowned,) = (self._owner[blocks] == self._unowned).nonzero()
        last_first = unowned[::-1]
        self._owner[blocks[last_first]] = owners[last_first]
        unnamed = self._unnamed
        still = (self._owner[unnamed] == self._unowned) & (self._kind[unnamed] == HELD)
        self._unnamed = unnamed[still]

    # --- the record ----------------------------------------------------------------------------

    def _stay(self, blocks: Blocks, ends_ps: Times, kind: int) -> None:
        """End the intervals of `blocks` at `ends_ps`. kind: HELD or KEPT (cached)."""
        ends = np.full(len(blocks), ends_ps) if isinstance(ends_ps, int) else ends_ps
        self._ended.append((blocks, self._since[blocks], ends, self._owner[blocks]))
        self._ended_kinds.append(kind)
        self._num_ended += len(blocks)
        if self._num_ended >= self._room:
            self._write()

    def _write(self) -> None:
        """Write the ended intervals, with adjacent blocks of equal intervals merged into one
        region.

        Blocks are taken and freed in long rising or falling runs, so runs are sorted instead of
        blocks.
        """
        if self._ended:
            sizes = [len(each[0]) for each in self._ended]
            together = np.arange(len(sizes)).repeat(sizes)
            blocks, *stays = map(np.concatenate, zip(*self._ended, strict=True))
            stays.append(together)
            heads = _heads(blocks, np.abs(blocks[1:] - blocks[:-1]) != 1, stays)
            tails = np.append(heads[1:], len(blocks)) - 1
            first = np.minimum(blocks[heads], blocks[tails])
            order = np.argsort(together[heads] * len(self._kind) + first)
            first, num, heads = first[order], (tails - heads + 1)[order], heads[order]
            stays = [of_each[heads] for of_each in stays]
            regions = _heads(first, first[1:] != first[:-1] + num[:-1], stays)
            since, ends, owner, together = (of_each[regions] for of_each in stays)
            rows = np.empty((len(regions), len(ADDRESS_COLUMNS)), dtype=np.int64)
            rows[:, 0] = (first[regions] - FIRST_BLOCK) * self._bytes  # the null block is not drawn
            rows[:, 1] = np.add.reduceat(num, regions) * self._bytes
            rows[:, 2], rows[:, 3], rows[:, 4] = since, ends, owner
            rows[:, 5] = np.array(self._ended_kinds)[together]
            self._addresses.lay_rows(rows)
        self._ended, self._ended_kinds, self._num_ended = [], [], 0
        self._room = self._most_ended()

    def _most_ended(self) -> int:
        """Most ended blocks to buffer before writing: no more than the rows that the log has left,
        so that a full log is noticed.
        """
        return min(MOST_AT_ONCE, max(1, self._addresses.room))

    def close(self, now_ps: int) -> None:
        self._allocator.pool.listener = None
        for kind in (HELD, KEPT):
            blocks = np.flatnonzero(self._kind == kind)
            if len(blocks):
                self._stay(blocks, now_ps, kind)
        self._write()
        self._kind[:] = FREE


def _blocks_of(parts: Iterable[Row[int]]) -> Blocks:
    """Concatenate the rows into one array; numpy converts an array much faster than a list."""
    blocks = array("q")
    for some in parts:
        blocks.extend(some)
    return np.array(blocks)


def _heads(blocks: Blocks, parted: NDArray[np.bool_], stays: list[Blocks]) -> Blocks:
    """Indices into `blocks` at which a region begins.

    parted: whether a block is not adjacent to the one before. stays: the columns start, end and
    owner; a region also begins where one of them changes.
    """
    begins = np.ones(len(blocks), dtype=np.bool_)
    rest = begins[1:]
    rest[:] = parted
    for of_each in stays:
        rest |= of_each[1:] != of_each[:-1]
    return begins.nonzero()[0]


def _share(gap_ps: int, places: Blocks, parts: int) -> Blocks:
    """gap_ps * places // parts, computed without overflowing 64 bits."""
    whole, rest = divmod(gap_ps, parts)
    return whole * places + rest * places // parts
