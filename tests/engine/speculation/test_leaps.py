"""Many steps at once with drafts in lockstep equal single steps."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.auditor import Auditor
from support.cases import HYBRIDS, streams
from support.drafting import METHODS, SCHEDULERS, drafting, suits
from support.outcomes import STEP_TIME, outcome, unless_thrashing

from kvsim.engine.observer import Observer
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.request import Request
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation

STEP_TIMES: list[dict[str, Any]] = [{**STEP_TIME, "draft_token_us": 7}, {"kind": "roofline"}]
# Where sequences verify in step; others take turns, however many steps are asked for at once.
_TIGHT: list[dict[str, Any]] = [
    {"kind": "continuous", "max_num_seqs": 4, "max_num_batched_tokens": 512},
    {"kind": "continuous", "max_num_batched_tokens": 40},
    {"kind": "continuous", "scheduler_reserve_full_isl": False, "max_num_batched_tokens": 100},
]
IN_STEP: list[dict[str, Any]] = [
    *(t for t in SCHEDULERS if "policy" not in t),
    *_TIGHT,
    *({**t, "async_scheduling": True} for t in _TIGHT),
]
IN_TURNS: list[dict[str, Any]] = [t for t in SCHEDULERS if t not in IN_STEP]
ALLOCATORS: list[dict[str, Any]] = [
    {"block_size": 16},
    {"block_size": 1},
    {"block_size": 4, "watermark": 0.05},
    {"block_size": 16, "enable_prefix_caching": False},
    {"block_size": 16, "eviction_policy": {"kind": "arc"}},
]
WITH_STATES = ("jamba-v0.1", "tiny")  # of HYBRIDS
SERVED: list[dict[str, Any]] = [
    {},
    {"prefix_cache_retention_interval": 0},
    {"enable_prefix_caching": False},
    {"eviction_policy": {"kind": "arc"}},
]


def nameless(requests: list[Request]) -> list[Request]:
    """The requests without content ids, so that none shares a prefix."""
    return [each._replace(prompt_runs=None, output_start=None) for each in requests]


def in_every_leap(made: dict[str, Any], requests: list[Request]) -> Any:
    """The results of single steps, after checking that longer leaps give equal ones."""
    single = outcome(made, requests, 1)
    assert outcome(made, requests, None) == single
    assert outcome(made, requests, 3) == single
    return single


@pytest.mark.parametrize("config", METHODS, ids=lambda table: table["method"])
@settings(
    max_examples=16, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    requests=streams(),
    scheduler=st.sampled_from(IN_STEP + IN_TURNS[:1]),
    tokens=st.sampled_from([1024, 1500, 4000]),
    allocator=st.sampled_from(ALLOCATORS),
    max_model_len=st.sampled_from([620, 1024]),
    named=st.booleans(),
    step_time=st.sampled_from(STEP_TIMES),
)
def test_k_steps_equal_k_single_steps_with_drafts(
    tables: Any,
    config: dict[str, Any],
    scheduler: dict[str, Any],
    requests: list[Request],
    tokens: int,
    allocator: dict[str, Any],
    max_model_len: int,
    named: bool,
    step_time: dict[str, Any],
) -> None:
    if not suits(config, scheduler):
        return
    if not named:
        requests = nameless(requests)
    made = drafting(
        tables,
        config,
        allocator=[{"kind": "paged", **allocator}],
        scheduler=scheduler,
        memory={"kv_cache_tokens": tokens},
        model={"name": "opt-125m", "max_model_len": max_model_len},
        step_time=step_time,
    )
    in_every_leap(made, requests)


@pytest.mark.parametrize("model", HYBRIDS)
@settings(max_examples=12, deadline=None)
@given(
    requests=streams(),
    config=st.sampled_from(METHODS),
    scheduler=st.sampled_from(IN_STEP),
    tokens=st.sampled_from([1024, 2400, 6000]),
    served=st.sampled_from(SERVED),
    named=st.booleans(),
    step_time=st.sampled_from(STEP_TIMES),
)
@unless_thrashing
def test_k_steps_equal_single_steps_with_drafts_and_several_layer_groups(
    model: str,
    config: dict[str, Any],
    scheduler: dict[str, Any],
    requests: list[Request],
    tokens: int,
    served: dict[str, Any],
    named: bool,
    step_time: dict[str, Any],
) -> None:
    if not suits(config, scheduler) or ("semantics" in scheduler and "model" in config):
        return  # 0.27 does not bear two kinds of full attention
    if "semantics" in scheduler and "eviction_policy" in served and model in WITH_STATES:
        return  # 0.27 keeps no prefix of a state unless asked, so none is evicted
    if not named:
        requests = nameless(requests)
    made = {
        "model": {**HYBRIDS[model], "max_model_len": 1024},
        "device": {"name": "a100-80gb"},
        "memory": {"kv_cache_tokens": tokens},
        "allocator": [{"kind": "paged", **served}],
        "scheduler": scheduler,
        "speculative_config": config,
        "step_time": step_time,
    }
    single = in_every_leap(made, requests)
    scenario = Scenario.from_table(made)
    run = Simulation(scenario, requests).run(scenario.allocator[0], "run", observer=Auditor())
    assert run.summary["steps"] == single[0]["steps"]


class Plans(Observer):
    """Counts plans and the steps that they cover."""

    def __init__(self) -> None:
        self.plans = self.steps = 0

    def finished(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        self.plans += 1
        self.steps += plan.steps


@pytest.mark.parametrize("lags", [False, True])
@pytest.mark.parametrize("config", METHODS, ids=lambda table: table["method"])
def test_k_steps_with_drafts_are_one_plan(tables: Any, config: dict[str, Any], lags: bool) -> None:
    scheduler = {"kind": "continuous", "async_scheduling": lags}
    if not suits(config, scheduler):
        return
    requests = [Request(f"r{i}", 0, 40 + i, 400) for i in range(8)]
    scenario = Scenario.from_table(drafting(tables, config, scheduler=scheduler))
    plans = Plans()
    run = Simulation(scenario, requests).run(scenario.allocator[0], "counted", observer=plans)
    assert plans.steps == run.summary["steps"]
    assert plans.plans < plans.steps / 4


@pytest.mark.parametrize("lags", [False, True])
def test_sequences_near_max_model_len_are_scheduled_one_by_one(tables: Any, lags: bool) -> None:
    config = {"method": "eagle", "num_speculative_tokens": 6, "acceptance_rate": 0.6}
    scheduler = {"kind": "continuous", "async_scheduling": lags}
    model = {"name": "opt-125m", "max_model_len": 128}
    made = drafting(tables, config, model=model, scheduler=scheduler)
    requests = [Request(f"r{i}", 10**10 * i, 20 + i, 300) for i in range(12)]
    single = outcome(made, requests, 1)
    assert outcome(made, requests, None) == single
    assert single[0]["requests"]["finished"] == 12
