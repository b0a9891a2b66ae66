"""Runs a recorded case step by step and writes the rows a recording of the real engine has."""

from collections import deque
from collections.abc import Callable
from typing import Any

from kvsim.engine.observer import Observer
from kvsim.engine.plan import Plan
from kvsim.engine.replica import assemble
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.memory.paged.allocator import PagedAllocator
from kvsim.memory.paged.groups.allocator import GroupsAllocator
from kvsim.request import Request, Stream
from kvsim.sequence import Sequence
from kvsim.step import StepShape
from kvsim.step_time.form import DecodeRun
from kvsim.validate.schedule.case import TICK_PS, Case, CaseCost

Row = dict[str, Any]


class TickCost:
    """The recorded cost as a step time."""

    def __init__(self, cost: CaseCost) -> None:
        self._cost = cost

    def step_ps(self, shape: StepShape) -> int:
        cost = self._cost
        tokens = shape.prefill_tokens
        if not tokens and not shape.num_decode:
            return 0
        return (cost.a + cost.b * tokens + cost.c * shape.num_decode) * TICK_PS

    def decode_run(
        self, num_decode: int, context_tokens: int, longest_context_tokens: int = 0
    ) -> DecodeRun:
        return DecodeRun((self._cost.a + self._cost.c * num_decode) * TICK_PS, 0)


