"""Copies of a simulated connector as moves of the backend: blocks to slots of host memory."""

from kvsim.backend.step import TierCopy
from kvsim.engine.connectors.offloading.connector import OffloadingConnector
from kvsim.engine.connectors.offloading.jobs import CopyJob
from kvsim.engine.schedulers.continuous import ContinuousScheduler
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.plumbing.errors import InputError


class ReplayedCopies:
    """Observer that collects each copy of a scheduler's KV connector, in order of submission.

    num_slots: slots of one block each that host memory needs; 0 without a connector. InputError for
    a connector other than vLLM's over host memory alone, and for several groups of layers.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._copies: list[TierCopy] = []
        self._chunk_blocks = 1
        self.num_slots = 0
        if not isinstance(scheduler, ContinuousScheduler) or not scheduler.connection.connects:
            return
        connector = scheduler.connection.connector
        if (
            type(connector) is not OffloadingConnector
            or connector.stage_copies is not None
            or len(connector.settings.groups) > 1
        ):
            raise InputError(
                "the backend copies blocks of one group of layers to host memory alone",
                where="tier",
                remedy='one tier of kind = "vllm-offloading"',
            )
        self._chunk_blocks = connector.settings.groups[0].chunk_blocks
        self.num_slots = connector.settings.slots * self._chunk_blocks
        connector.workers.each[0].submitted = self._add

    def take(self) -> tuple[TierCopy, ...]:
        """The copies submitted since the last call."""
        copies, self._copies = self._copies, []
        return tuple(copies)

    def _add(self, job: CopyJob) -> None:
        each = self._chunk_blocks
        slots = [chunk.slot * each + at for chunk in job.chunks for at in range(each)]
        slots = slots[job.skipped : job.skipped + len(job.blocks)]
        self._copies.append(TierCopy(tuple(job.blocks), tuple(slots), job.store))
