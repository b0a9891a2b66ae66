"""Run a scenario: the same requests through every allocator, one engine each."""

import time
from collections.abc import Callable, Generator, Iterable
from typing import Any

import simpy

from kvsim.engine import SCHEDULERS
from kvsim.engine.engine import Engine, Observer
from kvsim.errors import InputError, InvariantError
from kvsim.memory import ALLOCATORS
from kvsim.memory.allocator import AllocatorOptions, MemorySpec
from kvsim.pool import Pool, size_pool
from kvsim.request import Request, Stream
from kvsim.results import metrics
from kvsim.results.recorder import Recorder
from kvsim.results.result import Result, Run
from kvsim.scenario import Scenario
from kvsim.step_time import STEP_TIMES
from kvsim.step_time.options import Hardware
from kvsim.units import seconds_from_ps
from kvsim.version import VERSION
from kvsim.workload import WORKLOADS

Progress = Callable[[str, int, int], None]
BLOCK_SIZE = 16  # where no allocator names one: vLLM's default


def simulate(
    scenario: Scenario | dict[str, Any] | str,
    requests: Stream | Iterable[Request] | None = None,
    *,
    progress: Progress | None = None,
) -> Result:
    """Simulate `scenario` (a Scenario, its tables, a file or a recipe's name).

    requests: instead of those its workload makes. progress: called with (label, requests that have
    left, requests in all). Raises InputError for a scenario that cannot run.
    """
    if isinstance(scenario, str):
        scenario = Scenario.load(scenario)
    elif isinstance(scenario, dict):
        scenario = Scenario.from_table(scenario)
    simulation = Simulation(scenario, requests)
    return Result(
        simulation.resolved(),
        tuple(
            simulation.run(options, label, progress)
            for options, label in zip(scenario.allocator, scenario.labels(), strict=True)
        ),
    )


class Simulation:
    """A scenario made ready: its requests, pool and step time, the same for every allocator."""

    def __init__(
        self, scenario: Scenario, requests: Stream | Iterable[Request] | None = None
    ) -> None:
        self.scenario = scenario
        options = scenario.model
        self.model = options.build(scenario.folder)
        self.device = scenario.device.build()
        self.max_model_len = options.model_len(self.model)
        self.layout = options.layout(self.model)
        self.pool = self._pool()
        self.step_time = scenario.step_time.build(
            Hardware(self.model, self.device, options.tensor_parallel_size, self.layout)
        )
        if requests is None:
            if scenario.workload is None:
                raise InputError("required key is missing", where="workload")
            requests = scenario.workload.generate(
                scenario.seed, base=scenario.folder, max_model_len=self.max_model_len
            )
        self.stream = (
            requests if isinstance(requests, Stream) else Stream(tuple(requests), source={})
        )

    def _pool(self) -> Pool:
        scheduler = self.scenario.scheduler
        limits = {
            key: getattr(scheduler, key)
            for key in ("max_num_seqs", "max_num_batched_tokens")
            if hasattr(scheduler, key)
        }
        sizes = (getattr(options, "block_size", None) for options in self.scenario.allocator)
        return size_pool(
            self.model,
            self.device,
            self.scenario.memory,
            self.scenario.model,
            next(filter(None, sizes), BLOCK_SIZE),
            **limits,
        )

    def memory_spec(self) -> MemorySpec:
        """The pool as an allocator is built on it."""
        scheduler = self.scenario.scheduler
        return MemorySpec(
            self.pool.capacity_bytes,
            self.layout,
            self.max_model_len,
            self.device.bandwidth_bytes_per_s,
            hash_lag=scheduler.depth - 1,
            semantics=scheduler.rules,
        )

    def run(
        self,
        options: AllocatorOptions,
        label: str,
        progress: Progress | None = None,
        observer: Observer | None = None,
    ) -> Run:
        """All requests through one allocator."""
        began = time.perf_counter()
        scenario, stream = self.scenario, self.stream
        allocator = options.build(self.memory_spec())
        scheduler = scenario.scheduler.build(allocator, self.max_model_len)
        recorder = Recorder(allocator.capacity_bytes)
        env = simpy.Environment()
        arrivals = _Arrivals(env, stream, label, progress)
        engine = Engine(
            env,
            scheduler,
            self.step_time,
            recorder,
            depth=scenario.scheduler.depth,
            max_steps=scenario.max_steps,
            on_left=arrivals.left,
            observer=observer,
        )
        arrivals.start(engine)
        env.run()
        _check_drained(engine, recorder, arrivals)
        kind = ALLOCATORS.name_of(options)
        refused = len(recorder.rejected)
        makespan_s = arrivals.makespan_s(recorder)
        outputs = sum(seq.output_tokens for seq in recorder.finished)
        finished = len(stream.requests) - refused
        summary = {
            "allocator": kind,
            "label": label,
            "requests": {
                "submitted": len(stream.requests),
                "finished": finished,
                "rejected": refused,
            },
            "preemptions": scheduler.num_preemptions,
            "makespan_s": makespan_s,
            "requests_per_s": finished / makespan_s if makespan_s else 0.0,
            "output_tokens_per_s": outputs / makespan_s if makespan_s else 0.0,
            "running_mean": recorder.running_sum / recorder.total_ps if recorder.total_ps else 0.0,
            **metrics.latencies(recorder),
            "memory": metrics.memory(recorder, allocator.token_bytes),
            "prefix_cache": {
                "query_tokens": allocator.query_tokens,
                "hit_tokens": allocator.hit_tokens,
            },
            "copied_bytes": allocator.copied_bytes,
            "recomputed_tokens": scheduler.recomputed_tokens,
            "swapped_bytes": 0,
            "steps": recorder.steps,
            "wall_s": time.perf_counter() - began,
        }
        return Run(label, kind, summary, recorder)

    def resolved(self) -> dict[str, Any]:
        """The scenario with every default written out, and where its inputs came from."""
        tables = self.scenario.model_dump(mode="json", exclude_none=True)
        tables["provenance"] = {
            "kvsim": VERSION,
            "requests": len(self.stream.requests),
            "pool": self.pool._asdict(),
            "source": dict(self.stream.source),
            "notes": list(self.stream.notes),
        }
        return tables


