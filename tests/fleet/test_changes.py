"""Replicas that die, start and are removed: everyone is served once, and the hours are counted."""

from typing import Any

import pytest
from support.fleets import ENGINES, TABLE
from support.scenarios import steady

from kvsim.fleet.load import Load
from kvsim.fleet.routers import ROUTERS
from kvsim.fleet.scaling import AUTOSCALERS
from kvsim.fleet.scaling.autoscaler import Autoscaler
from kvsim.fleet.scaling.options import FleetState
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_S
from kvsim.report.page import make_page
from kvsim.report.words import paragraphs
from kvsim.results.result import Result
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation, simulate

KINDS = {
    "queue": {"waiting": 2},
    "requests": {"ongoing": 8},
    "kv-use": {"kv_usage": 0.15},
    "rate": {"rate_per_s": 2},
    "hpa": {"kv_usage": 0.15, "waiting": 2},
}


def result(fleet: dict[str, Any], **changes: Any) -> Result:
    table = {**TABLE, "workload": {**TABLE["workload"], "think": {"kind": "fixed", "seconds": 1}}}
    return simulate({**table, **changes, "fleet": fleet})


def ids(found: Result) -> list[str]:
    return sorted(name for run in found.runs for name in run.requests["id"])


FAILURES = [{"at_s": 6.0, "replica": 1, "restart_s": 4.0}, {"at_s": 9.5, "replica": 0}]


@pytest.mark.parametrize("kind", ROUTERS.own)
def test_requests_of_a_dead_replica_are_served_elsewhere_once(kind: str) -> None:
    found = result({"replicas": 3, "router": kind, "failure": FAILURES})
    changes = found.fleets[0].changes
    assert changes is not None
    assert changes.moved_requests
    everyone = [each.id for each in Simulation(Scenario.from_table(TABLE)).stream.requests]
    assert ids(found) == sorted(everyone)
    assert found.fleets[0].requests.submitted == len(everyone)
    assert [life.ended for life in changes.lives] == ["died", "died", None, None]
    assert changes.replicas_peak == 3
    assert found.runs[3].recorder is not None
    assert min(found.runs[3].recorder.finished.column("first_scheduled_ps")) >= 10 * PS_PER_S


@pytest.mark.parametrize("at_s", [6.0, 6.37, 9.5])
def test_waits_on_a_dying_replica_count_until_it_dies(at_s: float) -> None:
    fleet = {"replicas": 2, "failure": [{"at_s": at_s, "replica": 0}]}
    # One sequence a replica, so that requests wait when it dies.
    few = {"scheduler": {**TABLE["scheduler"], "max_num_seqs": 1}}
    whole, single = (
        result(fleet, **few, **steps).runs[0].recorder for steps in ({}, {"max_steps": 1})
    )
    assert whole is not None
    assert single is not None
    assert whole.waiting_sum == single.waiting_sum > 0


@pytest.mark.parametrize("changes", ENGINES, ids=lambda each: ",".join(map(str, each)) or "paged")
def test_failed_replicas_of_every_engine_lose_no_request(changes: dict[str, Any]) -> None:
    found = result({"replicas": 2, "failure": FAILURES[:1]}, **changes)
    assert found.fleets[0].requests.finished == len(ids(found)) == len(set(ids(found)))


def test_gpus_count_from_the_start_to_the_end_of_a_replica() -> None:
    fleet = result({"replicas": 3, "failure": FAILURES, "price_per_gpu_hour": 3.6}).fleets[0]
    assert fleet.changes is not None
    begin = 0.0  # of the first arrival
    times = [(life.started_s, life.ended_s) for life in fleet.changes.lives]
    first = Simulation(Scenario.from_table(TABLE)).stream.requests[0].arrival_ps / PS_PER_S
    end = first + fleet.makespan_s
    spans = [(end if last is None else last) - max(start, first) for start, last in times]
    assert begin <= first
    assert fleet.gpu_hours == pytest.approx(sum(spans) / 3600)
    assert fleet.cost == pytest.approx(3.6 * fleet.gpu_hours)
    assert sum(fleet.memory.time_mean.values()) == pytest.approx(1)


def test_request_too_long_for_every_replica_is_rejected() -> None:
    found = result({"replicas": 1, "failure": [{"at_s": 5, "replica": 0}]})
    counts = found.fleets[0].requests
    assert counts.rejected
    assert counts.finished + counts.rejected == counts.submitted
    reasons = [reason for _, _, reason in found.runs[0].recorder.rejected]
    assert set(reasons) == {"no replica is left to serve it, and none will start"}


def test_requests_wait_for_a_replica_that_starts() -> None:
    found = result({"replicas": 1, "failure": [{"at_s": 5, "replica": 0, "restart_s": 30}]})
    assert found.fleets[0].requests.rejected == 0
    assert found.fleets[0].ttft_s.p99 > 20


@pytest.mark.parametrize("kind", AUTOSCALERS.own)
def test_autoscaler_between_equal_limits_gives_the_plain_fleet(kind: str) -> None:
    scaling = {"kind": kind, **KINDS[kind], "min_replicas": 2, "max_replicas": 2, "interval_s": 1}
    fixed, scaled = result({"replicas": 2}), result({"replicas": 2, "autoscaler": scaling})
    for one, other in zip(fixed.runs, scaled.runs, strict=True):
        ours, theirs = one.recorder, other.recorder
        assert ours is not None
        assert theirs is not None
        assert ours.finish_ps == theirs.finish_ps
        assert ours.time_sum == theirs.time_sum
    assert scaled.fleets[0].gpu_hours == pytest.approx(fixed.fleets[0].gpu_hours)


