"""A fleet of one replica equals the replica alone; round-robin replicas equal runs of their
requests, to the bit.
"""

from dataclasses import replace
from typing import Any

import pytest
from support.fleets import ENGINES, TABLE

from kvsim.engine.replica import Replica, assemble
from kvsim.fleet.fleet import Fleet, FleetPart
from kvsim.fleet.routers import ROUTERS
from kvsim.fleet.routers.options import FleetView
from kvsim.request import Request, Stream
from kvsim.results.recorder import Recorder
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation


def written(replica: Replica) -> tuple[Any, ...]:
    """All that a recorder has written down, as bytes and integers."""
    recorder: Recorder = replica.recorder
    columns = ("arrival_ps", "first_scheduled_ps", "first_token_ps", "hit_tokens")
    return (
        recorder.series.tobytes(),
        recorder.time_sum,
        recorder.waiting_sum,
        recorder.marks.tobytes(),
        sorted(zip(recorder.gaps[0::4], recorder.gaps[1::4], recorder.gaps[2::4], strict=True)),
        recorder.finish_ps.tobytes(),
        *(recorder.finished.column(name).tobytes() for name in columns),
        replica.scheduler.allocator.cache_totals(),
        replica.scheduler.num_preemptions,
    )


def prepared(**changes: Any) -> Simulation:
    return Simulation(Scenario.from_table({**TABLE, **changes}))


def fleet_of(
    simulation: Simulation, stream: Stream, count: int, kind: str = "round-robin", **kwargs: Any
) -> Fleet:
    spec = simulation.replica_spec(simulation.scenario.allocator[0])
    options = ROUTERS.parse({"kind": kind}, "router")
    view = FleetView(count, seed=3)
    fleet = Fleet(
        [FleetPart(spec, simulation.step_time)] * count,
        options.build(view),
        stream,
        reports=options.reports(view),
        report_interval_ps=options.report_interval_ps,
        **kwargs,
    )
    fleet.run()
    return fleet


@pytest.mark.parametrize("changes", ENGINES, ids=lambda each: ",".join(map(str, each)) or "paged")
@pytest.mark.parametrize("kind", ["round-robin", "llm-d-epp", "dynamo-kv", "sglang-dp"])
def test_one_replica_in_a_fleet_equals_the_replica_alone(
    changes: dict[str, Any], kind: str
) -> None:
    simulation = prepared(**changes)
    spec = simulation.replica_spec(simulation.scenario.allocator[0])
    alone = assemble(replace(spec, unwatched=True), simulation.stream, simulation.step_time)
    alone.run()
    fleet = fleet_of(simulation, simulation.stream, 1, kind, regret=kind == "round-robin")
    if kind == "llm-d-epp":  # which looks at the replica while runs of steps would last
        ours, theirs = written(fleet.replicas[0])[1:3], written(alone)[1:3]
        assert ours == theirs
    else:
        assert written(fleet.replicas[0]) == written(alone)


@pytest.mark.parametrize("count", [2, 3])
def test_round_robin_replicas_equal_runs_of_their_requests_alone(count: int) -> None:
    """Later turns arrive at fixed times, so that no request waits for one on another replica."""
    simulation = prepared()
    runs = [request for request in simulation.stream.requests if request.after is None]
    times = [
        Request(
            f"r{at}",
            at * 41 * 10**9,
            each.prompt_tokens,
            each.output_tokens,
            prompt_runs=each.prompt_runs,
        )
        for at, each in enumerate(runs * 4)
    ]
    fleet = fleet_of(simulation, Stream(tuple(times)), count)
    spec = simulation.replica_spec(simulation.scenario.allocator[0])
    for number, replica in enumerate(fleet.replicas):
        share = Stream(tuple(times[number::count]))
        alone = assemble(replace(spec, unwatched=True), share, simulation.step_time)
        alone.run()
        assert written(replica) == written(alone)
    assert [each.replica for each in fleet.routed] == [n % count for n in range(len(times))]


@pytest.mark.parametrize("kind", ROUTERS.own)
def test_every_router_serves_all_requests(kind: str) -> None:
    simulation = prepared()
    fleet = fleet_of(simulation, simulation.stream, 3, kind, regret=True)
    finished = sum(len(replica.recorder.finish_ps) for replica in fleet.replicas)
    assert finished == len(simulation.stream.requests) == len(fleet.routed)
    assert not any(fleet.router.open)
    for routed in fleet.routed:
        assert routed.best_tokens is not None
        assert routed.chosen_tokens is not None
        assert 0 <= routed.chosen_tokens <= routed.best_tokens


def test_session_affinity_hits_more_than_round_robin() -> None:
    """Conversations on four replicas with memory for all. With session affinity each turn hits the
    conversation's earlier turns.
    """
    simulation = prepared(memory={"kv_cache_tokens": 200_000})
    hits = {}
    for kind in ("round-robin", "consistent-hash", "cache-aware", "dynamo-kv"):
        fleet = fleet_of(simulation, simulation.stream, 4, kind)
        totals = [replica.scheduler.allocator.cache_totals() for replica in fleet.replicas]
        hits[kind] = sum(total.hit_tokens for total in totals)
    assert hits["consistent-hash"] > 2 * hits["round-robin"]
    assert hits["cache-aware"] > 1.5 * hits["round-robin"]
    assert hits["dynamo-kv"] > 1.5 * hits["round-robin"]
