"""Copies between device and host memory under SGLang's HiCache (managers/cache_controller.py,
mem_cache/l2_transfer.py, 0.5.23).

A copy starts after all steps submitted so far, and after the copy before it in its direction. The
scheduler notices its end at the beginning of a scheduling pass.
"""

from collections import deque
from typing import Any, NamedTuple

from kvsim.engine.connectors.journal import ConnectorJournal
from kvsim.engine.connectors.lane import Lane
from kvsim.memory.radix.allocator import RadixAllocator
from kvsim.memory.radix.hicache.loads import HostLoads
from kvsim.memory.radix.node import HostLoad, HostWrite


class HostLink(NamedTuple):
    """The link between device and host memory, with a queue for each direction.

    out: to host memory. back: to the device. token_bytes: bytes of a token. layer_bytes: bytes of a
    token in one of the `layers` layers, which a load copies one after the other. tick_ps: compute
    of each layer ends at whole ticks.
    """

    out: Lane
    back: Lane
    token_bytes: int
    layer_bytes: int
    layers: int
    tick_ps: int = 1


class TierCopies:
    """Submits and completes the copies of one scheduler.

    now_ps: the scheduler's time; a pass that waits for copies advances it. gpu_ps: end of the last
    step submitted. waited_ps: how long that step waited for layers. blocked_ps: how long the
    scheduler waited in this pass.

    loads: loads of host hits, queued and in flight. link: its lanes count the copied bytes.
    blocked_total_ps, waited_total_ps: sums of blocked_ps and waited_ps over all passes.
    """

    def __init__(self, allocator: RadixAllocator, link: HostLink) -> None:
        self._backup = allocator.backup
        self.loads = HostLoads(allocator)
        self.link = link
        self.journal: ConnectorJournal | None = None
        self.now_ps = self.gpu_ps = 0
        self._writes: deque[tuple[int, HostWrite]] = deque()
        self._loads: deque[tuple[int, list[HostLoad]]] = deque()
        self._ready: list[int] = []  # when each layer of the next step's load is there
        self.waited_ps = self.blocked_ps = 0
        self.blocked_total_ps = self.waited_total_ps = 0
        self._backup.write_now = self._write_now

    # --- the scheduler's pass ---------------------------------------------------------------------

    def begin(self, now_ps: int) -> None:
        """Begin a pass: submit queued writes, and process copies that have ended by now_ps."""
        self.now_ps = now_ps
        self.blocked_ps = 0
        self._submit_writes()
        for lane in (self.link.out, self.link.back):
            lane.ended(now_ps)
        while self._writes and self._writes[0][0] <= now_ps:
            self._acknowledge(self._writes.popleft()[1])
        while self._loads and self._loads[0][0] <= now_ps:
            for load in self._loads.popleft()[1]:
                self._log("acks", ["l"])
                self.loads.ended(load)

    def _submit_writes(self) -> None:
        write = self._backup.take()
        if write is not None:
            self._writes.append((self._write(write), write))

    def _write(self, write: HostWrite) -> int:
        """Submit a copy to host memory; returns when it ends."""
        num_bytes = write.tokens * self.link.token_bytes
        copy = self.link.out.submit(0, num_bytes, max(self.now_ps, self.gpu_ps))
        self._log("writes", [self.now_ps, copy.start_ps, copy.end_ps, write.tokens])
        return copy.end_ps

    def _write_now(self, write: HostWrite) -> None:
        """Submit a copy to host memory, and let the scheduler wait for its end."""
        end_ps = self._write(write)
        waited_ps = max(0, end_ps - self.now_ps)
        self.blocked_ps += waited_ps
        self.blocked_total_ps += waited_ps
        self.now_ps += waited_ps
        self._acknowledge(write)

    def _acknowledge(self, write: HostWrite) -> None:
        self._log("acks", ["w", write.tokens, write.num])
        self._backup.written(write)

    @property
    def loads_end_ps(self) -> int:
        """When all loads submitted so far have ended."""
        return self._loads[-1][0] if self._loads else 0

    def submit_loads(self, *, for_step: bool = True) -> None:
        """Submit the queued loads as one copy, layer by layer. for_step: each layer of the next
        step waits for its own layer of the copy.
        """
        loads = self.loads.take()
        if not loads:
            return
        tokens = sum(load.tokens for load in loads)
        link, at_ps = self.link, max(self.now_ps, self.gpu_ps)
        num_bytes = tokens * link.layer_bytes
        copies = [
            link.back.submit(0, num_bytes, at_ps, piece=layer > 0) for layer in range(link.layers)
        ]
        self._ready = [copy.end_ps for copy in copies] if for_step else self._ready
        end_ps = copies[-1].end_ps
        self._loads.append((end_ps, loads))
        self._log("loads", [self.now_ps, copies[0].start_ps, end_ps, tokens])

    def compute(self, start_ps: int, compute_ps: int) -> int:
        """Compute the batch for compute_ps from start_ps on; each layer waits until its KV is
        loaded.

        Returns the total wait in ps.
        """
        at_ps, done_ps = start_ps, 0
        layers, tick_ps = self.link.layers, self.link.tick_ps
        for layer, ready_ps in enumerate(self._ready, 1):
            until_ps = compute_ps // tick_ps * layer // layers * tick_ps
            at_ps = max(at_ps, ready_ps) + until_ps - done_ps
            done_ps = until_ps
        self.waited_ps = at_ps - start_ps - compute_ps if self._ready else 0
        self.waited_total_ps += self.waited_ps
        self._ready = []
        return self.waited_ps

    # --- in flight --------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether a copy is queued or in flight."""
        queued = self._backup.num_queued or self.loads.num_queued
        return bool(self._writes or self._loads or queued)

    @property
    def next_ps(self) -> int | None:
        """When the next copy ends, in ps; None: none is in flight."""
        ends = [queue[0][0] for queue in (self._writes, self._loads) if queue]
        return min(ends, default=None)

    @property
    def in_flight(self) -> tuple[int, int]:
        """(number of tree nodes being written, number of loads), including queued ones."""
        nodes, loads = self._backup.num_queued, self.loads.num_queued
        nodes += sum(write.num for _, write in self._writes)
        return nodes, loads + sum(len(batch) for _, batch in self._loads)

    def _log(self, field: str, entry: list[Any]) -> None:
        if self.journal is not None:
            self.journal.add(field, entry)
