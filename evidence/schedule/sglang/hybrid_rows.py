"""Rows of a schedule recorded from SGLang with two pools; the second one is counted in slots."""

from collections import deque
from typing import Any

from evidence.schedule.sglang.rows import SglangRows
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.memory.radix.allocator import RadixAllocator
from kvsim.memory.radix.holds import slots_of
from kvsim.request import Request
from kvsim.sequence import Sequence


class HybridRows(SglangRows):
    """Rows with further columns for the second pool."""

    def __init__(self, by_step: deque[tuple[int, list[Request]]]) -> None:
        super().__init__(by_step)
        self._evicted_units = 0

    def planned(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        super().planned(scheduler, plan, now_ps)
        if plan.empty:
            return
        part = _hybrid(scheduler).second.part
        self.rows[-1]["evicted2"] = part.evicted - self._evicted_units
        self._evicted_units = part.evicted

    def admitted(self, seq: Sequence) -> list[Any]:
        return [slots_of(seq).agreed]

    def scheduled(self, scheduler: Scheduler, seq: Sequence) -> list[Any]:
        return _hybrid(scheduler).second.progress(seq)

    def memory(self, scheduler: Scheduler) -> dict[str, int]:
        part = _hybrid(scheduler).second.part
        return {
            **super().memory(scheduler),
            "used2": part.pool - part.available,
            "free2": part.available,
            "cached_free2": part.evictable,
            "locked2": part.locked,
        }


def _hybrid(scheduler: Scheduler) -> RadixAllocator:
    """The allocator of a recorded engine with two pools."""
    allocator = scheduler.allocator
    assert isinstance(allocator, RadixAllocator)
    return allocator
