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
from kvsim.memory.contiguous.buffer_sizes import BufferSizes
from kvsim.memory.contiguous.buffers import Contiguous
from kvsim.memory.contiguous.growing import BufferMoves
from kvsim.memory.contiguous.places import BufferPlaces
from kvsim.memory.contiguous.shape import BufferShape
from kvsim.memory.options import AllocatorOptions, MemorySpec, Removal, StoreKind
from kvsim.plumbing.units import PS_PER_US
from kvsim.request import Request
from kvsim.sequence import Sequence


class Doubling(AllocatorOptions):
    """A contiguous buffer that grows by a factor when full. initial_tokens: the smallest buffer;
    factor: ratio of the next size to the last, up to max_model_len.

    extend_in_place: first try to extend a buffer in place, which copies nothing. placement: where
    buffers are allocated, a name or a table. allocation_latency_us: time each growth spends in the
    allocator, besides its copy.
    """

    initial_tokens: int = Field(256, ge=1)
    factor: float = Field(2.0, gt=1.0, le=1024.0)
    extend_in_place: bool = False
    placement: PlacementChoice = Field(default="first-fit", validate_default=True)
    allocation_latency_us: float = Field(0.0, ge=0.0, le=1e9)

    @property
    def store(self) -> StoreKind | None:
        return self.placement.store

    def build(self, memory: MemorySpec) -> Contiguous:
        whole = BufferShape.of(memory.layout)
        places = BufferPlaces(self.placement.build(memory), (whole,))
        moves = BufferMoves(
            memory,
            places,
            in_place=self.extend_in_place,
            allocation_ps=round(self.allocation_latency_us * PS_PER_US),
        )
        sizes = DoublingSizes(self.initial_tokens, self.factor, memory.max_model_len, places)
        return Contiguous(memory, sizes, moves)

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


class DoublingSizes(BufferSizes):
    """Size policy: buffers of the capacities c0 = initial_tokens, c0 * factor, c0 * factor**2, ...,
    max_model_len.
    """

    def __init__(
        self, initial_tokens: int, factor: float, max_model_len: int, places: BufferPlaces
    ) -> None:
        super().__init__(max_model_len, places)
        self.capacities = [min(initial_tokens, max_model_len)]
        while self.capacities[-1] < max_model_len:
            last = self.capacities[-1]
            grown = max(int(last * factor), last + 1)
            self.capacities.append(min(grown, max_model_len))

    def slots_for(self, seq: Sequence, tokens: int) -> int:
        return self.capacities[bisect_left(self.capacities, tokens)]

    def refusal(self, request: Request) -> Refusal | None:
        """Refuse a request longer than max_model_len, or with a buffer that does not fit in an
        empty pool.

        A growth without room for both buffers is no reason to refuse. The sequence is then
        preempted, and readmitted with the larger buffer alone.
        """
        too_long = self.too_long(request)
        if too_long:
            return too_long
        final = request.final_tokens
        first = bisect_left(self.capacities, request.prompt_tokens)
        last = bisect_left(self.capacities, final)
        return self.places.unplaceable(reversed(self.capacities[first : last + 1]))
