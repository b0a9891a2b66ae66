"""Records which sequence owns each address of the KV pool over time; as an observer it changes
nothing.

It samples before and after every plan and at the end of every step. At each sample its record
equals the allocator's own tables.
"""

from collections.abc import Iterable, Iterator
from typing import Protocol, runtime_checkable

from kvsim.engine.addresses.block_log import BlockRecorder, InBlocks
from kvsim.engine.addresses.cell_log import CellRecorder, InCells
from kvsim.engine.addresses.page_log import InPages, PageRecorder
from kvsim.engine.addresses.tree_log import InTree, TreeRecorder
from kvsim.engine.observer import Observer
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.memory.arena.placement import Arena
from kvsim.results.addresses import HELD, Addresses
from kvsim.sequence import Sequence


@runtime_checkable
class InBuffers(Protocol):
    """An allocator that gives each sequence a contiguous region of an arena."""

    arena: Arena


class AddressLog(Observer):
    """Records the owners of addresses of one engine. addresses: the record so far. Call `close` at
    the end of the run.
    """

    def __init__(self) -> None:
        self.addresses = Addresses()
        self._recorders: tuple[_PartRecorder, ...] | None = None
        self._arena: Arena | None = None  # of an allocator of buffers
        self._now_ps = 0

    def planning(self, scheduler: Scheduler, now_ps: int) -> None:
        if self._recorders is None:
            self._recorders = tuple(_recorders(scheduler, self.addresses))
            if isinstance(scheduler.allocator, InBuffers):
                self._arena = scheduler.allocator.arena
        self._sample(scheduler, now_ps)

    def planned(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        self._sample(scheduler, now_ps)

    def finished(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        self._sample(scheduler, now_ps)

    def close(self) -> Addresses:
        """End all open intervals at the last sample; returns the record."""
        if not self.addresses.full:
            self._close(self._now_ps)
        return self.addresses

    def _close(self, now_ps: int) -> None:
        for recorder in self._recorders or ():
            recorder.close(now_ps)

    def _sample(self, scheduler: Scheduler, now_ps: int) -> None:
        self._now_ps = now_ps
        if not self.addresses.full:
            for recorder in self._recorders or ():
                recorder.sample(scheduler.running, now_ps)
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
                cache.hit_tokens + scheduler.awaited_hit_tokens,
            ),
        )
        head = scheduler.waiting.head
        if head is not None and self._arena is not None:
            need = allocator.token_bytes * allocator.missing_tokens(head, head.num_tokens)
            self.addresses.hole(now_ps, self._arena.largest_hole, need)


class _PartRecorder(Protocol):
    """Records the owners of one kind of address: regions, blocks, pages or cells."""

    def sample(self, running: Iterable[Sequence], now_ps: int) -> None: ...
    def close(self, now_ps: int) -> None: ...


def _recorders(scheduler: Scheduler, addresses: Addresses) -> Iterator[_PartRecorder]:
    allocator = scheduler.allocator
    if isinstance(allocator, InBuffers):
        yield _BufferRecorder(allocator.arena, addresses)
    elif isinstance(allocator, InCells):
        yield CellRecorder(allocator, addresses)
    elif isinstance(allocator, InPages):
        yield PageRecorder(allocator, addresses)
    elif isinstance(allocator, InBlocks):
        yield BlockRecorder(allocator, addresses)
    if isinstance(allocator, InTree) and allocator.keeps_prefixes:
        yield TreeRecorder(allocator.tree, addresses)


class _BufferRecorder:
    """Records the owners of an arena's regions, which it learns as the arena's listener."""

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

    def sample(self, running: Iterable[Sequence], now_ps: int) -> None:
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
