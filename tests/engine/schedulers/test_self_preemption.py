"""Self-preemption ends the loop over running sequences or not, by vLLM version."""

from typing import Any

import pytest

from kvsim.engine.observer import Observer
from kvsim.engine.plan import Plan
from kvsim.engine.schedulers.scheduler import Scheduler
from kvsim.plumbing.units import PS_PER_MS
from kvsim.request import Request
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation

# Blocks of 16: two for each. `late` is the first to need a third, and there is none; as the least
# urgent it preempts itself. `urgent` started behind it.
REQUESTS = [
    Request("first", 0, 20, 30, priority=0),
    Request("late", 20 * PS_PER_MS, 24, 30, priority=5),
    Request("urgent", 40 * PS_PER_MS, 20, 30, priority=1),
]


class FirstPreemption(Observer):
    """The requests that compute something in the step of the first preemption."""

    def __init__(self) -> None:
        self.before: list[str] = []
        self.computing: set[str] | None = None
        self._running: list[str] = []

    def planning(self, scheduler: Scheduler, now_ps: int) -> None:
        self._running = [seq.request.id for seq in scheduler.running]

    def planned(self, scheduler: Scheduler, plan: Plan, now_ps: int) -> None:
        if plan.preempted and self.computing is None:
            assert [seq.request.id for seq in plan.preempted] == ["late"]
            self.before = self._running
            passed_over = {seq.request.id for seq in plan.passed_over}
            self.computing = {seq.request.id for seq in scheduler.running} - passed_over


BY_PRIORITY = {"policy": "priority"}
BY_VICTIM = {"victim": {"kind": "lowest-priority"}}  # a rule of kvsim's: vLLM has no such loop
DRAFTS = {"method": "ngram", "num_speculative_tokens": 1, "acceptance_rate": 0.0}


@pytest.mark.parametrize(
    ("scheduler", "computing"),
    [
        ({"semantics": "vllm-0.11", **BY_PRIORITY}, {"first"}),
        ({"semantics": "vllm-0.33", **BY_PRIORITY}, {"first", "urgent"}),
        ({"semantics": "vllm-0.33", **BY_VICTIM}, {"first"}),
    ],
)
@pytest.mark.parametrize("drafts", [None, DRAFTS])
def test_self_preemption_ends_the_running_loop_or_not_by_version(
    tables: Any, scheduler: dict[str, Any], computing: set[str], drafts: dict[str, Any] | None
) -> None:
    if drafts is not None and scheduler["semantics"] == "vllm-0.11":
        pytest.skip("drafts follow other rules there, which are not simulated")
    made = tables(
        memory={"num_gpu_blocks": 7},
        allocator=[{"kind": "paged", "enable_prefix_caching": False}],
        scheduler={"kind": "continuous", **scheduler},
        **({} if drafts is None else {"speculative_config": drafts}),
    )
    scenario, observer = Scenario.from_table(made), FirstPreemption()
    Simulation(scenario, REQUESTS).run(scenario.allocator[0], "run", observer=observer)
    assert observer.before == ["first", "late", "urgent"]
    assert observer.computing == computing
