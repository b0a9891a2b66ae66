"""Clients that send no request while max_concurrency requests are in flight."""

import heapq
from collections.abc import Mapping
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvsim
from kvsim.request import Request, Stream

STEP_S = 0.01
SCENARIO = {
    "model": {"name": "opt-125m"},
    "device": {"name": "l4"},
    "memory": {"kv_cache_tokens": 100_000},
    "allocator": {"kind": "paged"},
    "scheduler": {"kind": "continuous", "max_num_seqs": 512},
    "step_time": {"kind": "linear", "base_us": 1e6 * STEP_S},
}


def served(requests: tuple[Request, ...], most: int | None) -> pd.DataFrame:
    return kvsim.simulate(SCENARIO, Stream(requests, max_concurrency=most)).runs[0].requests


@settings(deadline=None, max_examples=50)
@given(
    gaps=st.lists(st.integers(0, 40), min_size=1, max_size=30),
    most=st.integers(1, 6),
    tokens=st.lists(st.integers(1, 9), min_size=30, max_size=30),
)
def test_max_concurrency_sends_a_due_request_when_another_finishes(
    gaps: list[int], most: int, tokens: list[int]
) -> None:
    """By a client written down here: steps are of one length and nothing waits for memory, so a
    request is answered `tokens` steps after the step that it joins.
    """
    step_ps, at, requests = round(STEP_S * 1e12), 0, []
    for index, gap in enumerate(gaps):
        at += gap * step_ps // 4
        requests.append(Request(f"r{index}", at, 10, tokens[index]))
    table = served(tuple(requests), most)
    sent = {row.id: row.arrival_ps for row in table.itertuples()}
    ended = {row.id: row.finish_ps for row in table.itertuples()}
    in_flight: list[int] = []
    for request in requests:
        due = request.arrival_ps
        while in_flight and in_flight[0] <= due:
            heapq.heappop(in_flight)
        expected = heapq.heappop(in_flight) if len(in_flight) == most else due
        assert sent[request.id] == expected
        heapq.heappush(in_flight, ended[request.id])


FLEET = {"fleet": {"replicas": 2, "router": "round-robin"}}
SPLIT = {"disaggregation": {"prefill": {}, "decode": {}, "link_gb_per_s": 2.0}}


@pytest.mark.parametrize("deployment", [{}, FLEET, SPLIT], ids=["one", "fleet", "split"])
@pytest.mark.parametrize("kind", ["synthetic", "sessions"])
def test_max_concurrency_is_never_exceeded_in_a_fleet(
    deployment: Mapping[str, Any], kind: str
) -> None:
    lengths = {"kind": "uniform", "min_tokens": 5, "max_tokens": 60}
    workload: dict[str, Any] = {
        "kind": kind, "prompt": lengths, "output": lengths,
        "arrivals": {"kind": "poisson", "rate_per_s": 500.0},
    }  # fmt: skip
    if kind == "sessions":
        workload |= {"num_sessions": 12, "turns": {"kind": "fixed", "tokens": 3}}
        workload["think"] = {"kind": "fixed", "seconds": 0.2}
    else:
        workload["num_requests"] = 60
    most = {}
    for limit in (4, None):
        limited = {"workload": workload | {"max_concurrency": limit}}
        runs = kvsim.simulate(SCENARIO | deployment | limited).runs
        # Both pools of a split deployment list a request, with its own times.
        rows = pd.concat(run.requests for run in runs).groupby("id")
        ends = [(time, -1) for time in rows["finish_ps"].max()]
        moves = sorted([*ends, *((time, 1) for time in rows["arrival_ps"].min())])
        number = most[limit] = 0
        for _, move in moves:
            number += move
            most[limit] = max(most[limit], number)
        assert len(rows) >= 36
    assert most[4] == 4 < most[None]


def test_max_concurrency_above_the_load_changes_nothing() -> None:
    requests = tuple(Request(f"r{at}", at * 10**9, 30, 20) for at in range(40))
    free, wide = (served(requests, most) for most in (None, 40))
    assert free.equals(wide)
