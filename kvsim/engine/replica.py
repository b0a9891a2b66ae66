"""Assembles one engine replica; the only module that knows all its parts.

A `ReplicaSpec` describes a replica: of a scenario, of the meta file of an observed run, or of a
recorded schedule. `build()` makes its allocator and scheduler, which real engines drive as well.
`assemble` adds the clock, the accounting and the arrivals of a simulation.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kvsim.engine.arrivals import Arrivals, Left
from kvsim.engine.clock import EngineClock
from kvsim.engine.connectors.shared import Shared
from kvsim.engine.engine import Engine
from kvsim.engine.executor.choice import executor_of
from kvsim.engine.link import Link
from kvsim.engine.observer import Observer
from kvsim.engine.parts import EngineParts
from kvsim.engine.schedulers.options import SchedulerOptions
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.engine.speculation.acceptance import Acceptance
from kvsim.engine.speculation.verifier import Verifier
from kvsim.engine.stuck import check_stuck
from kvsim.layout import KVLayout
from kvsim.memory.options import AllocatorOptions, MemorySpec
from kvsim.plumbing.errors import InvariantError
from kvsim.plumbing.process import seldom_collecting
from kvsim.plumbing.units import PS_PER_US
from kvsim.request import Request, Stream
from kvsim.results.recorder import Recorder
from kvsim.speculation import Speculation
from kvsim.step_time.form import StepTime
from kvsim.support.parts import DRAFTS, EVERY_PART, ServerParts
from kvsim.support.table import check
from kvsim.vllm.grouping import Grouping

if TYPE_CHECKING:
    from kvsim.engine.connectors.tiers import ConnectorPlan
    from kvsim.engine.connectors.totals import RunTotals
    from kvsim.engine.hicache.hierarchy import Hierarchy
    from kvsim.engine.ranks import Ranks
    from kvsim.engine.waves import Waves


@dataclass(frozen=True, slots=True)
class ReplicaSpec:
    """The parts of a replica, without its requests and step times.

    capacity_bytes: size of the pool. layout: bytes per token of each layer group. max_model_len: in
    tokens. copy_bytes_per_s: bandwidth of copies within the device. host_bytes_per_s: bandwidth of
    the link to host memory. max_steps: most steps simulated at once; 1 runs step by step.
    speculation: method of speculative decoding; None without it. acceptance: how many drafts are
    accepted. unwatched, states, window_tokens, pool_tokens, plan: see `MemorySpec`. connector:
    builds the KV connector of the engine; None without one. shared: tiers that several replicas
    share; None: the replica is alone. hicache: tiers after the device under SGLang's scheduler;
    None: as the allocator's options say. stages: pipeline stages; as many steps are in flight, and
    one more under asynchronous scheduling.
    """

    allocator: AllocatorOptions
    scheduler: SchedulerOptions
    capacity_bytes: int
    layout: KVLayout
    max_model_len: int
    copy_bytes_per_s: int
    host_bytes_per_s: int
    max_steps: int | None = None
    speculation: Speculation | None = None
    acceptance: Acceptance | None = None
    unwatched: bool = False
    states: int | None = None
    window_tokens: int | None = None
    pool_tokens: int | None = None
    plan: Grouping | None = None
    connector: "ConnectorPlan | None" = None
    hicache: "Hierarchy | None" = None
    shared: Shared | None = None
    stages: int = 1

    @property
    def depth(self) -> int:
        """Most steps in flight at once."""
        return self.stages + self.scheduler.depth_over(self.stages) - 1

    def memory_spec(self) -> MemorySpec:
        """The facts that the allocator needs to build the pool."""
        scheduler, connector = self.scheduler, self.connector
        return MemorySpec(
            self.capacity_bytes,
            self.layout,
            self.max_model_len,
            self.copy_bytes_per_s,
            hash_lag=scheduler.depth - 1,
            steps_ahead=self.depth - 1,
            rules=scheduler.block_rules,
            max_in_flight_tokens=scheduler.max_in_flight_tokens(self.depth),
            speculation=self._speculation,
            unwatched=self.unwatched and not (connector and connector.asks_blocks),
            states=self.states,
            window_tokens=self.window_tokens,
            pool_tokens=self.pool_tokens,
            plan=self.plan,
            loads=connector is not None,
            holds=connector is not None and connector.holds,
        )

    @property
    def _speculation(self) -> Speculation | None:
        """Speculative decoding by the rules of the scheduler's version; None without it."""
        if self.speculation is None:
            return None
        found = self.scheduler.drafting(self.speculation)
        return found if self.connector is None else found.without_ahead_hashes()

    @property
    def parts(self) -> ServerParts:
        """The parts that the table of refused pairs compares."""
        unplanned = self.plan is None and not _keeps_every_token(self.layout)
        return ServerParts(
            stages=self.stages,
            connector=self.connector is not None,
            serves=EVERY_PART if self.connector is None else self.connector.serves,
            hicache=self.allocator.hierarchical,
            unplanned=unplanned,
            drafts=self.speculation is not None and self.acceptance is not None,
            no_slots=DRAFTS not in self.allocator.serves,
            schedules=self.scheduler.serves,
        )

    def _verifier(self) -> Verifier | None:
        """The verifier of drafts; None without drafts. InputError for options that the drafting
        method does not support.
        """
        speculation = self._speculation
        if speculation is None or self.acceptance is None:
            return None
        speculation.check()
        return Verifier(speculation, self.acceptance, self.max_model_len)

    def build(self) -> Scheduler:
        """A new scheduler over a new allocator on an empty pool. InputError for options that do not
        fit the pool or cannot be combined.
        """
        check(self.parts)
        verifier = self._verifier()
        allocator = self.allocator.build(self.memory_spec())
        if self.connector is not None or verifier is not None or self.stages > 1:
            made = self.connector and self.connector.build(self.shared or Shared())
            return self.scheduler.holding(
                allocator,
                self.max_model_len,
                connector=made,
                verifier=verifier,
                stages=self.stages,
            )
        scheduler = self.scheduler.build(allocator, self.max_model_len)
        if self.allocator.hierarchical:
            from kvsim.engine.hicache.hierarchy import check_hierarchy

            check_hierarchy(scheduler)
        return scheduler

    def host_link(self) -> Link:
        """The link to host memory for swapped KV."""
        latency_us = self.scheduler.swap_latency_us or 0.0
        return Link(self.host_bytes_per_s, round(latency_us * PS_PER_US))


