"""KV memory as SGLang keeps it (0.5.23) with a second pool: the base for windows and recurrent
states.

Steps are taken one by one, at a cost that does not grow with the sequences: a step visits only
sequences with a deadline in it.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import NamedTuple

from mypy_extensions import mypyc_attr

from kvsim.memory.allocator import Admission, Demand
from kvsim.memory.ledger import Course, LedgerJumps, Usage
from kvsim.memory.radix.allocator import RadixAllocator
from kvsim.memory.radix.decoders import PageMoves
from kvsim.memory.radix.holds import Slots, slots_of
from kvsim.memory.radix.second_pool import Places, SecondPool
from kvsim.memory.radix.tree import RadixTree
from kvsim.plumbing.errors import InvariantError
from kvsim.sequence import Sequence


class Deadlines:
    """The clocks at which decoding sequences must be visited."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Sequence]] = []

    def add(self, seq: Sequence, slots: int) -> None:
        """Visit `seq` once it has `slots` slots."""
        heappush(self._heap, (slots - seq.base, seq.order, seq))

    def next(self, live: Callable[[Sequence, int], bool]) -> int | None:
        """The clock of the first deadline of a sequence that still decodes; None without one."""
        heap = self._heap
        while heap and not live(heap[0][2], heap[0][1]):
            heappop(heap)
        return heap[0][0] if heap else None

    def due(self, clock: int, live: Callable[[Sequence, int], bool]) -> list[Sequence]:
        """Remove and return the sequences with deadlines up to `clock`, in running order."""
        heap, found = self._heap, []
        while heap and heap[0][0] <= clock:
            _, order, seq = heappop(heap)
            if live(seq, order):
                found.append(seq)
        return sorted(found, key=lambda seq: seq.order)


class TokenPool(NamedTuple):
    """The first pool, of slots for tokens, `pool_tokens` of `token_bytes` each in pages of
    `page_size` tokens, and what holds for both pools: capacity_bytes together; lag: 1 if a step is
    scheduled before the one before it has returned, else 0; caching: whether a tree keeps prefixes.
    """

    capacity_bytes: int
    token_bytes: int
    page_size: int
    pool_tokens: int
    lag: int
    caching: bool


