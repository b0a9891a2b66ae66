"""Prompt tokens hit under each eviction policy, from full simulations, with Belady's upper bound
for the same order of requests.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from kvsim.engine.observer import Observer
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.memory.allocator import Allocator
from kvsim.memory.options import AllocatorOptions
from kvsim.memory.paged.allocator import PagedAllocator
from kvsim.memory.paged.eviction import EVICTION_POLICIES
from kvsim.memory.paged.options import Paged
from kvsim.plumbing.errors import InputError, InvariantError
from kvsim.plumbing.units import GIB
from kvsim.results.summary import RunSummary
from kvsim.scenario import Scenario
from kvsim.sequence import Sequence
from kvsim.simulation import Simulation
from kvsim.whatif.backends import BACKENDS
from kvsim.whatif.backends.processes import most_jobs
from kvsim.whatif.cache_curve.belady import CacheVisit, VisitEvent, most_hits
from kvsim.whatif.cache_curve.lru import kept_runs
from kvsim.whatif.cache_curve.run_costs import run_costs


class PolicyRun(NamedTuple):
    """A run under one eviction policy.

    query_tokens, hit_tokens: prompt tokens looked up and hit. most_hit_tokens: hits under Belady's
    MIN with the whole pool and host memory as cache; None if layers or samples have separate cache
    rules. summary: summary of the run.
    """

    policy: str
    query_tokens: int
    hit_tokens: int
    most_hit_tokens: int | None
    summary: RunSummary

    def as_dict(self) -> dict[str, Any]:
        """The run's entry in the JSON answer."""
        found = {"policy": self.policy, "found": self.ratio, "belady": self.most_ratio}
        recomputed = {"recomputed_tokens": self.summary.recomputed_tokens}
        return found | recomputed | run_costs(self.summary)

    @property
    def ratio(self) -> float:
        """Share of the prompt tokens that was hit."""
        return self.hit_tokens / self.query_tokens if self.query_tokens else 0.0

    @property
    def most_ratio(self) -> float | None:
        """Share of the prompt tokens that Belady's MIN would hit."""
        if self.most_hit_tokens is None:
            return None
        return self.most_hit_tokens / self.query_tokens if self.query_tokens else 0.0


class PolicyTask(NamedTuple):
    """A simulation under one eviction policy, for a backend. key: name of the policy. table: the
    scenario's tables. folder: base of its relative paths.
    """

    key: str
    table: dict[str, Any]
    folder: str

    def rows(self) -> tuple[PolicyRun]:
        """Simulate, and return the run as a single row."""
        simulation = Simulation(Scenario.from_table(self.table, Path(self.folder)))
        return (policy_run(simulation, _under(simulation, self.key), self.key),)


def compare_policies(
    simulation: Simulation, jobs: int | None, progress: Callable[[str], None] = lambda _: None
) -> Iterator[PolicyRun]:
    """Simulate the scenario's first paged allocator under each eviction policy.

    jobs: number of processes; None for one per CPU. progress: called with a text on the policies
    done and left. InputError if no allocator has a prefix cache.
    """
    scenario = simulation.scenario
    caching_paged(scenario.allocator)
    backend = BACKENDS.get("processes")(jobs=jobs)
    names = list(EVICTION_POLICIES)
    if (jobs or most_jobs()) == 1:
        for at, name in enumerate(names, 1):
            options, place = _under(simulation, name), f"policy {at} of {len(names)}"

            def told(where: str, place: str = place) -> None:
                progress(f"{place}, under {where}")

            yield policy_run(simulation, options, name, told)
        return
    progress(f"{len(names)} eviction policies side by side")
    table = scenario.model_dump(mode="json", exclude_none=True)
    tasks = [PolicyTask(name, table, str(scenario.folder.resolve())) for name in names]
    found: dict[str, PolicyRun] = {}
    for outcome in backend.run(tasks):
        if outcome.error is not None:
            raise (InputError if outcome.wrong_input else InvariantError)(outcome.error)
        (found[outcome.key],) = outcome.rows
        left = ", ".join(name for name in names if name not in found)
        progress(f"{len(found)} of {len(names)} eviction policies; left: {left or 'none'}")
    yield from (found[name] for name in names)


def _under(simulation: Simulation, name: str) -> Paged:
    """The first paged allocator with a prefix cache, changed to this eviction policy. The policy's
    options are those of the scenario if it uses this policy, else the defaults.
    """
    paged = caching_paged(simulation.scenario.allocator)
    policy, own = EVICTION_POLICIES.get(name), paged.eviction_policy
    if policy.hinted:
        simulation.stream = simulation.stream.with_hints()
    given = own if type(own) is policy else policy()
    return paged.model_copy(update={"eviction_policy": given})


def policy_run(
    simulation: Simulation,
    options: Paged,
    name: str,
    progress: Callable[[str], None] = lambda _: None,
) -> PolicyRun:
    """Simulate under these options, and compute Belady's bound. progress: called with a text such
    as `lru: 512 of 1,000 requests`.
    """
    visits = Visits()

    def moved(label: str, done: int, total: int) -> None:
        progress(f"{label}: {done:,} of {total:,} requests")

    summary = simulation.run(options, name, moved, visits).summary
    forks = options.sharing == "copy-on-write" or (
        options.sharing is None and simulation.replica_spec(options).scheduler.block_rules.forks
    )
    samples = any(request.n > 1 for request in simulation.stream.requests)
    most = None
    allocator = visits.allocator
    shares = forks and samples
    if isinstance(allocator, PagedAllocator) and allocator.one_table and not shares:
        host_bytes = int((options.host_cache_gib or 0.0) * GIB)
        num_blocks = allocator.pool.num_blocks - 1 + host_bytes // allocator.block_bytes
        most = most_hits(visits.visits, visits.moments, num_blocks, allocator.block_size)
    cache = summary.prefix_cache
    return PolicyRun(name, cache.query_tokens, cache.hit_tokens, most, summary)


def caching_paged(allocators: tuple[AllocatorOptions, ...]) -> Paged:
    """The first paged allocator with a prefix cache; InputError if there is none."""
    for options in allocators:
        if isinstance(options, Paged) and options.enable_prefix_caching:
            return options
    raise InputError(
        "what is kept and what goes is asked of a prefix cache in blocks",
        where="allocator",
        remedy='name one of kind = "paged" with enable_prefix_caching',
    )


class Visits(Observer):
    """Records when each sequence of a run was first admitted and when it ended, in order."""

    asks_blocks = False

    def __init__(self) -> None:
        self.visits: list[CacheVisit] = []
        self.moments: list[VisitEvent] = []
        self.allocator: Allocator | None = None
        self._numbers: dict[Sequence, int] = {}

    def planned(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        self.allocator = scheduler.allocator
        for seq, _, resumed in plan.admitted:
            if resumed:
                continue
            number = self._numbers[seq] = len(self.visits)
            left = seq.request._replace(output_start=seq.output_start)
            self.visits.append(CacheVisit(seq.prompt_tokens, kept_runs(left, outputs=True)))
            self.moments.append(VisitEvent(number, ends=False))

    def finished(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        for seq in plan.finishing:
            self.moments.append(VisitEvent(self._numbers.pop(seq), ends=True))
