"""Run a scenario: the same requests through every allocator, one engine each."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from kvsim.capacity.local_attention import gives_chunks_back
from kvsim.capacity.sglang.sizing import layout_under
from kvsim.capacity.stage import model_of, stages
from kvsim.drafting import drafter_of
from kvsim.engine.observer import Observer
from kvsim.engine.replica import ReplicaSpec, assemble, clock, serve_all
from kvsim.engine.schedulers.speculating import SpeculatingScheduler
from kvsim.fleet.members import AnyPart, FleetMember, FleetPart, MemberHooks, SingleReplica
from kvsim.front_end import FrontEnd, behind
from kvsim.layout import KVLayout
from kvsim.memory import ALLOCATORS
from kvsim.memory.options import AllocatorOptions
from kvsim.plumbing.errors import InputError
from kvsim.pool import pool_of
from kvsim.request import Request, Stream
from kvsim.resolved import resolved
from kvsim.results.link_copies import tier_links
from kvsim.results.metrics import summarise
from kvsim.results.result import Result, Run
from kvsim.scenario import Scenario
from kvsim.served import check_served
from kvsim.shared_sequences import over_gpus, shared_layout
from kvsim.step_time.form import StepTime
from kvsim.tiers import check_shared, with_tiers
from kvsim.timing import step_time_of

if TYPE_CHECKING:
    from kvsim.disaggregated import DisaggregatedRuns
    from kvsim.fleets import FleetSimulation, Spread

Progress = Callable[[str, int, int], None]


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
    return Simulation(scenario, requests).result(progress)


def place_of(label: str, labels: Sequence[str]) -> int:
    """The place of a label that `--allocator` names; InputError where there is none."""
    if label not in labels:
        raise InputError(
            "no such allocator in the scenario",
            where="--allocator",
            value=label,
            remedy=f"it has {', '.join(labels)}",
        )
    return labels.index(label)


def _side_ready(scenario: Scenario, at: int) -> tuple[ReplicaSpec, StepTime]:
    """The replica of one side of a deployment under its allocator at this place."""
    simulation = Simulation(scenario, [])
    return simulation.replica_spec(scenario.allocator[at]), simulation.step_time


class Simulation:
    """A scenario made ready: its requests, pool and step time, the same for every allocator.

    in_fleet: of one replica among others. InputError before any allocator runs if it cannot run.
    """

    def __init__(
        self,
        scenario: Scenario,
        requests: Stream | Iterable[Request] | None = None,
        *,
        in_fleet: bool = False,
    ) -> None:
        self.scenario = scenario
        if scenario.fleet is None and not in_fleet:
            check_shared(scenario)
        options = scenario.model
        self.model = options.build(scenario.folder)
        self.device = scenario.device.build()
        self.max_model_len = options.model_len(self.model)
        self.drafter = drafter_of(scenario.speculative_config, scenario.folder)
        found = pool_of(scenario, self.model, self.device, self.drafter)
        self.pool, self.stages = found.pool, found.stages
        self.held = self.model  # of a pipeline, what the stage that decides the pool computes
        if options.pipeline_parallel_size > 1:
            every = stages(self.model.layers, options.pipeline_parallel_size, options.stage_layers)
            self.held = model_of(self.model, every[found.stage])
        self.layout = options.layout(self.held)
        if options.decode_context_parallel_size > 1:
            self.layout = shared_layout(scenario, self.layout, drafted=self.drafter is not None)
        self.step_time = step_time_of(
            scenario, self.model, self.device, self.layout, self.pool, self.drafter
        )
        if self.drafter is not None:
            self.layout = self.drafter.layout(self.model, options)
        self.labels = scenario.labels()
        for each in scenario.allocator:
            self.replica_spec(each).build()
        self.apart = None if scenario.disaggregation is None else _apart(scenario)
        self.fleet = None if scenario.fleet is None else _fleet(self)
        if requests is None:
            if scenario.workload is None:
                raise InputError("required key is missing", where="workload")
            requests = scenario.workload.stream(
                scenario.seed, base=scenario.folder, max_model_len=self.max_model_len
            )
        self.stream = Stream.of(requests)
        if any(each.hinted for each in scenario.allocator):
            self.stream = self.stream.with_hints()
        for each in scenario.allocator:
            check_served(self.stream, self.replica_spec(each), apart=self.apart is not None)
        self.front_end: FrontEnd | None = None
        if front := scenario.front_end:
            engine = scenario.scheduler_of(scenario.allocator[0]).engine
            self.front_end = front.of(engine, self.model.kind)
            self.stream = behind(self.stream, self.front_end, front.clients_of(scenario.workload))

    def chosen(self, label: str | None) -> tuple[AllocatorOptions, str]:
        """The allocator of this label (None: the first), and its label; InputError without one."""
        label = self.labels[0] if label is None else label
        return self.scenario.allocator[place_of(label, self.labels)], label

    def replica_spec(self, options: AllocatorOptions) -> ReplicaSpec:
        """The parts of a replica under one allocator."""
        drafts, scheduler = self.scenario.speculative_config, self.scenario.scheduler_of(options)
        options = over_gpus(options, self.scenario.model.decode_context_parallel_size)
        scheduler = scheduler.with_adapters(self.scenario.memory.max_loras)
        if drafts is not None and drafts.disable_lookahead_block_hashes:
            scheduler.check_looks_ahead()
        spec = ReplicaSpec(
            options,
            scheduler,
            capacity_bytes=self.pool.capacity_bytes,
            layout=self._layout_under(ALLOCATORS.name_of(options)),
            states=self.pool.states,
            window_tokens=self.pool.window_tokens,
            max_model_len=self.max_model_len,
            copy_bytes_per_s=self.device.bandwidth_bytes_per_s,
            host_bytes_per_s=self.device.host_bytes_per_s,
            max_steps=self.scenario.max_steps,
            speculation=None if drafts is None else drafts.speculation,
            acceptance=None if drafts is None else drafts.acceptance(self.scenario.seed),
            stages=self.scenario.model.pipeline_parallel_size,
        )
        return with_tiers(spec, self.scenario, self.device)

    def _layout_under(self, allocator_kind: str) -> KVLayout:
        """The layers as an allocator of this kind takes them: vLLM's tables give chunks of local
        attention back where its version does.
        """
        options, drafts = self.scenario.model, self.scenario.speculative_config
        speculation = None if drafts is None else drafts.speculation
        frees = self.scenario.memory.version.sizing.frees_chunks
        if (
            allocator_kind != "paged"
            or options.decode_context_parallel_size > 1
            or not gives_chunks_back(frees_chunks=frees, speculation=speculation)
        ):
            return layout_under(allocator_kind, self.model.kind, self.layout)
        if self.drafter is not None:
            return self.drafter.layout(self.model, options, by_chunk=True)
        return options.layout(self.held, by_chunk=True)

    def result(
        self,
        progress: Progress | None = None,
        *,
        addresses: bool = False,
        spread: "Spread | None" = None,
    ) -> Result:
        """The runs of all allocators, of a fleet those of each replica. addresses: whether the
        addresses of each stay are logged. spread: serves the cells of a fleet elsewhere.
        """
        if self.fleet is not None:
            serve = partial(self.fleet.runs, addresses=addresses, spread=spread)
            served = [
                serve(options, label, self.stream, progress)
                for options, label in zip(self.scenario.allocator, self.labels, strict=True)
            ]
            fleets = tuple(each.summary for each in served)
            found = [run for each in served for run in each.runs]
        else:
            fleets = ()
            run = self.traced if addresses and self.apart is None else self.run
            runs = zip(self.scenario.allocator, self.labels, strict=True)
            found = [run(options, label, progress) for options, label in runs]
        every = tuple(each for run in found for each in (run, *run.beside))
        return Result(self.resolved(), every, fleets=fleets)

    @property
    def num_gpus(self) -> int:
        """GPUs of what serves the requests, of a fleet those of one member."""
        return self.scenario.model.num_gpus if self.apart is None else self.apart.gpus

    def part(self, options: AllocatorOptions) -> AnyPart:
        """What serves the requests under one allocator, as a fleet has it."""
        if self.apart is not None:
            return self.apart.part(self.scenario.allocator.index(options))
        return FleetPart(self.replica_spec(options), self.step_time)

    def traced(
        self, options: AllocatorOptions, label: str, progress: Progress | None = None
    ) -> Run:
        """The run of one allocator, with the addresses that each sequence held over time."""
        from kvsim.engine.addresses.address_log import AddressLog

        log = AddressLog()
        run = self.run(options, label, progress, log)
        return run.with_addresses(log.close())

    def run(
        self,
        options: AllocatorOptions,
        label: str,
        progress: Progress | None = None,
        observer: Observer | None = None,
    ) -> Run:
        """The run of one allocator over all requests."""
        began = time.perf_counter()
        stream = self.stream
        if self.apart is not None:
            if observer is not None:
                raise InputError(
                    "one engine is watched, and this scenario has several",
                    where="disaggregation",
                    remedy="leave the table out",
                )
            env, arrivals = clock(stream, progress and partial(progress, label))
            member = self.part(options).build(env, MemberHooks(arrivals.left))
            arrivals.submit = member.submit
            serve_all(env, arrivals, member.replicas)
        else:
            watched = observer is not None and observer.asks_blocks
            replica = assemble(
                replace(self.replica_spec(options), unwatched=not watched),
                stream,
                self.step_time,
                observer=observer,
                progress=progress and partial(progress, label),
            )
            replica.run()
            member = SingleReplica(replica)
        number, shareable = len(stream.requests), not stream.anonymous
        return self.recorded(member, options, label, number, began, shareable=shareable)

    def recorded(
        self,
        member: FleetMember,
        options: AllocatorOptions,
        label: str,
        num_requests: int,
        began_s: float,
        *,
        shareable: bool,
        num_lost: int = 0,
    ) -> Run:
        """The run of what has served so many requests since `began_s`; num_lost died with it."""
        kind = ALLOCATORS.name_of(options)
        if self.apart is not None:
            return self.apart.recorded(
                member, kind, label, num_requests, began_s, shareable=shareable
            )
        (replica,) = member.replicas
        summary = summarise(
            replica,
            kind,
            label,
            num_requests=num_requests,
            num_lost=num_lost,
            began_s=began_s,
            window=self.scenario.window,
            verified=replica.scheduler.verifier
            if isinstance(replica.scheduler, SpeculatingScheduler)
            else None,
            shareable=shareable,
            over_device=self.pool.over_device(self.device.name),
        )
        return Run.recorded(summary, replica.recorder).with_links(tier_links(replica.tiers))

    def resolved(self) -> dict[str, Any]:
        """The scenario with every default written out, and where its inputs came from."""
        return resolved(self)


def _apart(scenario: Scenario) -> "DisaggregatedRuns":
    from kvsim.disaggregated import DisaggregatedRuns  # only these scenarios need its parts

    return DisaggregatedRuns(scenario, _side_ready)


def _fleet(simulation: Simulation) -> "FleetSimulation":
    from kvsim.fleets import FleetSimulation  # as above

    fleet = FleetSimulation(simulation, _replica_ready)
    fleet.check()
    return fleet


def _replica_ready(scenario: Scenario) -> Simulation:
    """A replica of a fleet that differs from the others; its requests are the fleet's."""
    return Simulation(scenario, (), in_fleet=True)
