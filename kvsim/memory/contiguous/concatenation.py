"""A cache concatenated again in every step: transformers' DynamicCache.

Each layer of each sequence has a tensor exactly as long as its tokens. In a decode step a layer's
tensor is replaced by one that is a slot longer. Layer by layer it is allocated, filled from the old
one, and the old one freed. Nothing is reserved or over-provisioned. The price is a copy of the
whole cache every step, and one layer's old tensor during the copy. Fragmentation comes from tensors
that are always a little too large for the freed holes. A prompt's tensors are allocated once, for
the whole prompt.
"""

from pydantic import Field

from kvsim.layout import KVGroup, KVLayout
from kvsim.memory.allocator import Refusal
from kvsim.memory.arena.choice import PlacementChoice
from kvsim.memory.contiguous.buffer_sizes import BufferSizes
from kvsim.memory.contiguous.buffers import Contiguous
from kvsim.memory.contiguous.growing import BufferMoves
from kvsim.memory.contiguous.places import BufferPlaces
from kvsim.memory.contiguous.shape import BufferShape
from kvsim.memory.options import AllocatorOptions, MemorySpec
from kvsim.plumbing.units import PS_PER_US
from kvsim.request import Request
from kvsim.sequence import Sequence


class Concatenation(AllocatorOptions):
    """transformers' DynamicCache: a tensor for each layer of each sequence, reallocated every step.
    placement: where tensors are allocated, a name or a table; its units are slots of one layer.
    allocation_latency_us: time of each allocation, one for each layer and step.
    """

    placement: PlacementChoice = Field(default="torch-caching", validate_default=True)
    allocation_latency_us: float = Field(0.0, ge=0.0, le=1e9)

    def build(self, memory: MemorySpec) -> Contiguous:
        shapes = BufferShape.by_layer(memory.layout)
        largest = max(shapes, key=lambda shape: shape.bytes(memory.max_model_len))
        layer = KVGroup("full", 1, largest.token_bytes, state_bytes=largest.state_bytes)
        arena = self.placement.build(memory._replace(layout=KVLayout((layer,))))
        places = BufferPlaces(arena, shapes)
        moves = BufferMoves(
            memory, places, allocation_ps=round(self.allocation_latency_us * PS_PER_US)
        )
        return Contiguous(memory, ExactSizes(memory.max_model_len, places), moves)


class ExactSizes(BufferSizes):
    """Size policy: one tensor for each layer, exactly as long as the sequence's tokens."""

    def __init__(self, max_model_len: int, places: BufferPlaces) -> None:
        super().__init__(max_model_len, places)
        self._known_to_fit = 0

    def slots_for(self, seq: Sequence, tokens: int) -> int:
        return tokens

    def refusal(self, request: Request) -> Refusal | None:
        """Refuse a request longer than max_model_len, or with final tensors that do not fit
        together in an empty pool.

        A step without room for one more tensor is no reason to refuse: the sequence is preempted
        and readmitted with tensors for all its tokens.
        """
        too_long = self.too_long(request)
        final = request.final_tokens
        if too_long or final <= self._known_to_fit:
            return too_long
        unplaceable = self.places.unplaceable([final])
        if unplaceable is None:
            self._known_to_fit = final
        return unplaceable
