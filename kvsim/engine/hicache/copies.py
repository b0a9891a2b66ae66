"""Copies between device and host memory, on the clock of an engine with SGLang's HiCache
(managers/cache_controller.py, mem_cache/l2_transfer.py, 0.5.23).

A copy starts when it is submitted, but behind all steps submitted so far and behind the copy before
it in its direction. The scheduler takes note of an end at the beginning of a pass.
"""

from collections import deque
from typing import Any, Protocol

from kvsim.engine.connectors.journal import ConnectorJournal
from kvsim.memory.radix.hicache.allocator import HicacheAllocator
from kvsim.memory.radix.hicache.node import HostLoad, HostWrite


class CopyTimes(Protocol):
    """How long copies take. layers: of the model, which a load copies one after the other. tick_ps:
    layers end at whole ticks of a step.
    """

    layers: int
    tick_ps: int

    def write_ps(self, tokens: int) -> int:
        """Of so many tokens to host memory."""

    def layer_ps(self, tokens: int) -> int:
        """Of one layer of so many tokens to the device."""


class TierCopies:
    """now_ps: the scheduler's time, which a pass that waits for copies moves. gpu_ps: the end of
    the last step submitted. waited_ps: how long that step waited for layers; blocked_ps: how long
    the scheduler waited in this pass.

    written_tokens, loaded_tokens, write_ps, load_ps: copied and used so far; blocked_total_ps,
    waited_total_ps: waited for it.
    """

    def __init__(self, allocator: HicacheAllocator, times: CopyTimes) -> None:
        self._allocator = allocator
        self._times = times
        self.journal: ConnectorJournal | None = None
        self.now_ps = self.gpu_ps = 0
        self._written_ps = self._loaded_ps = 0  # ends of the last copy in each direction
        self._writes: deque[tuple[int, HostWrite]] = deque()
        self._loads: deque[tuple[int, list[HostLoad]]] = deque()
        self._ready: tuple[int, int] | None = None  # of the next step's load: start, and a layer
        self.waited_ps = self.blocked_ps = 0
        self.written_tokens = self.loaded_tokens = self.write_ps = self.load_ps = 0
        self.blocked_total_ps = self.waited_total_ps = 0
        allocator.backup.write_now = self._write_now

    # --- the scheduler's pass ---------------------------------------------------------------------

    def begin(self, now_ps: int) -> None:
        """A pass begins: what was queued is submitted, and ends up to now are noted."""
        self.now_ps = now_ps
        self.blocked_ps = 0
        self._submit_writes()
        while self._writes and self._writes[0][0] <= now_ps:
            self._acknowledge(self._writes.popleft()[1])
        while self._loads and self._loads[0][0] <= now_ps:
            for load in self._loads.popleft()[1]:
                self._log("acks", ["l"])
                self._allocator.loaded(load)

    def _submit_writes(self) -> None:
        write = self._allocator.backup.take()
        if write is not None:
            self._writes.append((self._write(write), write))

    def _write(self, write: HostWrite) -> int:
        """Submit one copy to host memory; returns when it ends."""
        start_ps = max(self.now_ps, self.gpu_ps, self._written_ps)
        duration_ps = self._times.write_ps(write.tokens)
        self._written_ps = start_ps + duration_ps
        self.written_tokens += write.tokens
        self.write_ps += duration_ps
        self._log("writes", [self.now_ps, start_ps, self._written_ps, write.tokens])
        return self._written_ps

    def _write_now(self, write: HostWrite) -> None:
        """The scheduler waits for this copy."""
        end_ps = self._write(write)
        waited_ps = max(0, end_ps - self.now_ps)
        self.blocked_ps += waited_ps
        self.blocked_total_ps += waited_ps
        self.now_ps += waited_ps
        self._acknowledge(write)

    def _acknowledge(self, write: HostWrite) -> None:
        self._log("acks", ["w", write.tokens, write.num])
        self._allocator.backup.written(write)

    def submit_loads(self) -> None:
        """A batch is formed: what it loads is one copy, layer by layer."""
        loads = self._allocator.take_loads()
        if not loads:
            return
        tokens = sum(load.tokens for load in loads)
        start_ps = max(self.now_ps, self.gpu_ps, self._loaded_ps)
        layer_ps = self._times.layer_ps(tokens)
        self._loaded_ps = start_ps + layer_ps * self._times.layers
        self._loads.append((self._loaded_ps, loads))
        self._ready = start_ps, layer_ps
        self.loaded_tokens += tokens
        self.load_ps += self._loaded_ps - start_ps
        self._log("loads", [self.now_ps, start_ps, self._loaded_ps, tokens])

    def compute(self, start_ps: int, compute_ps: int) -> int:
        """The batch computes for compute_ps from start_ps on, layer after layer, each when its
        content is there; returns how long it waits in all.
        """
        self.waited_ps = 0
        if self._ready is not None:
            loading_ps, layer_ps = self._ready
            layers, at_ps, done_ps = self._times.layers, start_ps, 0
            tick_ps = self._times.tick_ps
            for layer in range(1, layers + 1):
                until_ps = compute_ps // tick_ps * layer // layers * tick_ps
                at_ps = max(at_ps, loading_ps + layer * layer_ps) + until_ps - done_ps
                done_ps = until_ps
            self.waited_ps = at_ps - start_ps - compute_ps
            self.waited_total_ps += self.waited_ps
            self._ready = None
        return self.waited_ps

    # --- what is under way ------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether a copy is queued or under way."""
        return bool(self._writes or self._loads or self._allocator.num_queued != (0, 0))

    @property
    def next_ps(self) -> int | None:
        """When the next copy ends; None: none is under way."""
        ends = [queue[0][0] for queue in (self._writes, self._loads) if queue]
        return min(ends, default=None)

    @property
    def in_flight(self) -> tuple[int, int]:
        """Nodes being written, and loads under way, those queued among them."""
        nodes, loads = self._allocator.num_queued
        nodes += sum(write.num for _, write in self._writes)
        return nodes, loads + sum(len(batch) for _, batch in self._loads)

    def _log(self, field: str, entry: list[Any]) -> None:
        if self.journal is not None:
            self.journal.add(field, entry)
