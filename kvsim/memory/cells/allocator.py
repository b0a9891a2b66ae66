"""llama.cpp's KV cells as an allocator: which sequence owns which cells, and the ledger of their
bytes.

Cells of running sequences are used. A server (llama-server) also retains cells of finished
sequences for the next request; these count as cached, as they are emptied when it needs room. With
a buffer for each sequence, the whole buffer counts as requested by the sequence that runs in it. A
cell outside the window is free: any token may take it.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Protocol

from kvsim.memory.allocator import (
    ADMITTED,
    GROWN,
    Admission,
    Allocator,
    CacheTotals,
    Demand,
    Growth,
    Refusal,
)
from kvsim.memory.cells.cache import DONE, CellCache
from kvsim.memory.cells.field import CellField, TokenRun
from kvsim.memory.cells.older import OlderCache
from kvsim.memory.cells.plan import CellPlan
from kvsim.memory.ledger import Course, LedgerJumps, Usage
from kvsim.memory.options import MemorySpec
from kvsim.plumbing.errors import InvariantError
from kvsim.request import Request
from kvsim.sequence import Sequence


class Planner(Protocol):
    """Sizes the pool's buffers for a number of sequences."""

    def __call__(self, num_slots: int, *, shared: bool) -> CellPlan: ...


class CellsAllocator(Allocator):
    """llama.cpp's KV cells under kvsim's allocator interface. cells: the cache.

    numbers: llama.cpp's sequence id of each running sequence. fixed: the options size the buffers,
    and no server may resize them.

    driver: callback of a server that places tokens itself; computes one decode step of all decoding
    sequences. totals: prefix cache hits, as reported by that server.
    """

    def __init__(
        self, memory: MemorySpec, plan: CellPlan, planner: Planner, *, fixed: bool
    ) -> None:
        self.capacity_bytes = memory.capacity_bytes
        self.fixed = fixed
        self.driver: Callable[[], None] | None = None
        self.totals = CacheTotals()
        self.numbers: dict[Sequence, int] = {}
        self._planner = planner
        self._decoding: dict[Sequence, None] = {}
        self._extended: dict[Sequence, None] = {}
        self._lay_out(plan)

    def _lay_out(self, plan: CellPlan) -> None:
        self.plan = plan
        self.cells: CellCache = plan.cache()
        self.token_bytes = plan.token_bytes + plan.window_bytes
        self.max_sequences = plan.num_sequences
        self.swappable = not plan.window
        self._free_numbers = list(range(plan.num_sequences))

    def serve(self, num_slots: int, *, unified: bool) -> None:
        """Let a server with `num_slots` slots place tokens itself, as `driver`; called before the
        run.
        """
        self._lay_out(self._planner(num_slots, shared=unified))
        self.keeps_prefixes = True

    # --- requests and admission ----------------------------------------------------------------

    def refusal(self, request: Request) -> Refusal | None:
        need = request.final_tokens
        if need <= self.plan.cells:
            return None
        return Refusal(
            "it needs more cells than a buffer has",
            need,
            self.plan.cells,
            "cells",
            "shorten the request, enlarge the pool, or share one buffer (kv_unified = true)",
        )

    def admit(self, seq: Sequence, demand: Demand) -> Admission | None:
        if not self._free_numbers:
            return None
        number = self._free_numbers[0]
        if not self._fits(number, demand.fit_tokens):
            return None
        heappop(self._free_numbers)
        self.numbers[seq] = number
        self._place(number, demand.num_tokens)
        return ADMITTED

    def _fits(self, number: int, num: int) -> bool:
        """Whether `num` new tokens of the sequence with id `number` find free cells."""
        if isinstance(self.cells, OlderCache):
            return self.cells.fits(num)
        field = self._base(number)
        return num <= field.size - field.used

    def _base(self, number: int) -> CellField:
        return self.cells.caches[0].field(number)

    def _place(self, number: int, num_tokens: int) -> None:
        """Grow the sequence with id `number` to `num_tokens` tokens."""
        held = self._base(number).last_position(number) + 1
        if num_tokens > held:
            runs = [TokenRun((number,), held, num_tokens - held)]
            if self.cells.decode(runs) != DONE:
                raise InvariantError(f"{num_tokens - held} tokens found no room")

    # --- growth and decoding -------------------------------------------------------------------

    def extend(self, seq: Sequence, num_tokens: int, *, turns_before: int = 0) -> Growth | None:
        number = self.numbers[seq]
        if not seq.decoding:
            new_tokens = num_tokens - self._held(number)
            # Decoders take their cells at the end of the step, extended or not.
            if not self._fits(number, new_tokens + self._taken_by(self._decoding, number)):
                return None
            self._place(number, num_tokens)
            return GROWN
        if not self._fits(number, self._taken_by(self._extended, number) + 1):
            return None
        self._extended[seq] = None
        return GROWN

    def _taken_by(self, decoders: dict[Sequence, None], number: int) -> int:
        """Number of cells that `decoders` take for their next token in the buffer of the sequence
        with id `number`.
        """
        if self.cells.unified:
            return len(decoders)
        return sum(self.numbers[seq] == number for seq in decoders)

    def _held(self, number: int) -> int:
        return len(self._base(number).held.get(number, ()))

    def join(self, seq: Sequence, num_tokens: int) -> None:
        self._decoding[seq] = None

    def leave(self, seq: Sequence) -> None:
        self._decoding.pop(seq, None)
        self._extended.pop(seq, None)

    def must_extend(self) -> list[Sequence]:
        if self.driver is not None or self.steps_that_fit(1):
            return []
        rest = [seq for seq in self._decoding if seq not in self._extended]
        return sorted(rest, key=lambda seq: seq.order)

    def steps_that_fit(self, limit: int) -> int:
        num = len(self._decoding)
        if not num or not limit:
            return limit
        if isinstance(self.cells, OlderCache):
            return int(self.cells.fits(num))
        if self.cells.unified:
            field = self.cells.caches[0].fields[0]
            return min(limit, (field.size - field.used) // num)
        fields = (self._base(self.numbers[seq]) for seq in self._decoding)
        return min(limit, *(field.size - field.used for field in fields))

    def steps_head_stays_blocked(self, head: Sequence, limit: int, *, busy: bool) -> int:
        if isinstance(self.cells, OlderCache):
            return 0
        free, cached = self._free_cells()
        spare = free + cached - head.num_tokens
        if self.cells.unified and spare >= 0 and self._decoding:
            limit = min(limit, spare // len(self._decoding))
        return limit

    def advance(self, steps: int) -> Course:
        ledger = LedgerJumps(self.usage(None, busy=True))
        for t in range(1, steps + 1):
            if self.driver is not None:
                self.driver()
            else:
                self._step()
            ledger.read(self.usage(None, busy=True), t)
        return ledger.course()

    def step(self) -> None:
        if self.driver is None:
            self._step()

    def _step(self) -> None:
        """One decode step: every decoding sequence takes a cell."""
        self._extended.clear()
        numbers = [self.numbers[seq] for seq in sorted(self._decoding, key=lambda s: s.order)]
        runs = [TokenRun((number,), self._held(number), 1) for number in numbers]
        if runs and self.cells.decode(runs) != DONE:
            raise InvariantError(f"{len(runs)} decoders found no room")

    def release(self, seq: Sequence) -> None:
        number = self.numbers.pop(seq)
        if self.driver is None:
            self.cells.remove(number)
            heappush(self._free_numbers, number)

    # --- the ledger ----------------------------------------------------------------------------

    def granted_tokens(self, seq: Sequence) -> int:
        number = self.numbers.get(seq)
        if number is None:
            return 0
        return self._held(number) if self.cells.unified else self.plan.cells

    @property
    def copied_bytes(self) -> int:
        cells = self.cells
        return cells.moved_cells * self.token_bytes if isinstance(cells, OlderCache) else 0

    def cache_totals(self) -> CacheTotals:
        return self.totals

    def _free_cells(self) -> tuple[int, int]:
        """(empty cells, cells of sequences that do not run) in the layers that keep every token.

        With a buffer for each sequence, buffers of running sequences are not counted.
        """
        running = set(self.numbers.values())
        base = self.cells.caches[0]
        if self.cells.unified:
            field = base.fields[0]
            return field.size - field.used, field.used - _distinct(field, running)
        idle = [field for number, field in enumerate(base.fields) if number not in running]
        used = sum(field.used for field in idle)
        return sum(field.size for field in idle) - used, used

    def usage(self, head: Sequence | None, *, busy: bool) -> Usage:
        """See kvsim.memory.ledger for the classes."""
        plan = self.plan
        running = {number: seq for seq, number in self.numbers.items()}
        every = set(running)
        used = reserved = over = cached = free = 0
        for cache, size in zip(
            self.cells.caches, (plan.token_bytes, plan.window_bytes), strict=False
        ):
            for at, field in enumerate(cache.fields):
                here = every if self.cells.unified else every & {at}
                mine = _distinct(field, here) if not field.window else _seen(field, here)
                kept = (
                    field.used - mine if not field.window else _seen(field, set(field.held)) - mine
                )
                used += mine * size
                if not self.cells.unified and here:
                    final = running[at].final_tokens
                    most = min(final, field.window or final, field.size)
                    reserved += max(0, most - mine) * size
                    over += (field.size - max(mine, most)) * size
                else:
                    cached += kept * size
                    free += (field.size - mine - kept) * size
        external, short, idle = self._split(free, head)
        return Usage(
            used=used,
            reserved=reserved,
            overprovisioned=over,
            cached=cached,
            metadata=self.capacity_bytes - plan.num_bytes,
            external=external,
            short=short,
            idle=idle,
        )

    def _split(self, free_bytes: int, head: Sequence | None) -> tuple[int, int, int]:
        """Free bytes as (external, short, idle), by the need of the queue's head. The need is
        counted in cells, which every layer has.
        """
        if head is None:
            return 0, 0, free_bytes
        free, cached = self._free_cells()
        if free + cached < head.num_tokens:
            return 0, free_bytes, 0
        if isinstance(self.cells, OlderCache) and not self.cells.fits(head.num_tokens):
            return free_bytes, 0, 0
        return 0, 0, free_bytes

    def check(self) -> None:
        self.cells.check()
        for seq, number in self.numbers.items():
            last, held = self._base(number).last_position(number), self._held(number)
            if last + 1 != held:
                raise InvariantError(f"{seq} holds {held} cells and ends at position {last}")
        if self.driver is None:
            used = sum(field.used for field in self.cells.caches[0].fields)
            held = sum(self._held(number) for number in self.numbers.values())
            if used != held:
                raise InvariantError(f"{used} cells used, {held} of them by running sequences")


def _distinct(field: CellField, numbers: set[int]) -> int:
    """Number of distinct cells that the sequences with these ids hold."""
    each = [field.held[number] for number in numbers if field.held.get(number)]
    if len(each) < 2:
        return len(each[0]) if each else 0
    total = sum(map(len, each))
    if total <= field.used and all(len(field.owners[next(iter(cells))]) == 1 for cells in each):
        return total
    return len(set().union(*each))


def _seen(field: CellField, numbers: set[int]) -> int:
    """Number of cells within the attention window of the sequences with these ids, summed over the
    sequences.
    """
    return sum(min(len(field.held.get(number, ())), field.window) for number in numbers)
