"""Who lay where in the pool, and when: an observer that writes it down, and changes nothing.

It looks before and after every plan and after every step's end; at each look, what it wrote down
is what the allocator's own tables say.
"""

from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Row
from typing import Protocol, runtime_checkable

from kvsim.engine.observer import Observer
from kvsim.engine.page_log import InPages, PageEye
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.engine.tree_log import InTree, TreeEye
from kvsim.memory.arena.placement import Arena
from kvsim.memory.paged.block_pool import BlockPool
from kvsim.results.addresses import HELD, KEPT, Addresses
from kvsim.sequence import Sequence


@runtime_checkable
class InBlocks(Protocol):
    """An allocator over a pool of blocks."""

    pool: BlockPool

    @property
    def block_bytes(self) -> int: ...
    def blocks_of(self, seq: Sequence) -> Row[int]: ...


@runtime_checkable
class InBuffers(Protocol):
    """An allocator over an arena."""

    arena: Arena


class AddressLog(Observer):
    """Watches one engine. addresses: what was seen so far; `close` it when the run is over."""

    def __init__(self) -> None:
        self.addresses = Addresses()
        self._eyes: tuple[_Eye, ...] | None = None
        self._now_ps = 0

    def planning(self, scheduler: Scheduler, now_ps: int) -> None:
        if self._eyes is None:
            self._eyes = tuple(_eyes(scheduler, self.addresses))
        self._look(scheduler, now_ps)

    def planned(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        self._look(scheduler, now_ps)

    def finished(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        self._look(scheduler, now_ps)

    def close(self) -> Addresses:
        """Everything that still lies somewhere lies there until the last look; what was seen."""
        if not self.addresses.full:
            self._close(self._now_ps)
        return self.addresses

    def _close(self, now_ps: int) -> None:
        for eye in self._eyes or ():
            eye.close(now_ps)

    def _look(self, scheduler: Scheduler, now_ps: int) -> None:
        self._now_ps = now_ps
        if not self.addresses.full:
            for eye in self._eyes or ():
                eye.look(scheduler.running, now_ps)
            if self.addresses.full:
                self._close(now_ps)
        allocator, cache = scheduler.allocator, scheduler.allocator.cache_totals()
        self.addresses.counted(
            now_ps,
            (
                scheduler.num_preemptions,
                scheduler.recomputed_tokens,
                allocator.copied_bytes,
                scheduler.swapped_bytes + cache.host_bytes,
                cache.query_tokens,
                cache.hit_tokens,
            ),
        )
        head = scheduler.waiting.head
        if head is not None and isinstance(allocator, InBuffers):
            need = allocator.token_bytes * allocator.missing_tokens(head, head.num_tokens)
            self.addresses.hole(now_ps, allocator.arena.largest_hole, need)


class _Eye(Protocol):
    """Sees part of what lies in the pool, and writes it down."""

    def look(self, running: Iterable[Sequence], now_ps: int) -> None: ...
    def close(self, now_ps: int) -> None: ...


def _eyes(scheduler: Scheduler, addresses: Addresses) -> Iterator[_Eye]:
    allocator = scheduler.allocator
    if isinstance(allocator, InBuffers):
        yield _BufferEye(allocator.arena, addresses)
    elif isinstance(allocator, InPages):
        yield PageEye(allocator, addresses)
    elif isinstance(allocator, InBlocks):
        yield _BlockEye(allocator, addresses)
    if isinstance(allocator, InTree) and allocator.keeps_prefixes:
        yield TreeEye(allocator.tree, addresses)


class _BufferEye:
    """Sees the regions of an arena; it listens to hear whose each is."""

    def __init__(self, arena: Arena, addresses: Addresses) -> None:
        self._arena = arena
        self._addresses = addresses
        self._version = -1
        self._owners: dict[int, str] = {}
        self._seen: dict[int, tuple[int, int, str]] = {}  # address -> bytes, since, owner
        arena.listener = self

    def allocated(self, address: int, size: int, owner: str) -> None:
        self._owners[address] = owner

    def extended(self, address: int, size: int) -> None: ...
    def freed(self, address: int) -> None: ...
    def device(self, action: str, address: int, size: int) -> None: ...
    def restored(self, version: int) -> None: ...

    def look(self, running: Iterable[Sequence], now_ps: int) -> None:
        if self._arena.version == self._version:
            return
        self._version = self._arena.version
        live = dict(self._arena.live())
        for address in [a for a, (size, _, _) in self._seen.items() if live.get(a) != size]:
            self._end(address, now_ps)
        for address, size in live.items():
            owner = self._owners.get(address, "")
            known = self._seen.get(address)
            if known is not None and known[2] != owner:
                self._end(address, now_ps)
                known = None
            if known is None:
                self._seen[address] = (size, now_ps, owner)

    def close(self, now_ps: int) -> None:
        self._arena.listener = None
        for address in list(self._seen):
            self._end(address, now_ps)

    def _end(self, address: int, now_ps: int) -> None:
        size, since_ps, owner = self._seen.pop(address)
        self._addresses.lay(address, size, since_ps, now_ps, owner, HELD)


class _BlockEye:
    """Hears blocks change hands, and learns at each look whose they are and when it was.

    A block with several owners is its first one's until all have left. Blocks taken while equal
    steps went by are spread over that time, in the order in which they were taken.
    """

    def __init__(self, allocator: InBlocks, addresses: Addresses) -> None:
        self._allocator = allocator
        self._addresses = addresses
        self._bytes = allocator.block_bytes
        self._heard: list[tuple[Row[int], Row[int], Row[int], Row[int]]] = []
        self._held: dict[int, tuple[int, str]] = {}  # since, by whom
        self._kept: dict[int, tuple[int, str]] = {}  # since, whose content it was
        self._unnamed: set[int] = set()
        self._named: dict[Sequence, tuple[int, int]] = {}  # preemptions, blocks seen of each
        self._now_ps = 0
        allocator.pool.listener = self

    def taken(self, blocks: Row[int]) -> None:
        self._heard.append((blocks, (), (), ()))

    def revived(self, blocks: Row[int]) -> None:
        self._heard.append(((), tuple(blocks), (), ()))

    def freed(self, cached: Row[int], blank: Row[int]) -> None:
        self._heard.append(((), (), tuple(cached), tuple(blank)))

    def look(self, running: Iterable[Sequence], now_ps: int) -> None:
        if self._heard:
            num_taken = sum(len(taken) for taken, *_ in self._heard)
            gap_ps, at = now_ps - self._now_ps, 0
            for taken, revived, cached, blank in self._heard:
                if gap_ps:
                    for block in taken:
                        at += 1
                        self._begin((block,), self._now_ps + gap_ps * at // (num_taken + 1))
                elif taken:
                    self._begin(taken, now_ps)
                if revived:
                    self._begin(revived, now_ps)
                if cached or blank:
                    self._end(cached, blank, now_ps)
            self._heard.clear()
            self._name(running)
        self._now_ps = now_ps

    def _begin(self, blocks: Row[int], now_ps: int) -> None:
        self._write([block for block in blocks if block in self._kept], self._kept, now_ps, KEPT)
        for block in blocks:
            self._held[block] = (now_ps, "")
        self._unnamed.update(blocks)

    def _end(self, cached: Row[int], blank: Row[int], now_ps: int) -> None:
        """One table came back: what nobody saw of it belongs to whom the rest belonged."""
        blocks = (*cached, *blank)
        unnamed = self._unnamed.intersection(blocks)
        if unnamed:
            owner = next((name for block in blocks if (name := self._held[block][1])), "")
            for block in unnamed:
                self._held[block] = (self._held[block][0], owner)
            self._unnamed -= unnamed
        kept = [(block, (now_ps, self._held[block][1])) for block in cached]
        self._write(blocks, self._held, now_ps, HELD)
        self._kept.update(kept)

    def _name(self, running: Iterable[Sequence]) -> None:
        """Find the owners of what was taken since the last look: mostly at the ends of tables."""
        unnamed, named = self._unnamed, {}
        tables = [(seq, self._allocator.blocks_of(seq)) for seq in running]
        for seq, blocks in tables:
            preemptions, seen = self._named.get(seq, (0, 0))
            seen = seen if preemptions == seq.num_preemptions and seen <= len(blocks) else 0
            self._own(blocks[seen:], seq.id)
            named[seq] = (seq.num_preemptions, len(blocks))
        self._named = named
        for seq, blocks in tables:
            if not unnamed:
                return
            self._own(blocks, seq.id)

    def _own(self, blocks: Row[int], owner: str) -> None:
        held, unnamed = self._held, self._unnamed
        for block in blocks:
            if block in unnamed:
                held[block] = (held[block][0], owner)
                unnamed.discard(block)

    def _write(
        self, blocks: Iterable[int], stays: dict[int, tuple[int, str]], now_ps: int, kind: int
    ) -> None:
        """The stays of these blocks end; neighbours with the same stay are one region."""
        run, last = 0, None
        for block in sorted(blocks):
            stay = stays.pop(block)
            if last == (block - 1, stay):
                run += 1
            else:
                self._region(run, last, now_ps, kind)
                run = 1
            last = (block, stay)
        self._region(run, last, now_ps, kind)

    def _region(
        self, run: int, last: tuple[int, tuple[int, str]] | None, now_ps: int, kind: int
    ) -> None:
        if last is not None:
            block, (since_ps, owner) = last
            first = block - run  # block 1 lies at address 0: the null block is not drawn
            lay = self._addresses.lay
            lay(first * self._bytes, run * self._bytes, since_ps, now_ps, owner, kind)

    def close(self, now_ps: int) -> None:
        self._allocator.pool.listener = None
        for stays, kind in ((self._held, HELD), (self._kept, KEPT)):
            self._write(list(stays), stays, now_ps, kind)
