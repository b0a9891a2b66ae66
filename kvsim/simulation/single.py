"""Simulate a scenario: the same requests with every allocator, one engine each."""

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from kvsim.engine.observer import Observer
from kvsim.engine.replica import assemble, clock, serve_all
from kvsim.fleet.members import AnyPart, FleetMember, FleetPart, MemberHooks, SingleReplica
from kvsim.memory import ALLOCATORS
from kvsim.memory.options import AllocatorOptions
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.process import seldom_collecting
from kvsim.request import Request, Stream
from kvsim.results.link_copies import tier_links
from kvsim.results.metrics import summarise
from kvsim.results.result import Result, Run
from kvsim.scenario import Scenario, no_workload
from kvsim.scenario.build.sized import SizedScenario
from kvsim.scenario.checks.notes import cache_left_off, known_before
from kvsim.scenario.checks.request_kinds import check_follows, check_served, check_text
from kvsim.scenario.checks.shared_tiers import check_shared
from kvsim.scenario.resolved import resolved

if TYPE_CHECKING:
    from kvsim.simulation.fleet import FleetSimulation, Spread
    from kvsim.simulation.prefill_decode import DisaggregatedRuns, ReadySide
    from kvsim.step_time.front_end import FrontEnd

Progress = Callable[[str, int, int], None]


def simulate(
    scenario: Scenario | dict[str, Any] | str,
    requests: Stream | Iterable[Request] | None = None,
    *,
    progress: Progress | None = None,
) -> Result:
    """Simulate `scenario` (a Scenario, its tables, a file or a recipe's name).

    requests: replace the workload's. progress: called with (label, requests that have left,
    requests in all). Raises InputError for a scenario that cannot run.
    """
    if isinstance(scenario, str):
        scenario = Scenario.load(scenario)
    elif isinstance(scenario, dict):
        scenario = Scenario.from_table(scenario)
    return Simulation(scenario, requests).result(progress)


def _side_ready(scenario: Scenario, at: int) -> "ReadySide":
    """One side of a deployment, ready to run with the allocator at index `at`."""
    from kvsim.simulation.prefill_decode import ReadySide  # only these scenarios need its parts

    simulation = Simulation(scenario, [])
    spec = simulation.replica_spec(scenario.allocator[at])
    return ReadySide(spec, simulation.step_time, simulation.known_before)


class Simulation(SizedScenario):
    """A scenario ready to run: its requests, pool and step time, the same for every allocator.

    in_fleet: the scenario is one replica of a fleet. Raises InputError, before any allocator runs,
    if it cannot run.
    """

    def __init__(
        self,
        scenario: Scenario,
        requests: Stream | Iterable[Request] | None = None,
        *,
        in_fleet: bool = False,
    ) -> None:
        try:
            with seldom_collecting():
                self._make_ready(scenario, requests, in_fleet=in_fleet)
        except InputError as error:
            raise scenario.located(error) from None

    def _make_ready(
        self, scenario: Scenario, requests: Stream | Iterable[Request] | None, *, in_fleet: bool
    ) -> None:
        if scenario.fleet is None and not in_fleet:
            check_shared(scenario)
        super().__init__(scenario)
        for each in scenario.allocator:
            self.replica_spec(each).build()
        self.apart = None if scenario.disaggregation is None else _apart(scenario)
        self.fleet = None if scenario.fleet is None else _fleet(self)
        if requests is None:
            if scenario.workload is None:
                raise no_workload()
            requests = scenario.workload.stream(
                scenario.seed, base=scenario.folder, max_model_len=self.max_model_len
            )
        self.stream = Stream.of(requests)
        check_follows(self.stream)
        if any(each.hinted for each in scenario.allocator):
            self.stream = self.stream.with_hints()
        for each in scenario.allocator:
            check_served(self.stream, self.replica_spec(each), apart=self.apart is not None)
        if scenario.model.language_model_only:
            check_text(self.stream)
        self.front_end: FrontEnd | None = None
        if front := scenario.front_end:
            from kvsim.step_time.front_end import behind  # few scenarios have one

            engine = scenario.scheduler_of(scenario.allocator[0]).engine
            tuned = bool(getattr(scenario.step_time, "tuned", False))
            self.front_end = front.of(engine, self.model.kind, tuned=tuned)
            self.stream = behind(self.stream, self.front_end, front.clients_of(scenario.workload))

    @cached_property
    def known_before(self) -> tuple[tuple[str, str], ...]:
        """Notes known before any run: on the pool, on unused keys, on a disabled prefix cache."""
        asked, parts = self.stream.requests, (self.scenario, self.model, self.devices, self.drafter)
        adapters = not asked or any(each.adapter is not None for each in asked)
        priorities = len({each.priority for each in asked}) > 1
        found = known_before(
            *parts, self.pool, self.stages, adapters=adapters, priorities=priorities
        )
        if self.stream.anonymous:
            return found
        every = self.scenario.allocator
        off = (cache_left_off(each, self.replica_spec(each).memory_spec()) for each in every)
        return (*found, *dict.fromkeys(chain.from_iterable(off)))

    def result(
        self,
        progress: Progress | None = None,
        *,
        addresses: bool = False,
        spread: "Spread | None" = None,
    ) -> Result:
        """Run all allocators; for a fleet, there is one run for each replica. addresses: log the
        addresses of KV over time. spread: function that serves the cells of a fleet elsewhere.
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
        return Result(self.resolved(), every, fleets=fleets, html=_html)

    @property
    def num_gpus(self) -> int:
        """Number of GPUs that serve the requests; for a fleet, of one member."""
        return self.scenario.model.num_gpus if self.apart is None else self.apart.gpus

    def part(self, options: AllocatorOptions) -> AnyPart:
        """The specification of a fleet member with this allocator."""
        if self.apart is not None:
            return self.apart.part(self.scenario.allocator.index(options))
        return FleetPart(self.replica_spec(options), self.step_time)

    def traced(
        self, options: AllocatorOptions, label: str, progress: Progress | None = None
    ) -> Run:
        """Run one allocator, with a log of the addresses that each sequence held over time."""
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
        """Run one allocator over all requests."""
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
        """The run of a member that has served `num_requests` requests. began_s: time when the
        simulation began; num_lost: requests lost when the member failed.
        """
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
            verified=replica.scheduler.verifier,
            shareable=shareable,
            known_before=self.known_before,
        )
        return Run.recorded(summary, replica.recorder).with_links(tier_links(replica.tiers))

    def resolved(self) -> dict[str, Any]:
        """The scenario with every default written out, and where its inputs came from."""
        return resolved(self)


def _html(result: Result) -> str:
    from kvsim.report.notebook import html  # a terminal needs none of it

    return html(result)


def _apart(scenario: Scenario) -> "DisaggregatedRuns":
    from kvsim.simulation.prefill_decode import DisaggregatedRuns  # as above

    return DisaggregatedRuns(scenario, _side_ready)


def _fleet(simulation: Simulation) -> "FleetSimulation":
    from kvsim.simulation.fleet import FleetSimulation  # as above

    fleet = FleetSimulation(simulation, _replica_ready)
    fleet.check()
    return fleet


def _replica_ready(scenario: Scenario) -> Simulation:
    """The scenario of a fleet replica that differs from the others, ready to run; it gets the
    fleet's requests.
    """
    return Simulation(scenario, (), in_fleet=True)
