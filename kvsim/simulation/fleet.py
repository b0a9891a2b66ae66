"""Simulate scenarios with several replicas: each kind of replica is a scenario of its own; all
serve one stream of requests.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kvsim.engine.connectors.shared import Shared
from kvsim.engine.observer import Observer
from kvsim.fleet.cells import FleetCell, cells_of
from kvsim.fleet.checks import check_changes
from kvsim.fleet.members import AnyPart, FleetMember
from kvsim.fleet.options import FleetOptions
from kvsim.fleet.routers.options import FleetView
from kvsim.fleet.run import serve_fleet
from kvsim.memory.options import AllocatorOptions
from kvsim.plumbing.errors import InputError
from kvsim.request import Stream
from kvsim.results.fleet import FleetSummary, FleetTotals, summarise_fleet
from kvsim.results.lifetimes import Lifetime
from kvsim.results.result import Run
from kvsim.results.routing import RoutingSummary
from kvsim.scenario import Scenario
from kvsim.scenario.checks.shared_tiers import shared_by

if TYPE_CHECKING:
    from kvsim.engine.addresses.address_log import AddressLog


class ReplicaKind(Protocol):
    """A replica's scenario, ready to run, for one kind of fleet member."""

    scenario: Scenario

    @property
    def num_gpus(self) -> int: ...

    def part(self, options: AllocatorOptions) -> AnyPart: ...

    def resolved(self) -> dict[str, Any]: ...

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
    ) -> Run: ...


class FleetRuns(NamedTuple):
    """The runs of all replicas with one allocator, and the totals of the fleet."""

    runs: tuple[Run, ...]
    summary: FleetSummary


class CellRuns(NamedTuple):
    """The runs of the replicas of one cell with one allocator. lives, num_moved: see
    `FleetTotals`.
    """

    runs: tuple[Run, ...]
    routing: RoutingSummary
    lives: list[Lifetime] | None = None
    num_moved: int = 0


Spread = Callable[[str, list[FleetCell], bool], Iterable[CellRuns]]


