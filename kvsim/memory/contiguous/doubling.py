"""A contiguous buffer that grows by a factor when it is full.

Growing from c0 by factor f moves less than the final capacity in all: each token is copied about
once. But old and new live together. With f = 2 the c0 * (2**k - 1) slots freed so far can never
hold the next c0 * 2**k. A sequence alone in a pool needs c0 * (2**(k + 1) - 1) slots to grow k
times. A growth without room fails and the scheduler preempts. A preempted sequence comes back with
a buffer for all its present tokens, alone if need be. So each failure makes progress by one buffer
at least, and it ends.
"""

from bisect import bisect_left
from collections.abc import Iterator

from pydantic import Field

from kvsim.memory.allocator import Refusal
from kvsim.memory.arena.choice import PlacementChoice
from kvsim.memory.arena.compacting import Compacting
from kvsim.memory.contiguous.growing import Growing
from kvsim.memory.options import AllocatorOptions, MemorySpec, Removal, StoreKind
from kvsim.plumbing.units import PS_PER_US
from kvsim.request import Request
from kvsim.sequence import Sequence


class Doubling(AllocatorOptions):
    """initial_tokens: the smallest buffer; factor: how a full one grows, up to max_model_len.

    extend_in_place: first try to extend a buffer in place, which copies nothing. placement: where
    buffers go, a name or a table. allocation_latency_us: time each growth spends in the allocator,
    besides its copy.
    """

    initial_tokens: int = Field(256, ge=1)
    factor: float = Field(2.0, gt=1.0, le=1024.0)
    extend_in_place: bool = False
    placement: PlacementChoice = Field(default="first-fit", validate_default=True)
    allocation_latency_us: float = Field(0.0, ge=0.0, le=1e9)

    @property
    def store(self) -> StoreKind | None:
        return self.placement.store

    def build(self, memory: MemorySpec) -> "DoublingAllocator":
        return DoublingAllocator(self, memory)

    def removals(self) -> Iterator[Removal]:
        rounded = Compacting(rounded_as=self.placement)
        movable = self.model_copy(update={"placement": rounded})
        yield Removal(("external",), movable)
        stretching = movable.model_copy(
            update={"extend_in_place": True, "allocation_latency_us": 0.0}
        )
        yield Removal(("transient",), stretching)
        yield Removal(("rounding",), stretching.model_copy(update={"placement": Compacting()}))
        yield Removal(("overprovisioned", "reserved"), None)


class DoublingAllocator(Growing):
    """Buffers of the capacities c0, c0 * f, c0 * f**2, ..., max_model_len."""

    def __init__(self, options: Doubling, memory: MemorySpec) -> None:
        super().__init__(
            memory,
            options.placement.build(memory),
            in_place=options.extend_in_place,
            allocation_ps=round(options.allocation_latency_us * PS_PER_US),
        )
        self.capacities = [min(options.initial_tokens, memory.max_model_len)]
        while self.capacities[-1] < memory.max_model_len:
            last = self.capacities[-1]
            grown = max(int(last * options.factor), last + 1)
            self.capacities.append(min(grown, memory.max_model_len))

    def _slots_for(self, seq: Sequence, tokens: int) -> int:
        return self.capacities[bisect_left(self.capacities, tokens)]

    def refusal(self, request: Request) -> Refusal | None:
        """Too long, or one of its buffers has no place in an empty pool.

        A growth without room for both old and new buffer is no reason to refuse: the sequence comes
        back with the larger buffer alone.
        """
        too_long = self._too_long(request)
        if too_long:
            return too_long
        final = request.final_tokens
        first = bisect_left(self.capacities, request.prompt_tokens)
        last = bisect_left(self.capacities, final)
        return self._unplaceable(reversed(self.capacities[first : last + 1]))
