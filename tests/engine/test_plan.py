"""Token counts of plans, summed over a run."""

import pytest

from kvsim.engine.observer import Observer
from kvsim.request import Request
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation


class Computed(Observer):
    """Observer that sums the tokens computed in all steps."""

    def __init__(self):
        self.tokens = 0

    def planned(self, scheduler, plan, now_ps):
        self.tokens += plan.new_tokens


@pytest.mark.parametrize("drafts", [0, 2])
def test_computed_tokens_are_the_requests_plus_rejected_drafts(drafts):
    """Every prompt, every output but the last, and what was drafted, of which none is accepted."""
    requests = [Request(str(n), n * 10**10, 30 + n, 20 - n) for n in range(6)]
    config = {"method": "eagle", "num_speculative_tokens": drafts, "acceptance_pattern": [0]}
    scenario = {
        "max_steps": 1,
        "model": {"name": "opt-125m"},
        "device": {"name": "l4"},
        "memory": {"kv_cache_tokens": 4096},
        "allocator": {"kind": "paged"},
        "scheduler": {"kind": "continuous", "max_num_batched_tokens": 48},
        **({"speculative_config": config} if drafts else {}),
    }
    simulation, seen = Simulation(Scenario.from_table(scenario), requests), Computed()
    run = simulation.run(simulation.scenario.allocator[0], "counted", observer=seen)
    served = sum(each.prompt_tokens + each.output_tokens - 1 for each in requests)
    drafted = run.summary["speculation"]["draft_tokens"] if drafts else 0
    assert run.summary["preemptions"] == 0
    assert (drafted > 0) == (drafts > 0)
    assert seen.tokens == served + drafted
