"""Who lies in which block, and when: blocks are heard to change hands, and at the next look it is
learned whose they are and when it was.

Everything is done to all blocks of a look at once, as arrays over the pool's blocks.
"""

from collections.abc import Iterable
from collections.abc import Sequence as Row
from itertools import groupby
from operator import itemgetter
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from kvsim.memory.paged.block_pool import BlockPool
from kvsim.results.addresses import ADDRESS_COLUMNS, HELD, KEPT, Addresses
from kvsim.sequence import Sequence

Blocks = NDArray[np.int64]
Times = NDArray[np.int64] | int  # (n,) of n blocks, or of all of them

FREE = -1  # beside HELD and KEPT
TAKEN, REVIVED, FREED = range(3)


@runtime_checkable
class InBlocks(Protocol):
    """An allocator over a pool of blocks."""

    pool: BlockPool

    @property
    def block_bytes(self) -> int: ...
    def blocks_of(self, seq: Sequence) -> Row[int]: ...


class BlockEye:
    """Listens to a pool, and writes down the stays of its blocks as they end.

    A block with several owners is its first one's until all have left. Blocks taken while equal
    steps went by are spread over that time, in the order in which they were taken.
    """

    def __init__(self, allocator: InBlocks, addresses: Addresses) -> None:
        self._allocator = allocator
        self._addresses = addresses
        self._bytes = allocator.block_bytes
        self._nobody = addresses.index("")  # of whom it is not known yet whose they are
        num_blocks = allocator.pool.num_blocks
        self._kind = np.full(num_blocks, FREE, dtype=np.int8)
        self._since = np.zeros(num_blocks, dtype=np.int64)
        self._owner = np.full(num_blocks, self._nobody, dtype=np.int64)
        self._unnamed = _blocks(())  # held, and nobody's
        self._named: dict[Sequence, tuple[int, int]] = {}  # preemptions, blocks seen of each
        self._heard: list[tuple[int, Row[int], Row[int]]] = []
        self._now_ps = 0
        allocator.pool.listener = self

    def taken(self, blocks: Row[int]) -> None:
        self._heard.append((TAKEN, tuple(blocks), ()))

    def revived(self, blocks: Row[int]) -> None:
        self._heard.append((REVIVED, tuple(blocks), ()))

    def freed(self, cached: Row[int], blank: Row[int]) -> None:
        self._heard.append((FREED, tuple(cached), tuple(blank)))

    # --- a look --------------------------------------------------------------------------------

    def look(self, running: Iterable[Sequence], now_ps: int) -> None:
        if self._heard:
            num_taken = sum(len(blocks) for what, blocks, _ in self._heard if what == TAKEN)
            gap_ps, at = now_ps - self._now_ps, 0
            for what, together in groupby(self._heard, itemgetter(0)):
                if what == FREED:
                    for _, cached, blank in together:
                        self._end(_blocks(cached), _blocks(blank), now_ps)
                    continue
                blocks = _blocks([block for _, some, _ in together for block in some])
                times: Times = now_ps
                if gap_ps and what == TAKEN:
                    places = np.arange(at + 1, at + len(blocks) + 1)
                    at += len(blocks)
                    times = self._now_ps + _share(gap_ps, places, num_taken + 1)
                self._begin(blocks, times)
            self._heard.clear()
            self._name(running)
        self._now_ps = now_ps

    def _begin(self, blocks: Blocks, times: Times) -> None:
        """Somebody has these from `times` on."""
        kept = self._kind[blocks] == KEPT
        if kept.any():
            self._write(blocks[kept], times if isinstance(times, int) else times[kept])
        self._kind[blocks], self._since[blocks], self._owner[blocks] = HELD, times, self._nobody
        self._unnamed = np.concatenate((self._unnamed, blocks))

    def _end(self, cached: Blocks, blank: Blocks, now_ps: int) -> None:
        """One table came back: what nobody saw of it belongs to whom the rest belonged."""
        blocks = np.concatenate((cached, blank))
        if not len(blocks):
            return
        unknown = self._owner[blocks] == self._nobody
        if unknown.any() and not unknown.all():
            self._owner[blocks[unknown]] = self._owner[blocks[np.argmin(unknown)]]
        self._write(blocks, now_ps)
        self._kind[cached], self._since[cached], self._kind[blank] = KEPT, now_ps, FREE

    def _name(self, running: Iterable[Sequence]) -> None:
        """Find the owners of what was taken since the last look: mostly at the ends of tables."""
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
        """Of these blocks, those that are nobody's yet are their sequences', the first one's of
        several.
        """
        blocks = _blocks([block for _, some in tables for block in some])
        indices = [self._addresses.index(seq.id) for seq, _ in tables]
        owners = _blocks(indices).repeat([len(some) for _, some in tables])
        (nobodys,) = (self._owner[blocks] == self._nobody).nonzero()
        last_first = nobodys[::-1]
        self._owner[blocks[last_first]] = owners[last_first]
        unnamed = self._unnamed
        still = (self._owner[unnamed] == self._nobody) & (self._kind[unnamed] == HELD)
        self._unnamed = unnamed[still]

    # --- what is written down ------------------------------------------------------------------

    def _write(self, blocks: Blocks, ends_ps: Times) -> None:
        """The stays of these blocks, all of one kind, end; neighbours alike are one region."""
        order = blocks.argsort()
        blocks = blocks[order]
        since, owner = self._since[blocks], self._owner[blocks]
        begins = np.ones(len(blocks), dtype=np.bool_)
        rest = begins[1:]
        np.not_equal(blocks[1:], blocks[:-1] + 1, out=rest)
        rest |= since[1:] != since[:-1]
        rest |= owner[1:] != owner[:-1]
        ends = ends_ps
        if not isinstance(ends, int):
            ends = ends[order]
            rest |= ends[1:] != ends[:-1]
        (first,) = begins.nonzero()
        num = np.empty_like(first)
        num[:-1], num[-1] = first[1:] - first[:-1], len(blocks) - first[-1]
        rows = np.empty((len(first), len(ADDRESS_COLUMNS)), dtype=np.int64)
        rows[:, 0] = (blocks[first] - 1) * self._bytes  # the null block is not drawn
        rows[:, 1] = num * self._bytes
        rows[:, 2] = since[first]
        rows[:, 3] = ends if isinstance(ends, int) else ends[first]
        rows[:, 4] = owner[first]
        rows[:, 5] = self._kind[blocks[0]]
        self._addresses.lay_rows(rows)

    def close(self, now_ps: int) -> None:
        self._allocator.pool.listener = None
        for kind in (HELD, KEPT):
            blocks = np.flatnonzero(self._kind == kind)
            if len(blocks):
                self._write(blocks, now_ps)
        self._kind[:] = FREE


def _blocks(blocks: Row[int]) -> Blocks:
    return np.array(blocks, dtype=np.int64)


def _share(gap_ps: int, places: Blocks, parts: int) -> Blocks:
    """gap_ps * places // parts, where the product may not fit."""
    whole, rest = divmod(gap_ps, parts)
    return whole * places + rest * places // parts
