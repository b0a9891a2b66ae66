"""The observed requests again, through the simulated engine under the recorded settings."""

from collections.abc import Generator
from typing import NamedTuple

import simpy

from kvsim.engine.continuous import Continuous
from kvsim.engine.engine import Engine
from kvsim.engine.plan import Plan
from kvsim.errors import InputError, InvariantError
from kvsim.layout import KVGroup, KVLayout
from kvsim.memory.allocator import MemorySpec
from kvsim.memory.paged import Paged, PagedAllocator
from kvsim.results.recorder import Recorder
from kvsim.step_time.calibrated import CalibratedTime
from kvsim.validate.run_folder import Meta, ObservedRun

_NEWEST_0_11 = (0, 11)


class EngineRecord(NamedTuple):
    """What a real engine would log when a step's outputs have been processed.

    waiting: as the scheduler last saw the queue: an arrival since then still lies in the input
    queue. kv_cache_usage: blocks taken (under asynchronous scheduling the next step's among them)
    of all but the null block.
    """

    time_ps: int
    running: int
    waiting: int
    kv_cache_usage: float


class Replay(NamedTuple):
    """One simulated run. first_token_ps, last_token_ps: in the order of the observed requests.

    outside_domain: steps whose time lies outside what was measured.
    """

    first_token_ps: tuple[int, ...]
    last_token_ps: tuple[int, ...]
    records: tuple[EngineRecord, ...]
    steps: int
    outside_domain: int
    preemptions: int


def scheduler_options(meta: Meta) -> Continuous:
    """The recorded engine's scheduler."""
    table = meta.model_dump(
        include={
            "max_num_seqs",
            "max_num_batched_tokens",
            "enable_chunked_prefill",
            "long_prefill_token_threshold",
            "policy",
            "async_scheduling",
        }
    )
    if _release(meta.vllm_version) <= _NEWEST_0_11:
        table["semantics"] = "vllm-0.11"
    else:
        table["scheduler_reserve_full_isl"] = meta.scheduler_reserve_full_isl
    return Continuous.parse(table, "meta.json")


def _release(version: str) -> tuple[int, int]:
    try:
        major, minor = version.removeprefix("v").split(".")[:2]
        return int(major), int(minor)
    except ValueError:
        raise InputError(
            "not a version", where="meta.json.vllm_version", value=version, limit="such as 0.19.0"
        ) from None


def replay(run: ObservedRun, step_time: CalibratedTime) -> Replay:
    """Simulate the run's requests, arriving when they did. Only counts of blocks matter here, so a
    token weighs one byte. InputError if the recorded pool could not have served a request.
    """
    meta, options = run.meta, scheduler_options(run.meta)
    paged = Paged(
        block_size=meta.block_size,
        enable_prefix_caching=meta.enable_prefix_caching,
        watermark=meta.watermark,
    )
    allocator = paged.build(
        MemorySpec(
            capacity_bytes=meta.num_gpu_blocks * meta.block_size,
            layout=KVLayout((KVGroup("full", 1, 1),)),
            max_model_len=meta.max_model_len,
            copy_bytes_per_s=1,
            hash_lag=options.depth - 1,
            semantics=options.rules,
        )
    )
    env, recorder = simpy.Environment(), Recorder(allocator.capacity_bytes)
    scheduler = options.build(allocator, meta.max_model_len)
    log = _EngineLog(allocator, step_time)
    engine = Engine(
        env, scheduler, step_time, recorder, depth=options.depth, max_steps=1, observer=log
    )
    log.engine = engine
    env.process(_arrive(env, run, engine, log))
    env.run()
    if recorder.rejected:
        request, _, reason = recorder.rejected[0]
        raise InputError(reason, where=f"request {request.id}")
    by_id = {
        seq.id: (seq.first_token_ps, finish_ps)
        for seq, finish_ps in zip(recorder.finished, recorder.finish_ps, strict=True)
    }
    first_ps, last_ps = zip(*(by_id[request.id] for request in run.requests), strict=True)
    return Replay(
        first_ps, last_ps, tuple(log.records), recorder.steps, log.outside_domain,
        scheduler.num_preemptions,
    )  # fmt: skip


def _arrive(
    env: simpy.Environment, run: ObservedRun, engine: Engine, log: "_EngineLog"
) -> Generator[simpy.Event, None, None]:
    for request in run.requests:
        yield env.timeout(request.arrival_ps - env.now)
        log.arrived += 1
        engine.submit(request)


class _EngineLog:
    """Watches the engine step by step and writes the records a real engine would."""

    engine: Engine

    def __init__(self, allocator: PagedAllocator, step_time: CalibratedTime) -> None:
        self.records: list[EngineRecord] = []
        self.outside_domain = 0
        self.arrived = 0
        self._scheduled_after = 0
        self._allocator = allocator
        self._step_time = step_time

    def planning(self, now_ps: int) -> None:
        """The scheduler looks at the queue now."""
        self._scheduled_after = self.arrived

    def planned(self, plan: Plan, now_ps: int) -> None:
        """Count steps that were never measured."""
        if not plan.empty and self._step_time.outside_domain(plan.shape()):
            self.outside_domain += 1

    def finished(self, plan: Plan, now_ps: int) -> None:
        """Write the record."""
        scheduler, pool = self.engine.scheduler, self._allocator.pool
        unseen = self.arrived - self._scheduled_after
        usable = pool.num_blocks - 1
        self.records.append(
            EngineRecord(
                now_ps,
                len(scheduler.running),
                len(scheduler.waiting) - unseen,
                (usable - pool.num_free) / usable,
            )
        )

    def idle(self, now_ps: int, *, stalled: bool) -> bool:
        """What could never run was refused on arrival, so the queue of an idle engine starts."""
        if stalled:
            raise InvariantError(f"{self.engine.scheduler.waiting.head} can never start")
        return False
