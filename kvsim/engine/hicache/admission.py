"""Admission where a prefix may lie in host memory: it needs room on the device and no computing."""

from kvsim.engine.hicache.storage import Storage
from kvsim.engine.schedulers.sglang.admission import PrefillAdmission
from kvsim.engine.schedulers.sglang.budget import Stop
from kvsim.memory.radix.allocator import RadixAllocator
from kvsim.memory.radix.hicache.loads import HostLoads
from kvsim.sequence import Sequence


class HicacheAdmission(PrefillAdmission):
    """The pass of `PrefillAdmission`; what a request hits in host memory is loaded as it goes in.

    loads: to the device. storage: L3, after host memory; None: there is none.
    """

    loads: HostLoads
    storage: Storage | None = None

    def _passes_over(self, seq: Sequence) -> bool:
        storage, allocator = self.storage, self._room
        if storage is None:
            return False
        if storage.passes_over(seq):
            return True
        assert isinstance(allocator, RadixAllocator)
        tokens = allocator.pin(seq) + allocator.slots(seq).host_hit
        allocator.unpin(seq)
        return storage.lost_match(seq, tokens)

    def _weigh(self, seq: Sequence, cached: int, *, first: bool) -> tuple[int, Stop | None]:
        allocator, budget = self._room, self._budget
        assert isinstance(allocator, RadixAllocator)
        host_hit = allocator.slots(seq).host_hit
        if host_hit:
            new_tokens = seq.num_tokens - cached
            most = budget.most_of_chunk(new_tokens, self._rest(seq))
            if most is None:
                return 0, Stop.MEMORY
            new_tokens -= host_hit
            if not budget.chunked and not first and budget.paged(new_tokens) >= budget.input:
                return 0, Stop.OTHER
            now = budget.first_chunk(cached + host_hit, new_tokens, most)
            if now <= 0:  # refused before anything is loaded
                return 0, Stop.OTHER
            if self.loads.load_back(seq):
                return self._charge(seq, now, new_tokens)
        return super()._weigh(seq, cached, first=first)