@pytest.mark.parametrize("kind", AUTOSCALERS.own)
def test_autoscalers_start_and_remove_replicas(kind: str) -> None:
    """More than one replica can do for a while, then little: replicas come and go."""
    table = steady(300)
    table["allocator"] = [{"kind": "paged"}]
    table["workload"]["arrivals"] = {"kind": "poisson", "rate_per_s": 12}
    scaling = {
        "kind": kind,
        **KINDS[kind],
        "interval_s": 1,
        "start_up_s": 3,
        "scale_down_after_s": 4,
        "max_replicas": 6,
    }
    fleet = {"replicas": 1, "router": "least-requests", "autoscaler": scaling}
    table["scheduler"] = {"kind": "continuous", "max_num_seqs": 16}
    found = simulate({**table, "fleet": fleet})
    assert len(set(ids(found))) == 300
    changes = found.fleets[0].changes
    assert changes is not None
    assert 1 < changes.replicas_peak <= 6
    assert 1 <= changes.replicas_mean <= changes.replicas_peak
    for life in changes.lives[1:]:
        assert life.ready_s is None or life.ready_s == pytest.approx(life.started_s + 3)
    assert "replicas at once" in " ".join(paragraphs(found))
    assert "paged #1" in make_page(found)


def state(waiting: list[int], arrivals: int = 0) -> FleetState:
    return FleetState(
        [Load(waiting=each, running=1, kv_usage=0.4) for each in waiting], arrivals, 2
    )


@pytest.mark.parametrize(
    ("kind", "loads", "replicas", "wanted"),
    [
        ("queue", [10, 10], 2, 10),  # of which a look starts four more at most
        ("queue", [2, 2, 1], 3, 3),  # 2.5 is not within a tenth of 3, but rounds up to it
        ("requests", [15, 15], 2, 4),
        ("kv-use", [0, 0], 2, 6),  # 0.8 pools in use at 0.15 each, rounded up
        ("rate", [0, 0], 2, 5),  # 18 requests in 2 s at 2 per second each
    ],
)
def test_replicas_wanted_are_the_load_over_the_target(
    kind: str, loads: list[int], replicas: int, wanted: int
) -> None:
    table = {"kind": kind, **KINDS[kind], "max_replicas": 20}
    options = AUTOSCALERS.parse(table, "autoscaler")
    found = Autoscaler(options, replicas).wanted(state(loads, 18), replicas, 0)
    limit = max(2 * replicas, replicas + 4)
    assert found == min(wanted, limit)


def test_hpa_target_that_needs_most_replicas_decides() -> None:
    """KV usage of 0.4 on both replicas needs 0.8 / 0.5 = 1.6 replicas; twelve waiting requests need
    12 / 2 = 6.
    """
    options = AUTOSCALERS.parse({"kind": "hpa", "kv_usage": 0.5, "waiting": 2}, "autoscaler")
    assert list(options.needed(state([6, 6]))) == [1.6, 6]
    assert Autoscaler(options, 2).wanted(state([6, 6]), 2, 0) == 6
    assert Autoscaler(options, 2).wanted(state([0, 1]), 2, 0) == 2


def test_scale_up_policy_limits_replicas_added_in_a_period() -> None:
    table = {"kind": "queue", "waiting": 1, "scale_up_pods": 1, "scale_up_percent": 0}
    options = AUTOSCALERS.parse({**table, "scale_up_period_s": 180, "max_replicas": 9}, "a")
    scaler, replicas, found = Autoscaler(options, 1), 1, []
    for at in range(15, 601, 15):
        replicas = scaler.wanted(state([99]), replicas, at * PS_PER_S)
        found.append(replicas)
    assert found == [2] * 12 + [3] * 12 + [4] * 12 + [5] * 4


def test_scaling_down_goes_to_the_largest_recent_wanted_number() -> None:
    options = AUTOSCALERS.parse({"kind": "queue", "waiting": 1, "scale_down_after_s": 30}, "a")
    scaler = Autoscaler(options, 4)
    found = [scaler.wanted(state([1] * num), 4, at * PS_PER_S) for at, num in ((20, 2), (40, 1))]
    assert found == [4, 2]  # at 40 s the four of the start are forgotten, the two are not
    assert scaler.wanted(state([1]), 2, 71 * PS_PER_S) == 1


@pytest.mark.parametrize(
    ("fleet", "said"),
    [
        ({"replicas": 2, "failure": [{"at_s": 1, "replica": 2}]}, r"failure\.0\.replica.*2"),
        ({"autoscaler": {"kind": "queue", "min_replicas": 3}}, r"limits.*3 to 10"),
        ({"autoscaler": {"kind": "queue", "group": 1}}, r"no such group"),
        ({"autoscaler": {"kind": "queue", "min_replicas": 3, "max_replicas": 2}}, "max_replicas"),
        ({"autoscaler": "rate"}, r"rate_per_s"),
        ({"autoscaler": "keda"}, r"queue"),
        ({"autoscaler": "hpa"}, r"at least one"),
    ],
)
def test_invalid_fleet_changes_are_refused_by_name(fleet: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=f"(?s){said}"):
        result(fleet)


def test_replica_failure_after_the_last_request_changes_nothing() -> None:
    plain = result({"replicas": 2})
    late = result({"replicas": 2, "failure": [{"at_s": 1e6, "replica": 0}]})
    assert late.fleets[0].requests.rejected == 0
    for one, other in zip(plain.runs, late.runs, strict=True):
        assert one.recorder is not None
        assert other.recorder is not None
        assert one.recorder.finish_ps == other.recorder.finish_ps
        assert one.recorder.series == other.recorder.series
