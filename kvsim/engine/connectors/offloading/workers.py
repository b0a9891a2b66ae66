"""The workers of the offloading connector: of one device, or of each stage of a pipeline (vLLM
0.33, kv_connector/v1/offloading/scheduler.py, kv_connector/utils.py `KVOutputAggregator`).

Host memory has one table of chunks. Each stage has its part of every chunk, and copies it over the
link of its own device. A copy has ended when all stages have reported it.
"""

from kvsim.engine.connectors.connector import NOTHING, Report
from kvsim.engine.connectors.journal import ConnectorJournal
from kvsim.engine.connectors.offloading.jobs import CopyJob, Jobs
from kvsim.engine.connectors.offloading.worker import Worker


class Workers:
    """The copies of each stage; see `StageCopies`.

    each: the workers, by stage. jobs: the copies that have not been reported.
    """

    def __init__(self, each: tuple[Worker, ...], jobs: Jobs) -> None:
        self.each, self._jobs = each, jobs
        self._reported: dict[int, int] = {}  # by how many stages, of copies that not all have
        self._journal: ConnectorJournal | None = None

    def record(self, journal: ConnectorJournal) -> None:
        """Write into `journal` from now on."""
        self._journal = journal
        for worker in self.each:
            worker.journal = journal

    def give(self, stores: list[CopyJob], loads: list[CopyJob], flush: set[int]) -> None:
        """The copies that a schedule() made, and those that its step must wait for."""
        for worker in self.each:
            worker.give(stores, loads, flush)

    def launch_on(self, stage: int, now_ps: int, compute_ps: int) -> int:
        """See `StageCopies`, as the next two."""
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
        """The copies that all stages have reported now."""
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
        """The workers, each with the suffix of its links' names."""
        if len(self.each) == 1:
            return [("", self.each[0])]
        return [(f", stage {stage}", worker) for stage, worker in enumerate(self.each, 1)]
