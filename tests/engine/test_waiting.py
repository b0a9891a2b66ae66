"""The length of the waiting queue over time, against the requests' own times."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from support.cases import streams

import kvsim
from kvsim.plumbing.units import PS_PER_MS, PS_PER_S
from kvsim.request import Request

STEP = {"kind": "linear", "base_us": 8000}


def test_idle_engine_has_no_waiting_requests(tables: Any) -> None:
    # b comes 3 ms into a's second step of 8 ms and waits 5 ms for the next; c finds nobody.
    requests = [
        Request("a", 0, 10, 4),
        Request("b", 11 * PS_PER_MS, 10, 1),
        Request("c", PS_PER_S, 10, 1),
    ]
    made = tables(allocator=[{"kind": "paged"}], step_time=STEP)
    (run,) = kvsim.simulate(made, requests).runs
    rows = run.memory
    spans = rows.end_ps - rows.start_ps
    assert (rows.num_waiting * spans).sum() == 0  # at no beginning of a step did anybody wait
    assert rows.num_waiting[rows.steps == 0].eq(0).all()
    assert run.recorder.waiting_sum == 5 * PS_PER_MS
    total_s = run.recorder.total_ps / PS_PER_S
    assert run.summary["waiting_mean"] == pytest.approx(0.005 / total_s)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(requests=streams())
def test_queue_length_integral_equals_the_sum_of_waits(
    tables: Any, requests: list[Request]
) -> None:
    made = tables(
        allocator=[{"kind": "paged"}],
        step_time=STEP,
        scheduler={"kind": "continuous", "max_num_seqs": 3},
        memory={"kv_cache_tokens": 1 << 17},
    )
    (run,) = kvsim.simulate(made, requests).runs
    assert run.summary["preemptions"] == 0
    done = run.requests
    assert run.recorder.waiting_sum == int((done.scheduled_ps - done.arrival_ps).sum())
