"""What an engine logs of itself."""

from typing import NamedTuple

from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.memory.allocator import Allocator


class EngineRecord(NamedTuple):
    """What an engine logs when a step's outputs have been processed.

    waiting: as the scheduler last saw the queue: an arrival since then still lies in the input
    queue. kv_cache_usage: the share of the pool that is taken (under asynchronous scheduling by the
    next step as well) of all but what no request can have.
    """

    time_ps: int
    running: int
    waiting: int
    kv_cache_usage: float

    @classmethod
    def of(cls, scheduler: Scheduler, time_ps: int, unseen: int = 0) -> "EngineRecord":
        """The record of this moment. unseen: requests that came after the last schedule."""
        return cls(
            time_ps,
            len(scheduler.running),
            len(scheduler.waiting) - unseen,
            pool_usage(scheduler.allocator),
        )


def free_share(allocator: Allocator) -> float:
    """The share of the pool that nobody holds, of all that requests can have."""
    usage = allocator.usage(None, busy=False)
    whole = allocator.capacity_bytes - usage.metadata
    return (whole - usage.allocated) / whole


def pool_usage(allocator: Allocator) -> float:
    """The share of the pool that somebody holds, of all that requests can have."""
    usage = allocator.usage(None, busy=False)
    return usage.allocated / (allocator.capacity_bytes - usage.metadata)
