"""Invariants of every rule that chooses a preemption victim, and which schedulers use one."""

from collections.abc import Reversible
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.auditor import Auditor
from support.cases import VICTIM_SCHEDULERS, streams
from support.outcomes import CROWDED, STEP_TIME

import kvsim
from kvsim.engine.policies.victims import VICTIMS
from kvsim.engine.policies.victims.latest import Latest
from kvsim.engine.policies.victims.victim import Tokens
from kvsim.engine.schedulers import SCHEDULERS
from kvsim.plumbing.errors import InputError
from kvsim.request import Request
from kvsim.scenario import Scenario
from kvsim.sequence import Sequence
from kvsim.simulation import Simulation

RULES = sorted(VICTIMS)
RULES_OF_THEIR_OWN = {"sglang", "llama-server"}
SHARING = [{"kind": "paged", "block_size": 16}, {"kind": "radix", "page_size": 16}]


@pytest.mark.parametrize(
    "scheduler", VICTIM_SCHEDULERS, ids=lambda table: f"{table['kind']}-{table['victim']}"
)
@settings(
    max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(requests=streams())
def test_ledger_is_consistent_and_all_finish_under_every_victim_rule(
    tables: Any, scheduler: dict[str, Any], requests: list[Request]
) -> None:
    for allocator in *SHARING, {"kind": "doubling", "initial_tokens": 32}:
        made = tables(
            allocator=[allocator],
            scheduler=scheduler,
            **CROWDED,
        )
        simulation = Simulation(Scenario.from_table(made), requests)
        first, second = (
            simulation.run(simulation.scenario.allocator[0], "run", observer=observer).summary
            for observer in (Auditor(), None)
        )
        assert {**first, "wall_s": 0} == {**second, "wall_s": 0}
        ends = first["requests"]
        assert ends["finished"] + ends["rejected"] == len(requests)


@pytest.mark.parametrize("kind", sorted(SCHEDULERS))
def test_schedulers_use_the_given_victim_rule_or_refuse_it(
    tables: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    choose = Latest.choose

    def spy(
        self: Latest, running: Reversible[Sequence], computed: Tokens, shared: Tokens
    ) -> Sequence:
        asked.append(self)
        return choose(self, running, computed, shared)

    monkeypatch.setattr(Latest, "choose", spy)
    doubling = {"kind": "doubling", "initial_tokens": 16}
    made = tables(
        allocator=[doubling],
        scheduler={"kind": kind, "victim": "latest"},
        memory={"kv_cache_tokens": 700},
        model={"name": "opt-125m", "max_model_len": 512},
    )
    requests = [Request(f"r{at}", 0, 20, 200, max_tokens=200) for at in range(12)]
    if kind in RULES_OF_THEIR_OWN:
        with pytest.raises(InputError, match="leave victim out"):
            Scenario.from_table(made)
        return
    (run,) = kvsim.simulate(made, requests).runs
    assert asked
    assert run.summary["preemptions"] > 0


@pytest.mark.parametrize("allocator", SHARING, ids=lambda table: table["kind"])
def test_shared_prompt_blocks_do_not_count_as_recomputation(
    tables: Any, allocator: dict[str, Any]
) -> None:
    """Four requests share a long prompt, two have short private ones. By computed tokens the short
    ones are preempted; by tokens to recompute those with the shared prompt are.
    """
    recomputed = {}
    for rule in "least-computed", "least-recomputed":
        shared = [((1 << 40, 320), (at << 20, 1)) for at in range(4)]
        alone = [(((1 << 41) + (at << 20), 120),) for at in range(2)]
        requests = [
            Request(f"r{at}", at * 10**9, sum(n for _, n in runs), 150, prompt_runs=runs)
            for at, runs in enumerate([*shared, *alone])
        ]
        made = tables(
            allocator=[allocator],
            scheduler={"kind": "continuous", "victim": rule},
            memory={"kv_cache_tokens": 1024},
            model={"name": "opt-125m", "max_model_len": 1024},
        )
        (run,) = kvsim.simulate(made, requests).runs
        assert run.summary["preemptions"] > 0
        recomputed[rule] = run.summary["recomputed_tokens"] / run.summary["preemptions"]
    assert recomputed["least-recomputed"] < recomputed["least-computed"]


@st.composite
def running_sequences(draw: st.DrawFn) -> dict[Sequence, tuple[int, int]]:
    """Running sequences in order of admission, each with its computed and its shared tokens."""
    made: dict[Sequence, tuple[int, int]] = {}
    for at in range(draw(st.integers(1, 6))):
        arrival_ps, priority = draw(st.integers(0, 3)), draw(st.integers(0, 2))
        request = Request(f"r{at}", arrival_ps, 10, 10, priority=priority)
        computed = draw(st.integers(1, 5))
        made[Sequence(request, arrival_ps)] = computed, draw(st.integers(0, computed))
    return made


def chosen(rule: str, running: dict[Sequence, tuple[int, int]]) -> Sequence:
    """The sequence that a rule chooses; the rule asks about running sequences only and changes
    none.
    """
    before = list(running)
    victim = VICTIMS.get(rule)().choose(
        running, lambda seq: running[seq][0], lambda seq: running[seq][1]
    )
    assert list(running) == before
    return victim


@pytest.mark.parametrize("rule", RULES)
@given(running=running_sequences())
def test_victim_rules_are_pure_and_choose_running_sequences(
    rule: str, running: dict[Sequence, tuple[int, int]]
) -> None:
    first = chosen(rule, running)
    assert first in running
    chosen(rule, dict(list(running.items())[:1]))  # whatever was asked before
    assert chosen(rule, running) is first


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    "scheduler",
    [
        {"kind": "continuous", "scheduler_reserve_full_isl": False},
        {"kind": "trt-llm", "capacity_scheduler_policy": "max-utilization"},
    ],
    ids=lambda table: str(table["kind"]),
)
@pytest.mark.parametrize("free_blocks", range(1, 8))
def test_self_preemption_ends_the_running_loop(
    tables: Any, scheduler: dict[str, Any], rule: str, free_blocks: int
) -> None:
    """All sequences need a block in the same step, and the first has computed least."""
    prompts = [16 * (n + 1) for n in range(8)]
    requests = [
        Request(str(n), arrival_ps=0, prompt_tokens=tokens, output_tokens=40, priority=n)
        for n, tokens in enumerate(prompts)
    ]
    made = tables(
        allocator=[{"kind": "paged", "block_size": 16, "watermark": 0.0}],
        scheduler={**scheduler, "victim": {"kind": rule}},
        memory={"kv_cache_tokens": sum(prompts) + 16 * (8 + free_blocks)},
        model={"name": "opt-125m", "max_model_len": 1024},
        step_time=STEP_TIME,
    )
    simulation = Simulation(Scenario.from_table(made), requests)
    (options,) = simulation.scenario.allocator
    summary = simulation.run(options, "run", observer=Auditor()).summary
    assert summary["requests"]["finished"] == len(requests)
    assert summary["preemptions"] > 0
    assert {**simulation.run(options, "run").summary, "wall_s": 0} == {**summary, "wall_s": 0}
