"""Timestamps of requests over prefill and decode replicas: none finishes before its first token."""

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kvsim
from kvsim.request import Request

asks = st.lists(
    st.tuples(
        st.integers(0, 10), st.integers(18, 40), st.sampled_from([1, 1, 5, 42]), st.integers(1, 3)
    ),
    min_size=2,
    max_size=7,
)


def check(tables: Any, requests: list[Request], tokens: int = 128) -> None:
    made = tables(
        allocator=[{"kind": "radix"}],
        scheduler={"kind": "sglang"},
        memory={"kv_cache_tokens": 48},
        disaggregation={
            "link_latency_us": 5000,
            "num_reserved_decode_tokens": 0,
            "decode": {"memory": {"kv_cache_tokens": tokens}},
        },
    )
    for run in kvsim.simulate(made, requests).runs:
        rows = run.requests[run.requests.status == "finished"]
        moments = rows[["arrival_ps", "scheduled_ps", "first_token_ps", "finish_ps"]].to_numpy()
        assert (np.diff(moments, axis=1) >= 0).all()


def test_single_output_token_waits_for_the_copies_of_a_retraction(tables: Any) -> None:
    """The pass that finishes the request waits for the copies of a retracted request."""
    drawn = [(0, 21, 42, 1), (2, 21, 41, 3), (4, 20, 1, 1), (10, 39, 5, 1)]
    check(
        tables, [Request(f"r{at}", 1000 * ns, p, o, n=n) for at, (ns, p, o, n) in enumerate(drawn)]
    )


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(drawn=asks, tokens=st.sampled_from([96, 128, 200]))
def test_timestamps_of_a_transferred_request_are_ordered(
    tables: Any, drawn: list[tuple[int, ...]], tokens: int
) -> None:
    requests = [
        Request(f"r{at}", 1000 * ns, prompt, output, n=n)
        for at, (ns, prompt, output, n) in enumerate(sorted(drawn))
    ]
    check(tables, requests, tokens)
