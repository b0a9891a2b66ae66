"""LoRA adapters in a step (vLLM 0.33: v1/core/sched/scheduler.py, lora/worker_manager.py).

At most max_loras adapters run at once. A waiting sequence that needs a further one is skipped, and
the next ones are tried. A running sequence keeps its adapter until it is done or preempted. The
device holds max_loras adapters and host memory max_cpu_loras, each the most recently used ones.
"""

from collections.abc import Container

from kvsim.engine.limits.limit import ChunkLimits
from kvsim.engine.plan import ScheduledChunk
from kvsim.memory.allocator import Refusal
from kvsim.request import Request
from kvsim.sequence import Sequence


class AdapterSlots(ChunkLimits):
    """Limits the LoRA adapters of a step.

    max_loras: adapters that may run at once. max_cpu_loras: adapters in host memory. load_ps: time
    of a copy to the device. num_activated: copies of an adapter to the device so far. num_read:
    those of them that host memory did not have either. delayed: ids of sequences that were skipped.
    """

    bind = True

    def __init__(self, max_loras: int, max_cpu_loras: int, load_ps: int = 0) -> None:
        self._load_ps = load_ps
        self._loading = 0  # adapters that the next chunk waits for
        self._max_loras = max_loras
        self._max_cpu_loras = max_cpu_loras
        self._running: dict[int, int] = {}  # sequences of each adapter
        self._on_device: dict[int, None] = {}  # least recently started first
        self._on_host: dict[int, None] = {}
        self.num_activated = self.num_read = 0
        self.delayed: set[str] = set()

    def refusal(self, request: Request) -> Refusal | None:
        if request.adapter is None or self._max_loras:
            return None
        return Refusal(
            "it asks for a LoRA adapter, and the engine serves none",
            1,
            0,
            "adapters (max_loras)",
            "set scheduler.max_loras",
        )

    def may_start(self, seq: Sequence) -> bool:
        adapter = seq.request.adapter
        if adapter is None or adapter in self._running or len(self._running) < self._max_loras:
            return True
        self.delayed.add(seq.id)
        return False

    def started(self, seq: Sequence) -> None:
        adapter = seq.request.adapter
        if adapter is None:
            return
        self._running[adapter] = self._running.get(adapter, 0) + 1
        self._loading = int(not _used(self._on_device, adapter, self._max_loras, self._running))
        self.num_activated += self._loading
        self.num_read += not _used(self._on_host, adapter, self._max_cpu_loras, self._on_device)

    def scheduled(self, chunk: ScheduledChunk) -> int:
        loading, self._loading = self._loading, 0
        return loading * self._load_ps

    def released(self, seq: Sequence) -> None:
        adapter = seq.request.adapter
        if adapter is None:
            return
        self._running[adapter] -= 1
        if not self._running[adapter]:
            del self._running[adapter]


def _used(kept: dict[int, None], adapter: int, most: int, busy: Container[int]) -> bool:
    """Mark `adapter` as most recently used in `kept`, an LRU cache of at most `most` adapters;
    returns whether it was there.

    Evicts the least recently used adapter that is not in `busy`, if `kept` is full.
    """
    found = adapter in kept
    if found:
        del kept[adapter]
    elif len(kept) >= most:
        del kept[next(each for each in kept if each not in busy)]
    kept[adapter] = None
    return found
