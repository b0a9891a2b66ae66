"""Invariants of every eviction policy, whatever content it evicts first."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.auditor import Auditor
from support.cases import SCHEDULERS, streams
from support.outcomes import STEP_TIME, outcome

import kvsim
from kvsim.memory.paged.eviction import EVICTION_POLICIES
from kvsim.memory.paged.eviction.arc import Adaptive, Arc
from kvsim.memory.paged.options import Paged
from kvsim.plumbing.errors import InputError
from kvsim.request import Request
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation
from kvsim.whatif.cache_curve.policies import policy_run

POLICIES = sorted(EVICTION_POLICIES)
MODELS = ["opt-125m", "gemma-3-1b"]  # one block table a sequence, and several
STIRRED = settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
UNDER = [SCHEDULERS[at] for at in (0, 1, 5, 8, 11)]


@st.composite
def returning(draw: st.DrawFn) -> list[Request]:
    """Streams in which some prompts are repeated, and some requests belong to a session."""
    requests = draw(streams())
    again = [
        each._replace(id=f"{each.id}again", arrival_ps=each.arrival_ps + 10**12, after=None)
        for each in requests
        if draw(st.booleans())
    ]
    found = sorted([*requests, *again], key=lambda each: each.arrival_ps)
    return [
        each._replace(session=draw(st.sampled_from([None, "a", "b"])), priority=0) for each in found
    ]


def made(
    tables: Any, policy: str, scheduler: dict[str, Any], tokens: int, model: str = MODELS[0]
) -> dict[str, Any]:
    table: dict[str, Any] = tables(
        allocator=[{"kind": "paged", "block_size": 16, "eviction_policy": policy}],
        scheduler=scheduler,
        memory={"kv_cache_tokens": tokens},
        model={"name": model, "max_model_len": 1024},
        step_time=STEP_TIME,
    )
    return table


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("policy", POLICIES)
@STIRRED
@given(requests=returning(), scheduler=st.sampled_from(UNDER[:3]))
def test_runs_of_k_steps_equal_single_steps(
    tables: Any, policy: str, model: str, requests: list[Request], scheduler: dict[str, Any]
) -> None:
    for tokens in 1024, 1700:
        table = made(tables, policy, scheduler, tokens, model)
        expected = outcome(table, requests, 1)
        assert outcome(table, requests, None) == expected
        assert outcome(table, requests, 3) == expected


@pytest.mark.parametrize("policy", POLICIES)
@STIRRED
@given(requests=returning(), scheduler=st.sampled_from(UNDER))
def test_ledger_is_consistent_and_no_policy_exceeds_beladys_bound(
    tables: Any, policy: str, requests: list[Request], scheduler: dict[str, Any]
) -> None:
    simulation = Simulation(Scenario.from_table(made(tables, policy, scheduler, 1024)), requests)
    (options,) = simulation.scenario.allocator
    auditor = Auditor()
    first = simulation.run(options, "audited", observer=auditor).summary
    assert auditor.events >= 2
    assert isinstance(options, Paged)
    again = policy_run(simulation, options, "audited")
    assert {**first, "wall_s": 0} == {**again.summary, "wall_s": 0}
    assert again.most_hit_tokens is not None
    assert again.hit_tokens <= again.most_hit_tokens


@pytest.mark.parametrize("policy", POLICIES)
@STIRRED
@given(requests=returning(), blocks=st.integers(40, 90))
def test_no_eviction_policy_exceeds_beladys_bound_for_sequential_requests(
    tables: Any, policy: str, requests: list[Request], blocks: int
) -> None:
    scheduler = {"kind": "continuous", "max_num_seqs": 1, "max_num_batched_tokens": 4096}
    table = made(tables, policy, scheduler, 16 * blocks)
    simulation = Simulation(Scenario.from_table(table), requests)
    (options,) = simulation.scenario.allocator
    assert isinstance(options, Paged)
    found = policy_run(simulation, options, policy)
    assert found.most_hit_tokens is not None
    assert found.hit_tokens <= found.most_hit_tokens


@pytest.mark.parametrize("model", MODELS)
def test_eviction_policy_is_notified_of_every_eviction(
    tables: Any, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The policy is called block by block with the name under which each was registered; ARC's
    ghosts need this.
    """
    held: dict[int, int] = {}
    given_up: list[tuple[int, int | None]] = []

    class Listening(Adaptive):
        def registered(self, block: int, key: int) -> None:
            held[block] = key
            super().registered(block, key)

        def forgotten(self, block: int, key: int | None) -> None:
            assert key == held.pop(block, None)
            given_up.append((block, key))
            super().forgotten(block, key)

    monkeypatch.setattr(Arc, "build", lambda self, blocks, tokens: Listening(blocks))
    requests = [Request(f"r{at}", at * 10**12, 300, 20, prompt_runs=((1000 * (at % 5), 300),))
                for at in range(15)]  # fmt: skip
    kvsim.simulate(made(tables, "arc", {"kind": "continuous"}, 1024, model), requests)
    assert sum(key is not None for _, key in given_up) >= 50


@STIRRED
@given(requests=returning(), scheduler=st.sampled_from(UNDER))
def test_default_eviction_policy_is_lru(
    tables: Any, requests: list[Request], scheduler: dict[str, Any]
) -> None:
    table = made(tables, "lru", scheduler, 1024)
    silent = {**table, "allocator": [{"kind": "paged", "block_size": 16}]}
    assert outcome(table, requests, None) == outcome(silent, requests, None)


def test_eviction_policies_evict_different_content(tables: Any) -> None:
    """A short and urgent prompt that came three times, in a session, and comes again after a flood
    of long ones that come once: only by when it was used last is it the first to go.
    """
    hot = (1 << 50, 129)
    prompts = [hot, hot, hot, *((at << 20, 300) for at in range(5)), hot]
    requests = [
        Request(
            f"r{at}",
            at * 10**13,
            runs[1],
            2,
            prompt_runs=(runs,),
            session="s" if runs is hot else None,
            priority=0 if runs is hot else 5,
        )
        for at, runs in enumerate(prompts)
    ]
    for policy in POLICIES:
        table = made(tables, policy, {"kind": "continuous"}, 1024)
        (run,) = kvsim.simulate(table, requests).runs
        found = run.summary["prefix_cache"]["hit_tokens"] - 2 * 128
        assert found == (0 if policy == "lru" else 128), policy


@pytest.mark.parametrize("policy", POLICIES)
def test_eviction_policy_without_a_prefix_cache_is_refused(tables: Any, policy: str) -> None:
    table = made(tables, policy, {"kind": "continuous"}, 1024)
    table["allocator"][0]["enable_prefix_caching"] = False
    with pytest.raises(InputError, match="eviction_policy changes nothing"):
        Scenario.from_table(table)