class RowObserver(Observer):
    """Writes one row a step. Requests that arrive by step number are submitted here.

    submit: where they go; set before the engine runs. stall_once: a queue that cannot start is one
    row however many arrive behind it, else one an arrival. by_group: rows tell how many blocks each
    sequence holds in each group of layers. Steps count on where nothing runs, up to the next
    arrival by step, and have no rows.
    """

    submit: Callable[[Request], None]

    def __init__(
        self,
        by_step: deque[tuple[int, list[Request]]],
        *,
        stall_once: bool = False,
        by_group: bool = False,
    ) -> None:
        self.rows: list[Row] = []
        self._step = 0  # of the next row
        self._stall_once = stall_once
        self._open: list[tuple[Plan, Row]] = []
        self._by_step = by_step
        self._by_group = by_group
        self._evicted = 0

    def planning(self, scheduler: Scheduler, now_ps: int) -> None:
        while self._by_step and self._by_step[0][0] <= self._step:
            self._submit_next()

    def _submit_next(self) -> None:
        for request in self._by_step.popleft()[1]:
            self.submit(request)

    def planned(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        if not plan.empty or plan.preempted:
            self._add_row(scheduler, plan, now_ps)
        if self._open and self._open[0][0].empty and self._open[0][0] is not plan:
            # Two in flight: it returns one schedule later.
            self.finished(scheduler, self._open[0][0], now_ps)

    def _add_row(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        pool = _blocks(scheduler).pool
        sched = self._scheduled(scheduler, plan)
        row: Row = {
            "step": self._step,
            "t0": now_ps // TICK_PS,
            "t1": (plan.start_ps + plan.duration_ps(1)) // TICK_PS,
            "prefill": sum(new for _, new, kind, _, _ in sched if kind == "p"),
            "decode": sum(kind == "d" for _, _, kind, _, _ in sched),
            "running": len(scheduler.running),
            "waiting": len(scheduler.waiting),
            "used": pool.num_blocks - 1 - pool.num_free,
            "free": pool.num_free,
            "cached_free": pool.num_cached_free,
            "evicted": pool.num_evicted - self._evicted,
            "preempted": [seq.id for seq in plan.preempted],
            "admitted": [[seq.id, hits, int(resumed)] for seq, hits, resumed in plan.admitted],
            "sched": sched,
            "first": [c.seq.id for c in plan.chunks if c.samples and c.seq.num_outputs == 1],
            "finished": [],
        }
        allocator = _blocks(scheduler)
        if self._by_group and isinstance(allocator, GroupsAllocator):
            held = {seq.id: allocator.held_blocks(seq) for seq in scheduler.running}
            row["held"] = [[entry[0], held[entry[0]]] for entry in sched]
        self._evicted = pool.num_evicted
        self._append(row)
        self._open.append((plan, row))

    def _scheduled(self, scheduler: Scheduler, plan: Plan) -> list[list[Any]]:
        allocator = _blocks(scheduler)
        chunks = {chunk.seq: chunk for chunk in plan.chunks}
        sched = []
        for seq in scheduler.running:
            if seq in chunks:
                chunk = chunks[seq]
                kind = "d" if chunk.is_decode else "p"
                entry = [seq.id, chunk.new_tokens, kind, chunk.prior_tokens]
            elif seq.decoding and seq not in plan.passed_over:
                entry = [seq.id, 1, "d", scheduler.batch.slots(seq) - 1]
            elif seq in plan.finishing:
                entry = [seq.id, 1, "d", seq.num_computed - 1]
            else:
                continue
            sched.append([*entry, _length(allocator, seq)])
        return sched

    def finished(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        for index, (opened, row) in enumerate(self._open):
            if opened is plan:
                pool = _blocks(scheduler).pool
                row["finished"] = [seq.id for seq in plan.finishing]
                row["used_end"] = pool.num_blocks - 1 - pool.num_free
                row["free_end"] = pool.num_free
                row["cached_free_end"] = pool.num_cached_free
                del self._open[index]
                return

    def idle(self, scheduler: Scheduler, now_ps: int, *, stalled: bool) -> bool:
        known = self._stall_once and bool(self.rows) and "stall" in self.rows[-1]
        if stalled and not known:
            self._stall_row(scheduler, now_ps // TICK_PS)
        if self._by_step:
            self._step = max(self._step, self._by_step[0][0])
            self._submit_next()
            return True
        return False

    def _append(self, row: Row) -> None:
        self.rows.append(row)
        self._step += 1

    def _stall_row(self, scheduler: Scheduler, now: int) -> None:
        pool = _blocks(scheduler).pool
        self._append(
            {
                **dict.fromkeys(("prefill", "decode", "running", "evicted"), 0),
                **{key: [] for key in ("preempted", "admitted", "sched", "first", "finished")},
                "step": self._step,
                "t0": now,
                "t1": now,
                "waiting": len(scheduler.waiting),
                "used": pool.num_blocks - 1 - pool.num_free,
                "free": pool.num_free,
                "cached_free": pool.num_cached_free,
                "stall": 1,
            }
        )


def _length(allocator: PagedAllocator | GroupsAllocator, seq: Sequence) -> int:
    """Positions of a sequence's block table, of the first group's where there are several."""
    if isinstance(allocator, GroupsAllocator):
        return allocator.table_length(seq)
    return allocator.granted_tokens(seq) // allocator.block_size


def _blocks(scheduler: Scheduler) -> PagedAllocator | GroupsAllocator:
    """The allocator of a recorded engine."""
    allocator = scheduler.allocator
    assert isinstance(allocator, PagedAllocator | GroupsAllocator)
    return allocator


def simulate_rows(case: Case, *, stall_once: bool = False) -> list[Row]:
    """The rows kvsim produces for `case`, one a step."""
    by_step: dict[int, list[Request]] = {}
    timed: list[Request] = []
    for request in case.requests:
        if request.arrival_step is None:
            timed += request.requests()
        else:
            by_step.setdefault(request.arrival_step, []).extend(request.requests())
    timed.sort(key=lambda request: request.arrival_ps)
    observer = RowObserver(
        deque(sorted(by_step.items())),
        stall_once=stall_once,
        by_group=case.engine.as_served and len(case.engine.kv_groups) > 1,
    )
    replica = assemble(
        case.engine.replica_spec(),
        Stream(tuple(timed)),
        TickCost(case.cost),
        observer=observer,
        refuse=False,
    )
    observer.submit = replica.engine.submit
    replica.env.run()
    return observer.rows
