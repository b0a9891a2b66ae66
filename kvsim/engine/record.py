"""The statistics that an engine logs after a step."""

from typing import NamedTuple

from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.memory.allocator import Allocator


class EngineRecord(NamedTuple):
    """The statistics of an engine after the outputs of a step were processed.

    waiting: length of the queue at the last schedule; later arrivals are still in the input queue.
    kv_cache_usage: allocated share of the usable pool, including the next step's under asynchronous
    scheduling.
    """

    time_ps: int
    running: int
    waiting: int
    kv_cache_usage: float

    @classmethod
    def of(cls, scheduler: Scheduler, time_ps: int, unseen: int = 0) -> "EngineRecord":
        """The record at time_ps. unseen: requests that arrived after the last schedule."""
        return cls(
            time_ps,
            len(scheduler.running),
            len(scheduler.waiting) - unseen,
            pool_usage(scheduler.allocator),
        )


def free_share(allocator: Allocator) -> float:
    """Share of the usable pool, 0 to 1, that no sequence holds."""
    usage = allocator.usage(None, busy=False)
    whole = allocator.capacity_bytes - usage.metadata
    return (whole - usage.allocated) / whole


def pool_usage(allocator: Allocator) -> float:
    """Share of the usable pool, 0 to 1, that sequences hold."""
    usage = allocator.usage(None, busy=False)
    return usage.allocated / (allocator.capacity_bytes - usage.metadata)
