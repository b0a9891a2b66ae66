"""What lies behind a device under SGLang's scheduler: host memory, and perhaps a storage."""

from typing import NamedTuple

from kvsim.engine.hicache.copies import TierCopies
from kvsim.engine.hicache.scheduler import HicacheScheduler
from kvsim.engine.hicache.storage import Storage, StorageSettings, TierTimes
from kvsim.memory.radix.hicache.settings import Hicache


class Hierarchy(NamedTuple):
    """host: the host pool. times: of copies. storage: behind the host pool; None: there is none."""

    host: Hicache
    times: TierTimes
    storage: StorageSettings | None = None

    def connect(self, scheduler: HicacheScheduler) -> None:
        """Give a scheduler that has not run its copies and its storage."""
        copies = scheduler.copies = TierCopies(scheduler.pages, self.times)
        if self.storage is not None:
            scheduler.storage = Storage(scheduler.pages, copies, self.times, self.storage)
