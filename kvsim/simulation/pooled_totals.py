"""Sum the counters of several replicas, for the summary of one side of a P/D deployment."""

from dataclasses import dataclass
from typing import ClassVar

from kvsim.engine.connectors.totals import RunTotals
from kvsim.engine.limits.limit import NO_LIMITS, ChunkLimits
from kvsim.engine.replica import Replica
from kvsim.memory.allocator import CacheTotals
from kvsim.results.merged import merged
from kvsim.results.recorder import Recorder


@dataclass
class PooledAllocator:
    """Sums of the counters of replicas' allocators."""

    token_bytes: int
    saved_bytes: int | None
    pads_blocks: bool
    tells_cached: bool
    copied_bytes: int
    totals: CacheTotals

    def cache_totals(self) -> CacheTotals:
        """Sums of the replicas' prefix cache counters."""
        return self.totals


@dataclass
class PooledScheduler:
    """Sums of the counters of replicas' schedulers."""

    allocator: PooledAllocator
    num_preemptions: int
    recomputed_tokens: int
    swapped_bytes: int
    engine_faults: int
    limits: ClassVar[ChunkLimits] = NO_LIMITS  # those of images and adapters are refused apart


@dataclass
class Pooled:
    """The replicas of one side, in the form of a single replica. tiers: tiers of all their
    devices.
    """

    scheduler: PooledScheduler
    recorder: Recorder
    tiers: RunTotals | None

    @classmethod
    def of(cls, replicas: list[Replica]) -> "Pooled":
        """Pool the given replicas, which have served their requests."""
        schedulers = [each.scheduler for each in replicas]
        allocators = [scheduler.allocator for scheduler in schedulers]
        first = allocators[0]
        totals = CacheTotals(
            *map(sum, zip(*(each.cache_totals() for each in allocators), strict=True))
        )
        allocator = PooledAllocator(
            first.token_bytes,
            first.saved_bytes,
            first.pads_blocks,
            first.tells_cached,
            sum(each.copied_bytes for each in allocators),
            totals,
        )
        return cls(
            PooledScheduler(
                allocator,
                sum(each.num_preemptions for each in schedulers),
                sum(each.recomputed_tokens for each in schedulers),
                sum(each.swapped_bytes for each in schedulers),
                sum(each.engine_faults for each in schedulers),
            ),
            merged([each.recorder for each in replicas]),
            RunTotals.together([each.tiers for each in replicas]),
        )
