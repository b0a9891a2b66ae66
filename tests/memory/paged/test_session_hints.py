"""Hints of sessions: pins lapse, ended sessions go first, and time does not depend on leaps."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.outcomes import STEP_TIME, outcome

import kvsim
from kvsim.plumbing.units import PS_PER_S
from kvsim.request import Request

HOT = ((1 << 50, 129),)
END = 40 * PS_PER_S


def made(tables: Any, **policy: Any) -> dict[str, Any]:
    table: dict[str, Any] = tables(
        allocator=[
            {
                "kind": "paged",
                "block_size": 16,
                "eviction_policy": {"kind": "session-hints", **policy},
            }
        ],
        scheduler={"kind": "continuous", "max_num_seqs": 4},
        memory={"kv_cache_tokens": 1024},
        model={"name": "opt-125m", "max_model_len": 1024},
        step_time=STEP_TIME,
    )
    return table


def flood(at_s: int, name: str, session: str | None = None) -> list[Request]:
    """Five private prompts of 300 tokens, one each second."""
    return [
        Request(
            f"{name}{index}",
            (at_s + index) * PS_PER_S,
            300,
            2,
            prompt_runs=(((ord(name) * 100 + index) << 20, 300),),
            session=session,
        )
        for index in range(5)
    ]


@pytest.mark.parametrize(
    ("policy", "found"),
    [
        ({"ttl_s": 60}, 128),
        ({"ttl_s": 2}, 0),  # lapsed before the flood ends
        ({"ttl_s": 60, "pinned": 0.01}, 0),  # no block may be pinned
    ],
)
def test_content_of_a_paused_session_stays_pinned_for_its_ttl(
    tables: Any, policy: dict[str, Any], found: int
) -> None:
    requests = [
        Request("a", 0, 129, 2, prompt_runs=HOT, session="s"),
        *flood(10, "f"),
        Request("b", END, 129, 2, prompt_runs=HOT, session="s"),
    ]
    (run,) = kvsim.simulate(made(tables, **policy), requests).runs
    assert run.requests.cached_tokens.tolist()[-1] == found


@pytest.mark.parametrize(("pause_s", "found"), [(30, 128), (90, 0)])
def test_known_pause_pins_only_sessions_that_return_within_the_ttl(
    tables: Any, pause_s: int, found: int
) -> None:
    requests = [
        Request("a", 0, 129, 2, prompt_runs=HOT, session="s"),
        *flood(10, "f"),
        Request(
            "b", 0, 129, 2, prompt_runs=HOT, session="s", after="a", think_ps=pause_s * PS_PER_S
        ),
    ]
    (run,) = kvsim.simulate(made(tables, ttl_s=60, knows_pause=True), requests).runs
    assert run.requests.set_index("id").cached_tokens["b"] == found
    (run,) = kvsim.simulate(made(tables, ttl_s=100), requests).runs
    assert run.requests.set_index("id").cached_tokens["b"] == 128


@pytest.mark.parametrize(("releases", "found"), [(True, 128), (False, 0)])
def test_ended_session_is_evicted_before_content_without_hints(
    tables: Any, releases: bool, found: int
) -> None:
    """A prompt without session, then a session of large prompts that ends: what it left goes for
    what comes next, though it is younger.
    """
    requests = [
        Request("a", 0, 129, 2, prompt_runs=HOT),
        Request("s0", 2 * PS_PER_S, 500, 2, prompt_runs=((7 << 30, 500),), session="s"),
        Request("s1", 3 * PS_PER_S, 800, 2, prompt_runs=((7 << 30, 800),), session="s"),
        *flood(10, "f")[:2],
        Request("b", END, 129, 2, prompt_runs=HOT),
    ]
    table = made(tables, releases=releases, ttl_s=1)
    (run,) = kvsim.simulate(table, requests).runs
    assert run.requests.cached_tokens.tolist()[-1] == found


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), asynchronous=st.booleans(), ttl=st.sampled_from([0.02, 0.3, 2.0]))
def test_pins_expire_between_the_same_steps_in_runs_of_steps(
    tables: Any, data: st.DataObject, asynchronous: bool, ttl: float
) -> None:
    requests = []
    arrival_ps = 0
    for index in range(data.draw(st.integers(4, 12))):
        arrival_ps += data.draw(st.sampled_from([0, PS_PER_S // 50, PS_PER_S // 2]))
        session = data.draw(st.sampled_from(["a", "b", "c", None]))
        start = 1 << (40 + (0 if session is None else ord(session) - 96))
        length = data.draw(st.sampled_from([40, 130, 300]))
        outputs = data.draw(st.sampled_from([1, 30, 200]))
        requests.append(
            Request(
                f"r{index}",
                arrival_ps,
                length,
                outputs,
                prompt_runs=((start, length),),
                output_start=(index + 1) << 24,
                session=session,
            )
        )
    table = made(tables, ttl_s=ttl)
    table["scheduler"]["async_scheduling"] = asynchronous
    single = outcome(table, requests, 1)
    assert outcome(table, requests, None) == single
    assert outcome(table, requests, 3) == single
