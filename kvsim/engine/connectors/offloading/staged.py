"""vLLM's OffloadingConnector over the stages of a pipeline (vLLM 0.33,
kv_connector/v1/offloading/scheduler.py, kv_connector/utils.py `KVOutputAggregator`).

Host memory has one table of chunks. Each stage has its part of every chunk, and copies it over the
link of its own device. A copy has ended when all stages have reported it.
"""

from kvsim.engine.connectors.connector import NOTHING, Report
from kvsim.engine.connectors.journal import ConnectorJournal
from kvsim.engine.connectors.offloading.connector import OffloadingConnector
from kvsim.engine.connectors.offloading.jobs import CopyJob
from kvsim.engine.connectors.offloading.settings import OffloadSettings
from kvsim.engine.connectors.offloading.worker import Worker


class StagedConnector(OffloadingConnector):
    """workers: one of each stage, in their order."""

    def __init__(self, settings: OffloadSettings, workers: tuple[Worker, ...]) -> None:
        super().__init__(settings, workers[0])
        self._workers = workers
        self._reported: dict[int, int] = {}  # by how many stages, of copies that not all have

    def record(self, journal: ConnectorJournal) -> None:
        super().record(journal)
        for worker in self._workers:
            worker.journal = journal

    def _give(self, made: list[CopyJob], flush: set[int]) -> None:
        for worker in self._workers:
            worker.give(made, self._loads, flush)

    def launch_on(self, stage: int, now_ps: int, compute_ps: int) -> int:
        """Launch copies before a step as `launch`, on one stage."""
        return self._workers[stage].launch(now_ps, compute_ps)

    def launched_on(self, stage: int, end_ps: int) -> None:
        """Launch copies after a step as `launched`, on one stage."""
        self._workers[stage].launched(end_ps)

    def poll_stages(self, times_ps: list[int]) -> Report:
        """Poll the stages as `poll`, each at its own time: the copies that all stages have reported
        now.
        """
        seen: dict[int, None] = {}
        for stage, now_ps in enumerate(times_ps):
            for number in self._workers[stage].ended(now_ps):
                seen[number] = None
                self._reported[number] = self._reported.get(number, 0) + 1
                if self.journal is not None:
                    self.journal.add("done", [number, stage])
        ended = [n for n in seen if self._reported[n] == len(self._workers)]
        if not ended:
            return NOTHING
        for number in ended:
            del self._reported[number]
        return self._report(ended)

    def _named_workers(self) -> list[tuple[str, Worker]]:
        return [(f", stage {stage}", worker) for stage, worker in enumerate(self._workers, 1)]
