"""The time between clients and the engine: in TTFT and E2E, not in TPOT, and in closed loops."""

from typing import Any

import pytest
from support.scenarios import steady

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_MS
from kvsim.report.remarks import remarks
from kvsim.request import Request, Stream
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation, simulate
from kvsim.step_time.front_end import FrontEnd, behind, front_end

LOOP = {
    "kind": "synthetic",
    "num_requests": 60,
    "prompt": {"kind": "fixed", "tokens": 400},
    "output": {"kind": "fixed", "tokens": 50},
    "arrivals": {
        "kind": "closed-loop",
        "num_users": 6,
        "think": {"kind": "fixed", "seconds": 0.0},
    },
}


def scenario(**changes: Any) -> dict[str, Any]:
    return steady(40) | {"allocator": [{"kind": "paged"}]} | changes


def summary(table: dict[str, Any]) -> Any:
    return simulate(table).runs[0].summary


def test_constant_front_end_delays_an_open_loop_and_adds_to_ttft():
    plain = summary(scenario())
    later = summary(scenario(front_end={"request_ms": 250, "token_ms": 0, "client_ms": 0}))
    for name, more in (("ttft_s", 0.25), ("e2e_s", 0.25), ("queue_s", 0.25), ("tpot_s", 0.0)):
        assert later[name]["mean"] == pytest.approx(plain[name]["mean"] + more, abs=1e-9)


def test_front_end_delays_and_counts_closed_loop_users():
    given = {"request_ms": 40, "token_ms": 0.1, "client_ms": 10}
    plain, later = (summary(scenario(workload=LOOP) | {"front_end": each} if each else
                            scenario(workload=LOOP)) for each in ({}, given))  # fmt: skip
    spent_s = (40 + 0.1 * 400 + 10 * 6) / 1e3
    assert plain["ttft_s"]["mean"] + 0.5 * spent_s < later["ttft_s"]["mean"]
    assert later["makespan_s"] > plain["makespan_s"] + 8 * spent_s  # ten rounds of six users
    assert later["tpot_s"]["mean"] == pytest.approx(plain["tpot_s"]["mean"], rel=0.2)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_fitted_front_end_constants_can_be_overridden(engine):
    fitted = front_end(engine, "no such architecture")
    assert fitted is not None
    assert fitted.ms(1000, 8) > 5
    schedulers = {"vllm": {"kind": "continuous"}, "sglang": {"kind": "sglang"}}
    allocators = {"vllm": {"kind": "paged"}, "sglang": {"kind": "radix"}}
    table = scenario(scheduler=schedulers[engine], allocator=[allocators[engine]])
    ready = Simulation(Scenario.from_table(table | {"front_end": {"client_ms": 1.5}}))
    usual = front_end(engine, "llama", tuned=False)
    assert ready.front_end == usual._replace(client_ms=1.5)
    note = " ".join(remarks(simulate(table | {"front_end": {"client_ms": 1.5}})))
    assert "Latencies begin at the client" in note
    assert "1.5 ms for each client" in note


def test_engine_without_fitted_front_end_requires_all_constants():
    table = scenario(scheduler={"kind": "static", "max_num_seqs": 4}, front_end={})
    with pytest.raises(InputError, match=r"front_end.request_ms.*no front end"):
        simulate(table)


def test_requests_reach_the_engine_in_order_of_front_end_completion():
    long, short = Request("long", 0, 9000, 1), Request("short", PS_PER_MS, 10, 1)
    follower = Request("next", 0, 10, 1, after="long", think_ps=5)
    front = FrontEnd(1.0, 0.01)
    once = behind(Stream((long, short, follower)), front, 1)
    assert [each.id for each in once.requests] == ["short", "long", "next"]
    assert [each.arrival_ps - each.front_end_ps for each in once.requests[:2]] == [PS_PER_MS, 0]
    assert once.requests[2].think_ps == 5 + round(1.1 * PS_PER_MS)
    assert behind(once, front, 1) == once
