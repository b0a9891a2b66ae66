"""The workers of the offloading connector, one for each pipeline stage. Each has three queues of
copies, concurrent with the compute stream.

vLLM 0.33, v1/kv_offload/cpu/gpu_worker.py and v1/worker/gpu/kv_connector.py. Stores are submitted
one step after they were made, unless a step must wait for them. Loads are submitted after the
launch of the step, or before it where the step waits for one of them.

Host memory has one table of chunks. Each stage copies its part of every chunk over its device's
link. A copy has ended when all stages have reported it (kv_connector/v1/offloading/scheduler.py,
kv_connector/utils.py `KVOutputAggregator`).
"""

from collections import deque
from collections.abc import Callable

from kvsim.engine.connectors.connector import NOTHING, Report
from kvsim.engine.connectors.journal import ConnectorJournal
from kvsim.engine.connectors.lane import Lane
from kvsim.engine.connectors.offloading.jobs import CopyJob, Jobs


class Worker:
    """Submits the copies of one rank and reports which have ended.

    store: queue of stores. load: queue of loads that sequences wait for. expedited: queue of loads
    that the step waits for. submitted: called with each copy, in order. stage: index in the
    pipeline; None: one stage only. group_bytes: bytes copied on this stage for a block of each
    layer group.
    """

    def __init__(
        self,
        store: Lane,
        load: Lane,
        expedited: Lane,
        stage: int | None = None,
        group_bytes: tuple[int, ...] = (),
    ) -> None:
        self.store, self.load, self.expedited = store, load, expedited
        self._stage, self._group_bytes = stage, group_bytes
        self._given: deque[tuple[list[CopyJob], list[CopyJob], set[int]]] = deque()
        self._deferred: list[CopyJob] = []
        self._loads: list[CopyJob] = []
        self.journal: ConnectorJournal | None = None
        self.tick_ps = 1
        self.submitted: Callable[[CopyJob], None] | None = None

    def give(self, stores: list[CopyJob], loads: list[CopyJob], flush: set[int]) -> None:
        """Queue the stores and loads of a schedule() until its step is launched. flush: numbers of
        the stores that the step waits for.
        """
        self._given.append((stores, loads, flush))

    def launch(self, now_ps: int, compute_ps: int) -> int:
        """Submit the copies that precede the step; returns when the step may be launched."""
        begin_ps = max(now_ps, compute_ps)
        stores, self._loads, flush = self._given.popleft()
        for job in self._deferred:
            self._submit(self.store, "store", job, begin_ps)
        self._deferred = []
        for job in stores:
            if job.number in flush:
                self._submit(self.store, "store", job, begin_ps)
            else:
                self._deferred.append(job)
        ready_ps = max((self.store.end_ps(number) for number in flush), default=0)
        ready_ps = max(now_ps, ready_ps)
        if any(not job.waits for job in self._loads):
            ready_ps = self._load(max(ready_ps, compute_ps), ready_ps)
        return ready_ps

    def launched(self, end_ps: int) -> None:
        """Submit the loads that the step does not wait for; the step computes until end_ps."""
        self._load(end_ps, 0)

    def _load(self, at_ps: int, ready_ps: int) -> int:
        """Submit all loads at at_ps; returns when those that the step waits for have ended, or
        ready_ps if later.
        """
        for job in self._loads:
            if job.waits:
                self._submit(self.load, "load", job, at_ps)
            else:
                self._submit(self.expedited, "expedited", job, at_ps)
                ready_ps = max(ready_ps, self.expedited.end_ps(job.number))
        self._loads = []
        return ready_ps

    def _submit(self, lane: Lane, name: str, job: CopyJob, at_ps: int) -> None:
        copy = lane.submit(job.number, self._bytes_of(job), at_ps)
        if self.submitted is not None:
            self.submitted(job)
        if self.journal is not None:
            tick_ps = self.tick_ps
            entry = [job.number, name, copy.start_ps // tick_ps, copy.end_ps // tick_ps]
            self.journal.add("xfer", entry if self._stage is None else [*entry, self._stage])

    def _bytes_of(self, job: CopyJob) -> int:
        if self._stage is None:
            return job.num_bytes
        return sum(num * each for num, each in zip(job.counts, self._group_bytes, strict=True))

    def ended(self, now_ps: int) -> list[int]:
        """Numbers of the copies that have ended and were not returned before: stores first."""
        return [*self.store.ended(now_ps), *self.load.ended(now_ps), *self.expedited.ended(now_ps)]


class Workers:
    """The copies of all stages; see `StageCopies`.

    each: the worker of each stage. jobs: the copies that have not been reported.
    """

    def __init__(self, each: tuple[Worker, ...], jobs: Jobs) -> None:
        self.each, self._jobs = each, jobs
        self._reported: dict[int, int] = {}  # by how many stages, of copies that not all have
        self._journal: ConnectorJournal | None = None

    def record(self, journal: ConnectorJournal) -> None:
        """Write events into `journal` from now on."""
        self._journal = journal
        for worker in self.each:
            worker.journal = journal

    def give(self, stores: list[CopyJob], loads: list[CopyJob], flush: set[int]) -> None:
        """Queue the stores and loads of a schedule() on each stage until its step is launched.
        flush: numbers of the stores that the step waits for.
        """
        for worker in self.each:
            worker.give(stores, loads, flush)

    def launch_on(self, stage: int, now_ps: int, compute_ps: int) -> int:
        """Submit the copies of one stage that precede a step; see `StageCopies.launch_on`."""
        return self.each[stage].launch(now_ps, compute_ps)

    def launched_on(self, stage: int, end_ps: int) -> None:
        self.each[stage].launched(end_ps)

    def poll_stages(self, times_ps: list[int]) -> Report:
        ended = self._ended(times_ps) if len(self.each) > 1 else self.each[0].ended(times_ps[0])
        if not ended:
            return NOTHING
        if self._journal is not None and len(self.each) == 1:
            for number in ended:
                self._journal.add("done", number)
        jobs = [self._jobs.get(number) for number in ended]
        loaded = tuple(job.seq for job in jobs if not job.store and job.waits)
        return Report(loaded=loaded, jobs=tuple(ended))

    def _ended(self, times_ps: list[int]) -> list[int]:
        """Numbers of the copies that the last stage has reported now, so that all stages have."""
        seen: dict[int, None] = {}
        for stage, now_ps in enumerate(times_ps):
            for number in self.each[stage].ended(now_ps):
                seen[number] = None
                self._reported[number] = self._reported.get(number, 0) + 1
                if self._journal is not None:
                    self._journal.add("done", [number, stage])
        ended = [n for n in seen if self._reported[n] == len(self.each)]
        for number in ended:
            del self._reported[number]
        return ended

    def named(self) -> list[tuple[str, Worker]]:
        """(suffix of its links' names in reports, worker) of each stage."""
        if len(self.each) == 1:
            return [("", self.each[0])]
        return [(f", stage {stage}", worker) for stage, worker in enumerate(self.each, 1)]
