"""A run of k steps equals k single steps: `==`, for every allocator, placement and scheduler."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kvsim
from kvsim.memory import ALLOCATORS
from kvsim.memory.arena import PLACEMENTS
from kvsim.request import Request

ALLOCATOR_TABLES: list[dict[str, Any]] = [
    {"kind": "paged", "block_size": 16},
    {"kind": "paged", "block_size": 16, "enable_prefix_caching": False},
    {"kind": "paged", "block_size": 1},
    {"kind": "paged", "block_size": 64, "watermark": 0.1},
    *({"kind": "max-buffer", "reserve": r} for r in ("exact", "pow2", "declared-max")),
    *({"kind": "doubling", "initial_tokens": 32, "placement": p} for p in PLACEMENTS),
    {"kind": "doubling", "initial_tokens": 16, "factor": 1.5, "allocation_latency_us": 50},
    {"kind": "concatenation"},
]
SCHEDULERS: list[dict[str, Any]] = [
    {"kind": "continuous", "max_num_seqs": 8, "max_num_batched_tokens": 256},
    {"kind": "continuous", "max_num_seqs": 16, "async_scheduling": True},
    {"kind": "continuous", "policy": "priority", "max_num_batched_tokens": 64},
    {"kind": "continuous", "long_prefill_token_threshold": 40, "max_num_batched_tokens": 128},
    {"kind": "continuous", "max_num_seqs": 12, "max_num_batched_tokens": 8},
    {"kind": "continuous", "semantics": "vllm-0.11", "max_num_seqs": 8},
]


@st.composite
def streams(draw: st.DrawFn) -> list[Request]:
    """Bursts and gaps, shared prefixes, outputs other prompts name, followers, priorities."""
    requests: list[Request] = []
    now = 0
    for index in range(draw(st.integers(1, 14))):
        now += draw(st.sampled_from([0, 0, 10**9, 10**11, 5 * 10**11, 3 * 10**12]))
        prompt = draw(st.integers(1, 400))
        shared = draw(st.integers(0, prompt))
        runs: tuple[tuple[int, int], ...] | None = (
            (1 << 40, shared),
            (index << 20, prompt - shared),
        )
        named = draw(st.booleans())
        after = None
        if requests and draw(st.integers(0, 4)) == 0:
            before = requests[-1]
            after = before.id
            if before.prompt_runs is not None and before.output_start is not None:
                history = (*before.prompt_runs, (before.output_start, before.output_tokens))
                runs = (*history, (index << 20, prompt))
                prompt = sum(length for _, length in runs)
                named = True
        requests.append(
            Request(
                id=f"r{index}",
                arrival_ps=now,
                prompt_tokens=prompt,
                output_tokens=(output := draw(st.integers(1, 200))),
                max_tokens=output + draw(st.integers(0, 100)),
                priority=draw(st.integers(0, 2)),
                prompt_runs=runs if named else None,
                output_start=(1 << 50) + (index << 20) if named else None,
                after=after,
                think_ps=draw(st.sampled_from([0, 10**10, 10**12])),
            )
        )
    return requests


def outcome(tables: dict[str, Any], requests: list[Request], max_steps: int | None) -> Any:
    scenario = dict(tables) if max_steps is None else {**tables, "max_steps": max_steps}
    result = kvsim.simulate(scenario, requests)
    (run,) = result.runs
    summary = {key: value for key, value in run.summary.items() if key != "wall_s"}
    recorder = run.recorder
    sums = (recorder.time_sum, recorder.step_sum, recorder.running_sum, recorder.total_ps)
    return summary, sums, run.requests.to_dict("records")


@pytest.mark.parametrize(
    "scheduler", SCHEDULERS, ids=lambda table: "-".join(map(str, table.values()))
)
@pytest.mark.parametrize(
    "allocator", ALLOCATOR_TABLES, ids=lambda table: "-".join(map(str, table.values()))
)
@settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(requests=streams(), tokens=st.sampled_from([1024, 1500, 2048]))
def test_runs_of_k_steps_equal_single_steps(
    tables: Any, allocator: Any, scheduler: Any, requests: list[Request], tokens: int
) -> None:
    made = tables(
        allocator=[allocator],
        scheduler=scheduler,
        memory={"kv_cache_tokens": tokens},
        model={"name": "opt-13b", "max_model_len": 1024},
    )
    assert outcome(made, requests, None) == outcome(made, requests, 1)
    assert outcome(made, requests, 3) == outcome(made, requests, 1)


def test_every_allocator_is_compared() -> None:
    assert {table["kind"] for table in ALLOCATOR_TABLES} == set(ALLOCATORS)