class FleetSimulation:
    """A fleet scenario, ready to run: one replica scenario for each group of replicas.

    own: the scenario of replicas that no group changes. ready: prepares the scenario of a group.
    Raises InputError for a scenario that cannot run, before any allocator runs.
    """

    def __init__(self, own: ReplicaKind, ready: Callable[[Scenario], ReplicaKind]) -> None:
        fleet = own.scenario.fleet
        assert fleet is not None
        self.options: FleetOptions = fleet
        self._seed = own.scenario.seed
        self._kinds: list[tuple[ReplicaKind, bool]] = []  # and whether the allocator is its own
        groups = _kinds(fleet)
        for number, (count, changes) in enumerate(groups):
            kind = own
            if changes:
                with _within_group(number):
                    kind = ready(_changed(own.scenario, changes))
            self._kinds += [(kind, "allocator" in changes)] * count
        apart = [kind.scenario.disaggregation is not None for kind, _ in self._kinds]
        check_changes(fleet, apart, [count for count, _ in groups])
        before = 0 if fleet.autoscaler is None else fleet.autoscaler.group
        self._like = sum(count for count, _ in groups[:before])  # what an autoscaler's are like
        self.gpus = [kind.num_gpus for kind, _ in self._kinds]

    @property
    def kinds(self) -> Sequence[tuple[ReplicaKind, bool]]:
        """For each replica: its scenario, and whether it has an allocator of its own."""
        return self._kinds

    def check(self) -> None:
        """Raise InputError for a router that does not fit this fleet, and for tiers that its
        replicas cannot share.
        """
        self.options.build_router(FleetView(len(self._kinds)))
        shared, kinds = Shared(), dict.fromkeys(kind for kind, _ in self._kinds)
        for kind in filter(lambda kind: shared_by(kind.scenario), kinds):
            for options in kind.scenario.allocator:
                replace(kind.part(options).spec, shared=shared).build()

    def runs(
        self,
        options: AllocatorOptions,
        label: str,
        stream: Stream,
        progress: Callable[[str, int, int], None] | None = None,
        *,
        addresses: bool = False,
        spread: Spread | None = None,
        observer_of: Callable[[int], Observer] | None = None,
    ) -> FleetRuns:
        """Run the fleet with one allocator over all requests; a group with its own allocator uses
        that one.

        spread: function that serves the cells elsewhere (in parallel). observer_of: gives the
        observer of a replica, by number; addresses are then not logged.
        """
        began_s = time.perf_counter()
        shares = any(shared_by(kind.scenario) for kind, _ in self._kinds)
        cells = cells_of(self.options, len(self._kinds), stream, shares=shares)
        if spread is not None:
            served = list(spread(label, cells, addresses))
        else:
            served = []
            for cell in cells:
                moved = progress and _further(progress, served, len(stream.requests))
                served.append(
                    self.cell(
                        options, label, cell, moved, addresses=addresses, observer_of=observer_of
                    )
                )
        by_number = {
            number: run
            for cell, each in zip(cells, served, strict=True)
            for number, run in zip(cell.numbers, each.runs, strict=False)
        }
        runs = [by_number[number] for number in sorted(by_number)]
        for each in served:
            runs += each.runs[len(self._kinds) :]  # those that an autoscaler has started
        (first, *_) = served
        fleet = self.options
        summary = summarise_fleet(
            FleetTotals(
                label,
                RoutingSummary.together([each.routing for each in served]),
                [run.summary for run in runs],
                [run.recorder for run in runs if run.recorder is not None],
                self.gpus,
                fleet.price_per_gpu_hour,
                {str(name): limit_s for name, limit_s in fleet.objectives.items()},
                time.perf_counter() - began_s,
                first.lives,
                first.num_moved,
            )
        )
        return FleetRuns(tuple(runs), summary)

    def cell(
        self,
        options: AllocatorOptions,
        label: str,
        cell: FleetCell,
        progress: Callable[[str, int, int], None] | None = None,
        *,
        addresses: bool = False,
        observer_of: Callable[[int], Observer] | None = None,
    ) -> CellRuns:
        """Run one cell with one allocator; arguments as in `runs`."""
        chosen = [self._kinds[number] for number in cell.numbers]
        own = [kind.scenario.allocator[0] if its else options for kind, its in chosen]
        kinds = [kind for kind, _ in chosen]
        stream, logs = cell.stream, list["AddressLog"]()

        def log_of(number: int) -> "AddressLog":
            logs.append(_address_log())
            return logs[number]

        def place_of(number: int) -> int:
            return cell.numbers[number] if number < len(cell.numbers) else number

        def watch_of(number: int) -> Observer:
            return log_of(number) if observer_of is None else observer_of(place_of(number))

        watched, addresses = addresses or observer_of is not None, addresses and observer_of is None

        served = serve_fleet(
            self.options,
            [kind.part(each) for kind, each in zip(kinds, own, strict=True)],
            stream,
            self._seed,
            observer_of=watch_of if watched else None,
            like=self._like,
            progress=progress and partial(progress, label),
        )
        runs = []
        changes, members = served.fleet.changes, served.fleet.members
        single = len(self._kinds) == len(members) == 1
        for number, member in enumerate(members):
            like = number if changes is None else changes.lives[number].like
            run = kinds[like].recorded(
                member,
                own[like],
                label if single else f"{label} #{place_of(number)}",
                served.num_requests[number],
                served.began_s,
                shareable=not stream.anonymous,
                num_lost=0 if changes is None else changes.num_lost[number],
            )
            traced = addresses and not run.beside
            runs.append(run.with_addresses(logs[number].close()) if traced else run)
        if changes is None:
            return CellRuns(tuple(runs), served.routing)
        moved = changes.num_lost.total()
        return CellRuns(tuple(runs), served.routing, changes.lives, moved)


def _further(
    progress: Callable[[str, int, int], None], served: list[CellRuns], total: int
) -> Callable[[str, int, int], None]:
    """A progress callback for one cell that adds the requests of the cells served before."""
    before = sum(run.summary.requests.submitted for each in served for run in each.runs)
    return lambda label, left, _: progress(label, before + left, total)


def _kinds(fleet: FleetOptions) -> list[tuple[int, dict[str, Any]]]:
    """(number of replicas, tables that differ from the scenario) for each kind of replica."""
    if not fleet.group:
        return [(fleet.replicas or 1, {})]
    if fleet.replicas is not None:
        raise InputError(
            "replicas and groups of them exclude each other",
            where="fleet.replicas",
            value=fleet.replicas,
            remedy="give each group its own replicas",
        )
    return [
        (each.replicas, each.model_dump(exclude={"replicas"}, exclude_none=True))
        for each in fleet.group
    ]


def _changed(scenario: Scenario, changes: dict[str, Any]) -> Scenario:
    """The scenario of one replica, with a group's tables in place of the scenario's."""
    base = scenario.model_dump(mode="json", exclude_none=True, exclude={"fleet", "workload"})
    over = {**changes, "model": {**base["model"], **changes.get("model", {})}}
    return Scenario.from_table({**base, **over}, scenario.folder)


@contextmanager
def _within_group(number: int) -> Iterator[None]:
    """Add the number of the group to the location of any InputError."""
    try:
        yield
    except InputError as error:
        where = f"fleet.group.{number}.{error.where or ''}".rstrip(".")
        raise InputError(
            error.what, where=where, value=error.value, limit=error.limit, remedy=error.remedy
        ) from None


def _address_log() -> "AddressLog":
    from kvsim.engine.addresses.address_log import AddressLog

    return AddressLog()
