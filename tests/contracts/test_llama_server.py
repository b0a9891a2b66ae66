"""Invariants of every scheduler, checked for llama-server over its KV cells."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.auditor import Auditor
from support.cases import streams
from support.outcomes import CROWDED, STEP_TIME, check_tokens, outcome

import kvsim
from kvsim.plumbing.errors import InputError
from kvsim.request import Request
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation

SERVERS: list[dict[str, Any]] = [
    {},
    {"cache_ram": 0, "n_batch": 64},
    {"n_parallel": 2, "n_batch": 100, "cache_ram": 1},
    {"n_parallel": 3, "kv_unified": True, "cache_idle_slots": False, "cache_reuse": 8},
    {"n_parallel": 2, "context_shift": True, "slot_prompt_similarity": 0.5},
]
OPT = {"name": "opt-125m", "max_model_len": 1024}
WINDOWS = {"name": "gemma-3-1b", "max_model_len": 1024}
STIRRED = settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def made(tables: Any, server: dict[str, Any], tokens: int, model: dict[str, Any]) -> dict[str, Any]:
    cells: dict[str, Any] = {"kind": "cells"}
    if model is WINDOWS:
        cells["n_ubatch"] = 64
        if server.keys() & {"context_shift", "cache_reuse"}:
            cells["swa_full"] = True  # positions shift where no layer forgets tokens
    table: dict[str, Any] = tables(
        allocator=[cells],
        scheduler={"kind": "llama-server", **server},
        memory={"kv_cache_tokens": tokens},
        model=model,
        step_time=STEP_TIME,
    )
    return table


@pytest.mark.parametrize("server", SERVERS, ids=str)
@pytest.mark.parametrize("model", [OPT, WINDOWS], ids=lambda model: model["name"])
@STIRRED
@given(requests=streams(), tokens=st.sampled_from([1024, 1500, 4096]))
def test_runs_of_k_steps_equal_single_steps(
    tables: Any, server: Any, model: Any, requests: list[Request], tokens: int
) -> None:
    table = made(tables, server, tokens, model)
    expected = outcome(table, requests, 1)
    assert outcome(table, requests, None) == expected
    assert outcome(table, requests, 3) == expected


@pytest.mark.parametrize("server", SERVERS, ids=str)
@STIRRED
@given(requests=streams(), model=st.sampled_from([OPT, WINDOWS]))
def test_the_ledger_is_consistent_at_every_event(
    tables: Any, server: Any, model: Any, requests: list[Request]
) -> None:
    simulation = Simulation(Scenario.from_table(made(tables, server, 1024, model)), requests)
    (options,) = simulation.scenario.allocator
    auditor = Auditor()
    ends = simulation.run(options, "audited", observer=auditor).summary["requests"]
    assert auditor.events >= 2
    assert ends["finished"] + ends["rejected"] == ends["submitted"] == len(requests)


@pytest.mark.parametrize("server", SERVERS[:4], ids=str)  # a shift moves what was computed
@STIRRED
@given(requests=streams())
def test_llama_server_token_gaps_are_times_between_tokens(
    tables: Any, server: dict[str, Any], requests: list[Request]
) -> None:
    table = {**made(tables, server, 1024, OPT), **CROWDED, "max_steps": 1}
    check_tokens(Simulation(Scenario.from_table(table), requests))


def test_full_kv_cells_end_all_requests_with_an_error(tables: Any) -> None:
    """Three requests of 60 + 100 tokens in 256 cells, as recorded in S03: none of them finishes."""
    requests = [Request(f"r{at}", at, 60, 100) for at in range(3)]
    table = made(tables, {"n_parallel": 3, "kv_unified": True, "cache_ram": 0}, 256, OPT)
    (run,) = kvsim.simulate(table, requests).runs
    assert run.summary["requests"]["rejected"] == 3
    assert run.recorder.rejected[0][2] == "Context size has been exceeded."
    table["scheduler"].update(kv_unified=False)
    table["memory"] = {"kv_cache_tokens": 768}
    (run,) = kvsim.simulate(table, requests).runs
    assert run.summary["requests"]["finished"] == 3


def test_llama_server_scheduler_requires_the_cells_allocator(tables: Any) -> None:
    table = made(tables, {}, 1024, OPT)
    for allocator, said in (
        ({"kind": "paged"}, "keeps its slots in cells"),
        ({"kind": "cells", "semantics": "march-2025"}, "takes holes"),
        ({"kind": "cells", "kv_unified": True}, "leave both out"),
    ):
        with pytest.raises(InputError, match=said):
            kvsim.simulate({**table, "allocator": [allocator]}, [Request("r", 0, 5, 5)])


def test_overwritten_sliding_window_hits_nothing_without_checkpoints(tables: Any) -> None:
    """gemma-3-1b: a window of 512, 768 cells for it; an answer of 300 tokens overwrites those that
    a prompt of 600 needs.
    """
    requests = [
        Request(f"r{at}", at * 10**13, 600, 300, prompt_runs=((1 << 30, 600),)) for at in range(4)
    ]
    hits = {}
    for checkpoints in (0, 32):
        server = {"n_parallel": 1, "ctx_checkpoints": checkpoints, "cache_ram": 0}
        (run,) = kvsim.simulate(made(tables, server, 4096, WINDOWS), requests).runs
        hits[checkpoints] = run.summary["prefix_cache"]["hit_tokens"]
    assert hits[0] == 0
    assert hits[32] >= 3 * 500
