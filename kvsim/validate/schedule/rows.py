"""Runs a recorded case step by step and writes the rows a recording of the real engine has."""

from collections import deque
from typing import Any

import simpy

from kvsim.engine.arrivals import Arrivals
from kvsim.engine.engine import Engine
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.continuous import Continuous
from kvsim.memory.allocator import MemorySpec
from kvsim.memory.paged.allocator import PagedAllocator
from kvsim.memory.paged.options import Paged
from kvsim.request import Request, Stream
from kvsim.results.recorder import Recorder
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


class RowObserver:
    """Writes one row a step. Requests that arrive by step number are submitted here."""

    engine: Engine

    def __init__(self, by_step: deque[tuple[int, list[Request]]]) -> None:
        self.rows: list[Row] = []
        self._open: list[tuple[Plan, Row]] = []
        self._by_step = by_step
        self._evicted = 0

    @property
    def _pool(self) -> Any:
        allocator = self.engine.scheduler.allocator
        assert isinstance(allocator, PagedAllocator)
        return allocator.pool

    def planning(self, now_ps: int) -> None:
        while self._by_step and self._by_step[0][0] <= len(self.rows):
            self._submit_next()

    def _submit_next(self) -> None:
        for request in self._by_step.popleft()[1]:
            self.engine.submit(request)

    def planned(self, plan: Plan, now_ps: int) -> None:
        if not plan.empty or plan.preempted:
            self._add_row(plan, now_ps)
        if self._open and self._open[0][0].empty and self._open[0][0] is not plan:
            self.finished(self._open[0][0], now_ps)  # two in flight: it returns one schedule later

    def _add_row(self, plan: Plan, now_ps: int) -> None:
        scheduler = self.engine.scheduler
        pool = self._pool
        sched = self._scheduled(plan)
        row: Row = {
            "step": len(self.rows),
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
        self._evicted = pool.num_evicted
        self.rows.append(row)
        self._open.append((plan, row))

    def _scheduled(self, plan: Plan) -> list[list[Any]]:
        scheduler = self.engine.scheduler
        held = scheduler.allocator.held_tokens
        size = scheduler.allocator.block_size  # type: ignore[attr-defined]  # paged, see _pool
        chunks = {chunk.seq: chunk for chunk in plan.chunks}
        sched = []
        for seq in scheduler.running:
            if seq in chunks:
                chunk = chunks[seq]
                kind = "d" if chunk.is_decode else "p"
                entry = [seq.id, chunk.new_tokens, kind, chunk.prior_tokens]
            elif seq.decoding and seq not in plan.held:
                entry = [seq.id, 1, "d", scheduler.batch.slots(seq) - 1]
            elif seq in plan.finishing:
                entry = [seq.id, 1, "d", seq.num_computed - 1]
            else:
                continue
            sched.append([*entry, held(seq) // size])
        return sched

    def finished(self, plan: Plan, now_ps: int) -> None:
        for index, (opened, row) in enumerate(self._open):
            if opened is plan:
                pool = self._pool
                row["finished"] = [seq.id for seq in plan.finishing]
                row["used_end"] = pool.num_blocks - 1 - pool.num_free
                row["free_end"] = pool.num_free
                row["cached_free_end"] = pool.num_cached_free
                del self._open[index]
                return

    def idle(self, now_ps: int, *, stalled: bool) -> bool:
        if stalled:
            self._stall_row(now_ps // TICK_PS)
        if self._by_step:
            self._submit_next()
            return True
        return False

    def _stall_row(self, now: int) -> None:
        pool = self._pool
        self.rows.append(
            {
                **dict.fromkeys(("prefill", "decode", "running", "evicted"), 0),
                **{key: [] for key in ("preempted", "admitted", "sched", "first", "finished")},
                "step": len(self.rows),
                "t0": now,
                "t1": now,
                "waiting": len(self.engine.scheduler.waiting),
                "used": pool.num_blocks - 1 - pool.num_free,
                "free": pool.num_free,
                "cached_free": pool.num_cached_free,
                "stall": 1,
            }
        )


def simulate_rows(case: Case) -> list[Row]:
    """The rows kvsim produces for `case`, one a step."""
    settings = case.engine
    capacity = settings.num_gpu_blocks * settings.block_size
    memory = MemorySpec(
        capacity,
        settings.layout(),
        settings.max_model_len,
        copy_bytes_per_s=1,
        hash_lag=int(settings.async_scheduling),
        semantics=settings.semantics,
        max_in_flight_tokens=(1 + settings.async_scheduling) * settings.max_num_batched_tokens,
    )
    allocator = Paged(
        block_size=settings.block_size,
        enable_prefix_caching=settings.prefix_caching,
        watermark=settings.watermark,
    ).build(memory)
    scheduler = Continuous(
        max_num_seqs=settings.max_num_seqs,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        enable_chunked_prefill=settings.chunked_prefill,
        long_prefill_token_threshold=settings.long_prefill_token_threshold,
        policy=settings.policy,
        scheduler_reserve_full_isl=settings.reserve_full_isl and settings.semantics != "vllm-0.11",
        async_scheduling=settings.async_scheduling,
        semantics=settings.semantics,
    ).build(allocator, settings.max_model_len)
    by_step: dict[int, list[Request]] = {}
    timed: list[Request] = []
    for request in case.requests:
        if request.arrival_step is None:
            timed += request.requests()
        else:
            by_step.setdefault(request.arrival_step, []).extend(request.requests())
    env = simpy.Environment()
    observer = RowObserver(deque(sorted(by_step.items())))
    timed.sort(key=lambda request: request.arrival_ps)
    arrivals = Arrivals(env, Stream(tuple(timed)))
    arrivals.engine = Engine(
        env,
        scheduler,
        TickCost(case.cost),
        Recorder(capacity),
        depth=2 if settings.async_scheduling else 1,
        max_steps=1,
        observer=observer,
        refuse=False,
    )
    env.run()
    return observer.rows
