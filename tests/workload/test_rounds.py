"""Conversations in rounds: each turn begins when all have the answer to the turn before."""

from typing import Any

import pytest

import kvsim
from kvsim.plumbing.errors import InputError
from kvsim.request import Request
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation

SESSIONS = {
    "kind": "sessions",
    "num_sessions": 12,
    "max_tokens": "exact",
    "arrivals": {"kind": "poisson", "rate_per_s": 20},
    "turns": {"kind": "uniform", "min_tokens": 2, "max_tokens": 4},
    "prompt": {"kind": "fixed", "tokens": 64},
    "output": {"kind": "fixed", "tokens": 8},
    "think": {"kind": "fixed", "seconds": 0},
}


def table(**workload: Any) -> dict[str, Any]:
    return {
        "model": {"name": "opt-125m"},
        "device": {"name": "rtx-4090"},
        "memory": {"kv_cache_tokens": 4096},
        "allocator": [{"kind": "paged"}],
        "scheduler": {"kind": "continuous"},
        "step_time": {"kind": "linear", "base_us": 1000, "prefill_token_us": 20},
        "workload": {**SESSIONS, **workload},
    }


def turn_of(request: Request) -> int:
    return int(request.id.rpartition(".")[2])


@pytest.mark.parametrize("rounds", ["in-order", "random"])
def test_round_begins_after_the_last_answer_of_the_round_before(rounds: str) -> None:
    (run,) = kvsim.simulate(table(rounds=rounds)).runs
    requests = run.requests
    turns = requests["id"].str.rpartition(".")[2].astype(int)
    for turn in range(1, turns.max() + 1):
        before, after = requests[turns == turn - 1], requests[turns == turn]
        assert after["arrival_ps"].min() == before["finish_ps"].max()
    assert len(requests) == len(Simulation(Scenario.from_table(table())).stream.requests)


def test_random_rounds_change_the_order_but_not_the_prompts() -> None:
    streams = [
        Simulation(Scenario.from_table(table(rounds=rounds))).stream.requests
        for rounds in ("in-order", "random")
    ]
    assert [each.prompt_runs for each in streams[0]] == [each.prompt_runs for each in streams[1]]
    orders = [
        [each.session for each in sorted(stream, key=lambda r: r.think_ps) if turn_of(each) == 1]
        for stream in streams
    ]
    assert orders[0] == sorted(orders[0], key=lambda name: int(str(name)[1:]))
    assert orders[1] != orders[0]
    assert sorted(map(str, orders[1])) == sorted(map(str, orders[0]))


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        ({"rounds": "sorted"}, "in-order"),
        (
            {
                "rounds": "random",
                "arrivals": {
                    "kind": "closed-loop",
                    "num_users": 3,
                    "think": {"kind": "fixed", "seconds": 0},
                },
            },
            r"workload\.rounds",
        ),
    ],
)
def test_invalid_rounds_are_refused(workload: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Simulation(Scenario.from_table(table(**workload)))


def test_rounds_inside_a_beam_search_workload_are_refused() -> None:
    inner = {**SESSIONS, "rounds": "random"}
    outer = {**table(), "workload": {"kind": "beams", "beam_width": 2, "of": inner}}
    with pytest.raises(InputError, match="rounds wait"):
        Simulation(Scenario.from_table(outer))
