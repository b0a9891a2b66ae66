"""One contiguous buffer per sequence, as long as it may ever need, from its admission on.

The estimates are those of the Orca baselines (Kwon et al., SOSP 2023, artifact): a buffer of
min(prompt + estimate, max_model_len) slots. The estimate of the output is the output itself
("exact", an oracle) or the next power of two ("pow2"). Or it is the maximum the client declared
("declared-max") or the model's maximum ("model-max").
"""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from kvsim.memory.allocator import Refusal
from kvsim.memory.arena.choice import PlacementChoice
from kvsim.memory.arena.compacting import Compacting
from kvsim.memory.contiguous.buffer_sizes import BufferSizes
from kvsim.memory.contiguous.buffers import Contiguous
from kvsim.memory.contiguous.places import BufferPlaces
from kvsim.memory.contiguous.shape import BufferShape
from kvsim.memory.options import AllocatorOptions, MemorySpec, Removal, StoreKind
from kvsim.request import Request
from kvsim.sequence import Sequence


class MaxBuffer(AllocatorOptions):
    """One buffer for each sequence, sized on admission. reserve: the estimate of the output length;
    "declared-max" falls back to the model's maximum for a request that declared none. placement:
    where buffers are allocated, a name or a table.
    """

    reserve: Literal["model-max", "declared-max", "pow2", "exact"] = "model-max"
    placement: PlacementChoice = Field(default="first-fit", validate_default=True)

    @property
    def store(self) -> StoreKind | None:
        return self.placement.store

    def build(self, memory: MemorySpec) -> Contiguous:
        whole = BufferShape.of(memory.layout)
        places = BufferPlaces(self.placement.build(memory), (whole,))
        return Contiguous(memory, ReservedSizes(self.reserve, memory.max_model_len, places))

    def removals(self) -> Iterator[Removal]:
        rounded = Compacting(rounded_as=self.placement)
        yield Removal(("external",), self.model_copy(update={"placement": rounded}))
        compact = self.model_copy(update={"placement": Compacting()})
        yield Removal(("rounding",), compact)
        yield Removal(("overprovisioned",), compact.model_copy(update={"reserve": "exact"}))
        yield Removal(("reserved",), None)


class ReservedSizes(BufferSizes):
    """Size policy: buffers for prompt and estimated output, by the estimate `reserve`; buffers
    never grow.
    """

    def __init__(self, reserve: str, max_model_len: int, places: BufferPlaces) -> None:
        super().__init__(max_model_len, places)
        self._reserve = reserve

    def _slots_of(self, request: Request) -> int:
        estimate = self.max_model_len
        if self._reserve == "exact":
            estimate = request.output_tokens
        elif self._reserve == "pow2":
            estimate = 1 << max(0, request.output_tokens - 1).bit_length()
        elif self._reserve == "declared-max" and request.max_tokens is not None:
            estimate = request.max_tokens
        return min(request.prompt_tokens + estimate, self.max_model_len)

    def slots_for(self, seq: Sequence, tokens: int) -> int:
        return self._slots_of(seq.request)

    def refusal(self, request: Request) -> Refusal | None:
        slots = self._slots_of(request)
        declared = request.max_tokens if self._reserve == "declared-max" else None
        if declared is not None and declared < request.output_tokens:
            return Refusal(
                "its output is longer than the maximum it declared",
                request.output_tokens,
                declared,
                "tokens",
                "clip the output, raise max_tokens or reserve by another estimate",
            )
        return self.too_long(request) or self.places.unplaceable([slots])