def _keeps_every_token(layout: KVLayout) -> bool:
    """Whether all layers are in one group with full attention, so that no block is freed while its
    sequence runs.
    """
    first, *others = layout.groups
    return not others and first.kind in ("full", "mla") and first.chunk_tokens is None


@dataclass(frozen=True)
class Replica:
    """A replica that serves requests. arrivals: submit requests to its engine; None: a router
    does.
    """

    scheduler: Scheduler
    recorder: Recorder
    engine: Engine
    arrivals: Arrivals | None = None

    @property
    def env(self) -> EngineClock:
        """The clock of the engine."""
        return self.engine.core.env

    @property
    def tiers(self) -> "RunTotals | None":
        """Totals of the tiers after the device; None without tiers."""
        return self.engine.tier_totals()

    def run(self) -> None:
        """Serve all requests that arrive; checks that the pool is empty afterwards."""
        assert self.arrivals is not None
        serve_all(self.env, self.arrivals, [self])

    def check_empty(self) -> None:
        """Raise InvariantError if memory is allocated after all requests have left."""
        allocated = self.scheduler.usage().allocated
        if allocated:
            raise InvariantError(
                f"{allocated} bytes are held by no sequence: {self.scheduler.usage()._asdict()}"
            )


def assemble(
    spec: ReplicaSpec,
    stream: Stream,
    step_time: StepTime,
    *,
    recorder: Recorder | None = None,
    observer: Observer | None = None,
    progress: Left | None = None,
    refuse: bool = True,
) -> Replica:
    """A replica that will serve `stream`; InputError as in `build`."""
    env = EngineClock()
    arrivals = Arrivals(env, stream, progress)
    made = serving(
        env,
        spec,
        step_time,
        on_left=arrivals.left,
        recorder=recorder,
        observer=observer,
        refuse=refuse,
    )
    arrivals.submit = made.engine.submit
    return replace(made, arrivals=arrivals)


def clock(stream: Stream, progress: Left | None = None) -> tuple[EngineClock, Arrivals]:
    """(clock, arrivals) for several engines of one router."""
    env = EngineClock()
    return env, Arrivals(env, stream, progress, routed=True)


def serve_all(env: EngineClock, arrivals: Arrivals, replicas: Iterable[Replica]) -> None:
    """Simulate until all requests have left; InputError or InvariantError if one never does."""
    with seldom_collecting():
        env.run()
    if arrivals.missing:
        for replica in replicas:
            check_stuck(replica.scheduler)
        raise InvariantError(f"{arrivals.missing} requests never left")
    for replica in replicas:
        replica.check_empty()


def serving(
    env: EngineClock,
    spec: ReplicaSpec,
    step_time: StepTime,
    *,
    on_left: Callable[[Request], None],
    recorder: Recorder | None = None,
    observer: Observer | None = None,
    refuse: bool = True,
    routed: bool = False,
    report_interval_ps: int | None = None,
    waves: "Waves | Ranks | None" = None,
) -> Replica:
    """A replica on the clock `env`; arguments as in `EngineParts`. InputError as in `build`.

    waves: data-parallel ranks in lockstep, which the engine joins; None: it steps alone.
    """
    scheduler = spec.build()
    if waves is not None:
        sglang = spec.scheduler.engine == "sglang"
        asked = spec.parts._replace(lockstep=True, no_tiers=waves.no_tiers, sglang=sglang)
        check(asked._replace(depth=spec.depth))
    if spec.max_steps != 1:
        scheduler.enable_lockstep(spec.depth)
    recorder = recorder or Recorder(spec.capacity_bytes)
    parts = EngineParts(
        scheduler,
        step_time,
        recorder,
        spec.host_link(),
        depth=spec.depth,
        max_steps=spec.max_steps,
        on_left=on_left,
        observer=observer,
        refuse=refuse,
        routed=routed,
        report_interval_ps=report_interval_ps,
    )
    engine = _engine(spec, env, parts, waves)
    if waves is None:
        return Replica(scheduler, recorder, engine.start())
    waves.join(engine)
    return Replica(scheduler, recorder, engine)


def _engine(
    spec: ReplicaSpec, env: EngineClock, parts: EngineParts, waves: "Waves | Ranks | None"
) -> Engine:
    """The engine of `spec` with its executor, not started."""
    connected, hierarchical = spec.connector is not None, spec.allocator.hierarchical
    executor = None if waves is None else waves.executor(connected=connected)
    executor = executor or executor_of(
        connected=connected, over_stages=spec.stages > 1, hierarchical=hierarchical
    )
    engine = Engine(env, parts, executor)
    if hierarchical and not connected:
        from kvsim.engine.executor.hicache import hicache_of
        from kvsim.engine.hicache.hierarchy import hierarchy_of

        found = spec.hicache or hierarchy_of(spec.allocator, spec.layout, spec.host_bytes_per_s)
        found.connect(hicache_of(parts.scheduler), spec.shared or Shared())
    return engine
