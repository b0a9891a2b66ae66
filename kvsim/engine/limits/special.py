"""The limits for multimodal and LoRA requests, combined."""

from collections.abc import Sequence as Row

from kvsim.engine.limits.adapter_slots import AdapterSlots
from kvsim.engine.limits.encoder_cache import EncoderCache
from kvsim.engine.limits.limit import AdapterCounts, ChunkLimits, EncoderCounts
from kvsim.engine.plan import Plan, ScheduledChunk
from kvsim.memory.allocator import Refusal
from kvsim.request import Request
from kvsim.sequence import Sequence


class SpecialLimits(ChunkLimits):
    """Applies the encoder cache's and the adapters' limits together."""

    bind = True

    def __init__(self, encoder_cache: EncoderCache, adapter_slots: AdapterSlots) -> None:
        self.encoder_cache = encoder_cache
        self.adapter_slots = adapter_slots
        self.all: tuple[ChunkLimits, ...] = adapter_slots, encoder_cache

    def refusal(self, request: Request) -> Refusal | None:
        for limit in self.all:
            refusal = limit.refusal(request)
            if refusal is not None:
                return refusal
        return None

    def begin(self) -> None:
        for limit in self.all:
            limit.begin()

    def may_start(self, seq: Sequence) -> bool:
        return all(limit.may_start(seq) for limit in self.all)

    def allowed(self, seq: Sequence, start_tokens: int, new_tokens: int) -> int:
        for limit in self.all:
            new_tokens = limit.allowed(seq, start_tokens, new_tokens)
        return new_tokens

    def started(self, seq: Sequence) -> None:
        for limit in self.all:
            limit.started(seq)

    def scheduled(self, chunk: ScheduledChunk) -> int:
        return sum(limit.scheduled(chunk) for limit in self.all)

    def declined(self, seq: Sequence) -> None:
        for limit in self.all:
            limit.declined(seq)

    def released(self, seq: Sequence) -> None:
        for limit in self.all:
            limit.released(seq)

    def returned(self, plan: Plan, leaving: Row[Sequence]) -> None:
        for limit in self.all:
            limit.returned(plan, leaving)

    def stay(self) -> bool:
        return all(limit.stay() for limit in self.all)

    def encoder_counts(self) -> EncoderCounts | None:
        cache = self.encoder_cache
        if not (cache.num_encoded or cache.num_found):
            return None
        return EncoderCounts(cache.num_encoded, cache.encoded_tokens, cache.num_found)

    def adapter_counts(self) -> AdapterCounts | None:
        slots = self.adapter_slots
        if not slots.num_activated:
            return None
        return AdapterCounts(slots.num_activated, slots.num_read, frozenset(slots.delayed))
