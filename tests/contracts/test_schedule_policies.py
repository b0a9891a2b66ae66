"""Invariants of every registered schedule policy of SGLang."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from support.auditor import Auditor
from support.cases import streams
from support.outcomes import STEP_TIME, outcome

import kvsim
from kvsim.engine.replica import assemble
from kvsim.engine.schedulers.sglang.policies import SCHEDULE_POLICIES
from kvsim.plumbing.errors import InputError
from kvsim.request import Request, Stream
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation

POLICIES = sorted(SCHEDULE_POLICIES)
PRIORITIES: list[dict[str, Any]] = [
    {"enable_priority_scheduling": True, "priority_scheduling_preemption_threshold": 0},
    {
        "enable_priority_scheduling": True,
        "schedule_low_priority_values_first": True,
        "disable_priority_preemption": True,
        "schedule_policy": "lof",
    },
]
TABLES = [*({"schedule_policy": name} for name in POLICIES), *PRIORITIES]


def scenario(tables: Any, scheduler: dict[str, Any], **pool: Any) -> Any:
    """A scenario with a pool too small for all requests. scheduler: keys of [scheduler]. pool: keys
    of [allocator].
    """
    return tables(
        memory={"kv_cache_tokens": 700},
        allocator=[{"kind": "radix", **pool}],
        scheduler={
            "kind": "sglang",
            "chunked_prefill_size": 64,
            "max_running_requests": 6,
            "schedule_conservativeness": 0.1,
            **scheduler,
        },
        step_time=STEP_TIME,
    )


def urgent(requests: list[Request]) -> list[Request]:
    """The requests with priorities 0 to 4; three of four also have one of three sessions."""
    return [
        each._replace(priority=index * 7 % 5, session=f"s{index % 3}" if index % 4 else None)
        for index, each in enumerate(requests)
    ]


@pytest.mark.parametrize("scheduler", TABLES, ids=str)
@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(requests=streams())
def test_k_steps_equal_single_steps_and_the_ledger_sums(
    tables: Any, scheduler: dict[str, Any], requests: list[Request]
) -> None:
    made, sent = scenario(tables, scheduler), urgent(requests)
    assert outcome(made, sent, None) == outcome(made, sent, 1)
    simulation = Simulation(Scenario.from_table(made), sent)
    spec = simulation.replica_spec(simulation.scenario.allocator[0])
    assemble(spec, Stream(tuple(sent)), simulation.step_time, observer=Auditor()).run()


def test_priority_above_the_threshold_preempts_a_running_request(tables: Any) -> None:
    """Six requests run, the limit. A seventh of priority 11 preempts one; with priority 10, equal
    to the threshold, it waits.
    """
    preempted = []
    for priority in (11, 10):
        made = scenario(tables, {"enable_priority_scheduling": True})
        running = [Request(f"r{index}", 0, 20, 40, 40) for index in range(6)]
        late = Request("late", 10**9, 20, 5, 5, priority=priority)
        (run,) = kvsim.simulate(made, [*running, late]).runs
        preempted.append(run.summary["preemptions"])
        ends = run.requests.set_index("id")["finish_ps"]
        assert (ends["late"] < ends["r0"]) == (priority == 11)
    assert preempted == [1, 0]


@pytest.mark.parametrize(
    ("scheduler", "word"),
    [
        ({"schedule_policy": "longest"}, "shortest-prefill-first"),
        ({"schedule_policy": "lpm", "enable_priority_scheduling": True}, "fcfs and lof"),
        ({"disable_priority_preemption": True}, "changes nothing unless"),
        ({"priority_scheduling_preemption_threshold": 0}, "changes nothing unless"),
        (
            {
                **PRIORITIES[0],
                "disable_priority_preemption": True,
            },
            "changes nothing with",
        ),
    ],
    ids=str,
)
def test_flags_that_sglang_refuses_at_start_up_are_refused(
    tables: Any, scheduler: dict[str, Any], word: str
) -> None:
    with pytest.raises(InputError, match=word):
        kvsim.simulate(scenario(tables, scheduler), [Request("r", 0, 4, 4)])


def test_policy_that_needs_a_prefix_cache_is_refused_without_one(tables: Any) -> None:
    made = scenario(tables, {"schedule_policy": "shortest-prefill-first"}, disable_radix_cache=True)
    with pytest.raises(InputError, match="needs a prefix cache"):
        kvsim.simulate(made, [Request("r", 0, 4, 4)])
