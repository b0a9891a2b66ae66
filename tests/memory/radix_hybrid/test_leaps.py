"""Runs over two pools: steps at once and one by one, and the books of both."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from support.cases import HYBRIDS, streams
from support.outcomes import STEP_TIME, outcome

import kvsim
from kvsim.engine.observer import Observer
from kvsim.engine.plan import Plan
from kvsim.engine.replica import assemble
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.memory.ledger import check_sum
from kvsim.request import Request, Stream
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation

PLAIN = {"disable_overlap_schedule": True}
WINDOWS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {}),
    ({"page_size": 16, "swa_full_tokens_ratio": 0.4, "swa_eviction_interval": 16}, PLAIN),
    ({"release_prefill_swa": True, "swa_eviction_interval": 1}, {"enable_mixed_chunk": True}),
    ({"disable_radix_cache": True}, {"chunked_prefill_size": 64}),
    ({"swa_full_tokens_ratio": 0.35}, {"chunked_prefill_size": -1, "schedule_policy": "lpm"}),
]
LAZY = {"mamba_radix_cache_strategy": "extra_buffer_lazy", "mamba_track_interval": 64}
STATES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"max_mamba_cache_size": 12}, PLAIN),
    ({"max_mamba_cache_size": 12, "page_size": 16, "mamba_track_interval": 96}, {}),
    ({"max_mamba_cache_size": 9, **LAZY}, {"enable_mixed_chunk": True}),
    ({"max_mamba_cache_size": 9, "mamba_max_states_per_path": 1, **LAZY}, {}),
    ({"max_mamba_cache_size": 4, "disable_radix_cache": True}, {}),
]
MODELS = {"gpt-oss-20b": (WINDOWS, 1500), "tiny": (STATES, 2500)}
CASES = [
    (model, tokens, allocator, scheduler)
    for model, (flags, tokens) in MODELS.items()
    for allocator, scheduler in flags
]


def scenario(
    tables: Any, model: str, tokens: int, allocator: dict[str, Any], scheduler: dict[str, Any]
) -> Any:
    return tables(
        model={**HYBRIDS[model], "max_model_len": 1024},
        memory={"kv_cache_tokens": tokens},
        allocator=[{"kind": "radix", **allocator}],
        scheduler={
            "kind": "sglang",
            "chunked_prefill_size": 128,
            "schedule_conservativeness": 0.1,
            **scheduler,
        },
        step_time=STEP_TIME,
    )


@pytest.mark.parametrize(("model", "tokens", "allocator", "scheduler"), CASES, ids=str)
@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(requests=streams())
def test_runs_of_k_steps_equal_single_steps(
    tables: Any,
    model: str,
    tokens: int,
    allocator: dict[str, Any],
    scheduler: dict[str, Any],
    requests: list[Request],
) -> None:
    made = scenario(tables, model, tokens, allocator, scheduler)
    assert outcome(made, requests, None) == outcome(made, requests, 1)


class Auditor(Observer):
    """Checks the allocator's accounting after each plan and each processed step."""

    def planned(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        scheduler.allocator.check()
        usage = scheduler.allocator.usage(scheduler.waiting.head, busy=True)
        check_sum(usage, scheduler.allocator.capacity_bytes)

    def finished(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        self.planned(scheduler, plan, now_ps)


@pytest.mark.parametrize(("model", "tokens", "allocator", "scheduler"), CASES, ids=str)
@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(requests=streams())
def test_both_pools_are_accounted_for_at_every_event(
    tables: Any,
    model: str,
    tokens: int,
    allocator: dict[str, Any],
    scheduler: dict[str, Any],
    requests: list[Request],
) -> None:
    made = Scenario.from_table(scenario(tables, model, tokens, allocator, scheduler))
    simulation = Simulation(made, requests)
    spec = simulation.replica_spec(simulation.scenario.allocator[0])
    stream = Stream(tuple(requests))
    assemble(spec, stream, simulation.step_time, observer=Auditor()).run()


@pytest.mark.parametrize("max_steps", [None, 1])
def test_prompt_larger_than_the_free_window_slots_is_refused_with_a_reason(
    tables: Any, max_steps: int | None
) -> None:
    """SGLang accepts a prompt of 776 tokens with 777 window slots, and never starts it. A prompt
    with a cached prefix of 377 tokens is served.
    """
    allocator, scheduler = WINDOWS[-1]
    made = scenario(tables, "gpt-oss-20b", 1500, allocator, scheduler)
    made["memory"] = {"kv_cache_bytes": 1500 * (48 << 10)}
    if max_steps is not None:
        made["max_steps"] = max_steps
    prefix, rest = (1 << 40, 377), (5 << 20, 399)
    requests = [
        Request("alone", 0, 776, 1, 1, prompt_runs=(prefix, rest)),
        Request("behind", 0, 80, 122, 122),
        Request("prefix", 10**12, 377, 2, 2, prompt_runs=(prefix,)),
        Request("cached", 10**13, 776, 1, 1, prompt_runs=(prefix, rest)),
    ]
    (run,) = kvsim.simulate(made, requests).runs
    ends = run.requests.set_index("id")
    assert list(ends.index[ends["status"] != "finished"]) == ["alone"]
    reason = ends.loc["alone", "reason"]
    assert reason.startswith("it needs more slots of sliding windows at once than are ever free")
    assert "777 slots, limit 776" in reason
