"""The rows of a schedule recorded from two engines of vLLM's with a NixlConnector between them."""

from collections import deque
from typing import Any

from kvsim.engine.connectors.journal import ConnectorJournal
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.connected import ConnectedScheduler
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.memory.paged.allocator import PagedAllocator
from kvsim.validate.schedule.ticks import TICK_PS
from kvsim.validate.schedule.vllm.rows import VllmRows

LISTS = ("lookup", "reads", "received", "failed_reads", "sent", "expired")
KEPT_FOR = ("reads", "received", "sent", "expired")  # iterations without tokens have a row for them


class PairRows(VllmRows):
    """Rows of iterations of one engine with tokens, a preemption, or a read or a free for the other
    engine. defers: the engine counts blocks that a step in flight may write. fails: a failed read
    ends its request.
    """

    def __init__(self, *, by_group: bool, defers: bool, fails: bool) -> None:
        super().__init__(deque(), stall_once=False, by_group=by_group)
        self.journal = ConnectorJournal()
        self._defers, self._fails = defers, fails

    def planned(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        assert isinstance(scheduler, ConnectedScheduler)
        noted = self.journal.take()
        if not plan.empty or plan.preempted or any(noted.get(key) for key in KEPT_FOR):
            before = len(self.rows)
            self._add_row(scheduler, plan, now_ps)
            row = self.rows[before]
            row["t1"] = now_ps // TICK_PS
            row["waiting"] = len(scheduler.queues.waiting)
            row["holding"] = len(scheduler.queues.holding)
            row["remote"] = [seq.id for seq in scheduler.queues.remote]
            row.update({key: noted.get(key, []) for key in LISTS})
            row["reads"] = [_in_ticks(read) for read in row["reads"]]
            row["kept"] = kept_blocks(scheduler)
            if self._defers:
                row["deferred"] = 0
            if "heartbeat" in noted:
                row["heartbeat"] = noted["heartbeat"]
            if not plan.empty:
                row["g0"] = (plan.start_ps + plan.stall_ps) // TICK_PS
                row["g1"] = (plan.start_ps + plan.first_ps) // TICK_PS

    def finished(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        for opened, row in self._open:
            if opened is plan:
                row["t1"] = now_ps // TICK_PS
        super().finished(scheduler, plan, now_ps)

    def complete(self, scheduler: Scheduler, plan: Plan, row: dict[str, Any]) -> None:
        super().complete(scheduler, plan, row)
        assert isinstance(scheduler, ConnectedScheduler)
        if self._fails:
            row["finished"] += row["failed_reads"]
        row["kept_end"] = kept_blocks(scheduler)
        if self._defers:
            row["deferred_end"] = 0


def _in_ticks(read: list[Any]) -> list[Any]:
    """A read as the recording has it: one number of blocks where there is one group."""
    name, blocks, num_bytes, start_ps, end_ps = read
    shown = blocks[0] if len(blocks) == 1 else blocks
    return [name, shown, num_bytes, start_ps // TICK_PS, end_ps // TICK_PS]


def kept_blocks(scheduler: ConnectedScheduler) -> int:
    """Blocks of finished requests that are yet to be read."""
    allocator = scheduler.allocator
    assert isinstance(allocator, PagedAllocator)
    return sum(sum(allocator.held_blocks(seq)) for seq in scheduler.kept)