class _Arrivals:
    """Submits requests at their time, and followers after those they follow have left."""

    def __init__(
        self, env: simpy.Environment, stream: Stream, label: str, progress: Progress | None
    ) -> None:
        self._env = env
        self._label = label
        self._progress = progress
        self._total = len(stream.requests)
        self.num_left = 0
        self._first_ps: int | None = None
        self._followers: dict[str, list[Request]] = {}
        self._roots = []
        for request in stream.requests:
            if request.after is None:
                self._roots.append(request)
            else:
                self._followers.setdefault(request.after, []).append(request)

    def start(self, engine: Engine) -> None:
        self._engine = engine
        self._env.process(self._submit_roots())

    def _submit_roots(self) -> Generator[simpy.Event, None, None]:
        env, submit = self._env, self._engine.submit
        for request in self._roots:
            if request.arrival_ps > env.now:
                yield env.timeout(request.arrival_ps - env.now)
            if self._first_ps is None:
                self._first_ps = env.now
            submit(request)

    def left(self, request: Request) -> None:
        """`request` has left: whoever follows it comes after their pause."""
        self.num_left += 1
        if self._progress is not None and (
            self.num_left % 256 == 0 or self.num_left == self._total
        ):
            self._progress(self._label, self.num_left, self._total)
        for follower in self._followers.pop(request.id, ()):
            self._env.process(self._submit_after_pause(follower))

    def _submit_after_pause(self, follower: Request) -> Generator[simpy.Event, None, None]:
        yield self._env.timeout(follower.think_ps)
        self._engine.submit(follower)

    def makespan_s(self, recorder: Recorder) -> float:
        """From the first arrival to the end of the last step."""
        return seconds_from_ps(recorder.end_ps - (self._first_ps or 0)) if recorder.steps else 0.0

    @property
    def missing(self) -> int:
        return self._total - self.num_left


def _check_drained(engine: Engine, recorder: Recorder, arrivals: _Arrivals) -> None:
    """Everyone has left, and the pool is as empty as it was."""
    if arrivals.missing:
        raise InvariantError(f"{arrivals.missing} requests never left")
    usage = engine.scheduler.usage()
    held = usage.used + usage.reserved + usage.overprovisioned + usage.rounding + usage.transient
    if held:
        raise InvariantError(f"{held} bytes are still held by nobody: {usage._asdict()}")


__all__ = ["ALLOCATORS", "SCHEDULERS", "STEP_TIMES", "WORKLOADS", "Simulation", "simulate"]