@mypyc_attr(allow_interpreted_subclasses=True)
class HybridAllocator(RadixAllocator):
    """part: the second pool. grid: see `Holds`."""

    def __init__(
        self, pool: TokenPool, part: SecondPool, *, grid: int, max_sequences: int | None
    ) -> None:
        caching, lag, page_size = pool.caching, pool.lag, pool.page_size
        super().__init__(
            pool.pool_tokens * pool.token_bytes,
            pool.token_bytes,
            page_size,
            caching=caching,
            max_sequences=max_sequences,
            pool_tokens=pool.pool_tokens,
            tree=RadixTree(page_size, part),
            grid=grid,
        )
        self.capacity_bytes = pool.capacity_bytes
        self.part = part
        self._lag = lag
        self._unreturned = lag  # steps in flight at the start of the step being scheduled
        self._begun = False  # that step has begun

    @property
    def steps_on_its_own(self) -> bool:
        return True

    def _live_decoder(self, seq: Sequence, order: int) -> bool:
        return seq.decoding and seq.order == order

    # --- room ----------------------------------------------------------------------------------

    def _make_part_room(self, units: int) -> None:
        """Evict the oldest content of the second pool until `units` units are free."""
        self.free += self.tree.make_second_room(units)

    def progress(self, seq: Sequence) -> list[int | None]:
        """The numbers that a schedule recorded from SGLang has for a live sequence's share of the
        second pool (docs/schedules.md), right after a step was scheduled.
        """
        raise NotImplementedError(type(self).__name__)  # both kinds override this

    def _own_units(self, seq: Sequence, slots: Slots) -> int:
        """Units of the second pool that a live sequence holds beside the tree."""
        raise NotImplementedError(type(self).__name__)  # both kinds override this

    def _valid_units(self) -> int:
        """Units of the second pool in use beside the tree."""
        raise NotImplementedError(type(self).__name__)  # both kinds override this

    def _part_fits(self, seq: Sequence, tokens: int) -> bool:
        """Whether the second pool has room for a waiting, pinned `seq` of so many tokens."""
        raise NotImplementedError(type(self).__name__)  # both kinds override this

    # --- admission -----------------------------------------------------------------------------

    def admit(self, seq: Sequence, demand: Demand) -> Admission | None:
        """See `Allocator.admit`; without a pin by the scheduler, the hits are pinned for the test,
        which counts as a use.
        """
        pinned = seq in self._holds.pinned
        if len(self._live) == self.max_sequences:
            return None
        if not pinned:
            cached = self.pin(seq)
            if cached != demand.cached_tokens:
                raise InvariantError(f"{seq} hits {cached} tokens, not {demand.cached_tokens}")
        fits = self._missing(self._holds.hit(seq), demand.fit_tokens) <= self.available_tokens()
        if not fits or not self._part_fits(seq, demand.fit_tokens):
            if not pinned:
                self.unpin(seq)
            return None
        return super().admit(seq, demand)

    # --- decoding ------------------------------------------------------------------------------

    def join(self, seq: Sequence, num_tokens: int) -> None:
        super().join(seq, num_tokens)
        slots_of(seq).joined = num_tokens

    def begin_decode(self, stopping: list[Sequence], *, unreturned: int, rides: bool) -> None:
        self._begun = True
        self._unreturned = unreturned

    def steps_head_stays_blocked(self, head: Sequence, limit: int, *, busy: bool) -> int:
        return 0

    def advance(self, steps: int) -> Course:
        base = self.usage(None, busy=True)
        ledger = LedgerJumps(base)
        used = allocated = 0
        for t in range(1, steps + 1):
            self.step()
            now = self.usage(None, busy=True)
            ledger.read(now, t)
            used = max(used, now.used - base.used)
            allocated = max(allocated, now.allocated - base.allocated)
        return ledger.course(used, allocated)

    def step(self) -> None:
        decoders, size = self._decoders, self.page_tokens
        if not self._begun:
            self.make_room(decoders.num_without_room * size)
            self.begin_decode([], unreturned=self._lag, rides=False)
        self._begun = False
        self.make_room((decoders.num - len(decoders.extended)) * size)
        self._take_decoded(decoders.num_without_room * size)
        self._advance_decoders(1, PageMoves())

    def _take_decoded(self, tokens: int) -> None:
        """A step of decoding takes so many tokens of new pages."""
        self.free -= tokens

    # --- what is filed -------------------------------------------------------------------------

    def _file(self, seq: Sequence, slots: Slots, upto: int) -> Places:
        """The tree takes over the first `upto` tokens of a live sequence, in whole pages, which
        locks them.
        """
        whole, before = self._whole(upto), slots.protected
        if self.keeper is not None:
            self.keeper.filing(seq, whole - before)
        places = Places(before, whole, slots.cursor)
        self.free += self._holds.file(slots, places, self._whole(seq.prompt_tokens))
        self._valid -= whole - before
        return places

    def release(self, seq: Sequence) -> None:
        slots = slots_of(seq)
        self._live_slots(seq)
        if seq.finished and self.keeps_prefixes:
            self._file_finished(seq, slots)
        own = self._own_units(seq, slots)
        del self._live[seq]
        if self.keeper is not None:
            self.keeper.released(seq)
        self.free += slots.granted - slots.protected
        self.part.free += own
        self._valid -= slots.tokens - slots.protected
        self._over -= slots.over
        slots.tokens = slots.granted = slots.over = 0
        self._holds.let_go(slots)
        slots.reset()
        if seq.finished:
            seq.memory = None

    def _file_finished(self, seq: Sequence, slots: Slots) -> None:
        """All outputs of `seq` have returned: the tree takes over what it can."""
        raise NotImplementedError(type(self).__name__)  # both kinds override this

    def _live_slots(self, seq: Sequence) -> Slots:
        """The slots of a live sequence."""
        return self._live[seq]

    # --- the ledger ----------------------------------------------------------------------------

    @property
    def saved_bytes(self) -> int | None:
        return (self._holds.protected - self.tree.locked) * self.token_bytes

    def usage(self, head: Sequence | None, *, busy: bool) -> Usage:
        tree, part, size, unit = self.tree, self.part, self.token_bytes, self.part.unit_bytes
        short = False
        if head is not None:
            short = not self._head_fits(head)
        used = tree.locked + self._valid
        empty = self.pool_tokens - self.free - tree.evictable - used - self._over
        valid, reserved, over = self._part_split(empty)
        free = self.free * size + part.free * unit
        pools = self.pool_tokens * size + part.pool * unit
        return Usage(
            used * size + (part.locked + valid) * unit,
            empty * size + reserved * unit,
            self._over * size + over * unit,
            0,
            tree.evictable * size + part.evictable * unit,
            0,
            self.capacity_bytes - pools,
            0,
            free if short else 0,
            0 if short else free,
        )

    def _head_fits(self, head: Sequence) -> bool:
        need = self._missing(self._holds.hit(head), head.num_tokens)
        return need <= self.available_tokens()

    def _part_split(self, empty: int) -> tuple[int, int, int]:
        """Units that live sequences hold beside the tree: in use, to be used, never to be used.
        empty: slots of pages that are still to be filled.
        """
        raise NotImplementedError(type(self).__name__)  # both kinds override this

    def check(self) -> None:
        super().check()
        part = self.part
        own = sum(self._own_units(seq, self._live_slots(seq)) for seq in self._live)
        pinned = sum(slots_of(seq).states for seq in self._holds.pinned)
        total = part.free + part.evictable + part.locked + own + pinned
        if total != part.pool or part.free < 0:
            raise InvariantError(f"{total} of {part.pool} units of the second pool accounted for")
