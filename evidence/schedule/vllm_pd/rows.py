"""Rows of a schedule recorded from two vLLM engines with a NixlConnector between them."""

from collections import deque
from collections.abc import Callable
from typing import Any

from evidence.schedule.offload import connected_rows
from evidence.schedule.offload.host_rows import HostRows
from evidence.schedule.ticks import TICK_PS
from evidence.schedule.vllm.rows import VllmRows
from kvsim.engine.connectors.journal import ConnectorJournal
from kvsim.engine.connectors.offloading.connector import OffloadingConnector
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.continuous import ContinuousScheduler
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.memory.paged.allocator import PagedAllocator
from kvsim.plumbing.units import ceil_div
from kvsim.sequence import Sequence

LISTS = ("lookup", "reads", "received", "failed_reads", "sent", "expired")
KEPT_FOR = ("reads", "received", "sent", "expired")  # iterations without tokens have a row for them


class PairRows(VllmRows):
    """Rows of one engine's iterations that have tokens, a preemption, or a read or free for the
    other engine.

    defers: whether the engine defers frees of blocks that a step in flight may write. fails:
    whether a failed read ends its request. lists: fields that a connector writes. kept_for: fields
    for which an iteration without tokens also has a row. ranked: the engine is one of several
    data-parallel ranks, which may launch a step after it is scheduled. stalled: called when
    requests wait and only an arrival can change that.
    """

    stalled: Callable[[], None] = staticmethod(lambda: None)
    lists: tuple[str, ...] = LISTS
    kept_for: tuple[str, ...] = KEPT_FOR

    def __init__(
        self, *, by_group: bool, defers: bool, fails: bool, encodes: bool, ranked: bool = False
    ) -> None:
        super().__init__(deque(), stall_once=False, by_group=by_group, encodes=encodes)
        self.journal = ConnectorJournal()
        self._defers, self._fails, self._ranked = defers, fails, ranked

    def beyond(self, noted: dict[str, list[Any]]) -> dict[str, Any]:
        """Further fields of a row, from the connectors' events."""
        return {}

    def counts(self, scheduler: ContinuousScheduler) -> dict[str, Any]:
        """Counts that the first and the last row contain."""
        return {"deferred": scheduler.connection.unfreed_blocks} if self._defers else {}

    def idle(self, scheduler: Scheduler, now_ps: int, *, stalled: bool) -> bool:
        if stalled:
            self.stalled()
        return False

    def planned(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        assert isinstance(scheduler, ContinuousScheduler)
        noted = self.journal.take()
        beyond = self.beyond(noted)
        late = self._ranked and "wait" not in noted
        kept = any(noted.get(key) for key in self.kept_for)
        if late or kept or not plan.empty or plan.preempted:
            before = len(self.rows)
            self._add_row(scheduler, plan, now_ps)
            row = self.rows[before]
            row["t1"] = now_ps // TICK_PS
            row["waiting"] = len(scheduler.connection.queues.waiting)
            row["holding"] = len(scheduler.connection.queues.holding)
            row["remote"] = [seq.id for seq in scheduler.connection.queues.remote]
            row.update({key: noted.get(key, []) for key in self.lists})
            row["reads"] = [_in_ticks(read) for read in row["reads"]]
            row["kept"] = kept_blocks(scheduler)
            row.update(self.counts(scheduler))
            row.update(beyond)
            if "heartbeat" in noted:
                row["heartbeat"] = noted["heartbeat"]
            if not plan.empty:
                row["g0"] = (plan.start_ps + plan.stall_ps) // TICK_PS
                row["g1"] = (plan.start_ps + plan.first_ps) // TICK_PS

    def polled(self, scheduler: Scheduler, plan: Plan) -> None:
        late = {key: self.journal.take_of(key) for key in self.lists}
        self.journal.take_of("wait")
        late["reads"] = [_in_ticks(read) for read in late["reads"]]
        for row in (row for opened, row in self._open if opened is plan):
            row.update({key: row[key] + found for key, found in late.items()})

    def close(self) -> None:
        for row in [row for row in self.rows if not self._is_kept(row)]:
            self.drop(row)

    def _is_kept(self, row: dict[str, Any]) -> bool:
        return bool(row["sched"] or row["preempted"] or any(row[key] for key in self.kept_for))

    def finished(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        for opened, row in self._open:
            if opened is plan:
                row["t1"] = now_ps // TICK_PS
        super().finished(scheduler, plan, now_ps)

    def complete(self, scheduler: Scheduler, plan: Plan, row: dict[str, Any]) -> None:
        super().complete(scheduler, plan, row)
        assert isinstance(scheduler, ContinuousScheduler)
        if self._fails:
            row["finished"] += row["failed_reads"]
        row["kept_end"] = kept_blocks(scheduler)
        row.update((f"{key}_end", value) for key, value in self.counts(scheduler).items())


class TieredPairRows(PairRows):
    """Rows of a prefill engine with host memory.

    `lookup` lists the answers of both connectors, in the order of the calls.
    """

    lists = tuple(dict.fromkeys((*LISTS, *connected_rows.LISTS)))
    kept_for = (*KEPT_FOR, *connected_rows.KEPT_FOR)
    _host: HostRows

    def watch(self, connector: OffloadingConnector) -> None:
        """Start observing the host-memory connector once it is built."""
        self._host = HostRows(connector, self.journal, by_group=self._by_group)

    def beyond(self, noted: dict[str, list[Any]]) -> dict[str, Any]:
        self._host.name(noted)
        return {"wait": noted["wait"][0] // TICK_PS}

    def counts(self, scheduler: ContinuousScheduler) -> dict[str, Any]:
        return super().counts(scheduler) | self._host.counts()


def _in_ticks(read: list[Any]) -> list[Any]:
    """A read in the form of recordings: a single number of blocks if there is one group."""
    name, blocks, num_bytes, start_ps, end_ps = read
    shown = blocks[0] if len(blocks) == 1 else blocks
    return [name, shown, num_bytes, start_ps // TICK_PS, end_ps // TICK_PS]


def kept_blocks(scheduler: ContinuousScheduler) -> int:
    """Number of blocks of finished requests that are held for transfer."""
    return sum(_handed_out(scheduler, seq) for seq in scheduler.connection.kept)


def _handed_out(scheduler: ContinuousScheduler, seq: Sequence) -> int:
    """Number of blocks of a finished request that are held for transfer: blocks with computed
    tokens, and one recurrent state of each group.
    """
    allocator = scheduler.allocator
    assert isinstance(allocator, PagedAllocator)
    held, skipped = allocator.held_blocks(seq), scheduler.connection.blocks.tables_of(seq)[1]
    return sum(
        min(1, num)
        if group.state_bytes
        else max(0, min(num, ceil_div(seq.num_computed, group.block_size) - missing))
        for group, num, missing in zip(allocator.groups, held, skipped, strict=True)
    )
