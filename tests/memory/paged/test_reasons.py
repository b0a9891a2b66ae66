"""The reason why each block is cached, recounted from the tables at every event, and equal for many
steps at once and single steps.
"""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from support.cases import SCHEDULERS, streams
from support.outcomes import unless_thrashing
from support.reasons import ReasonAuditor

import kvsim
from kvsim.request import Request
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation

SUPPORT = Path(__file__).parents[2] / "support"
TINY, SIZES = str(SUPPORT / "tiny_hybrid.json"), str(SUPPORT / "tiny_sizes.json")
# A model, options of its allocator, and what it can cache beside prompts.
CASES: list[tuple[dict[str, Any], dict[str, Any], set[str]]] = [
    ({"name": "opt-125m"}, {}, {"cached_outputs"}),
    ({"name": "opt-125m"}, {"sharing": "copy-on-write"}, {"cached_outputs"}),
    ({"name": "opt-125m"}, {"eviction_policy": "arc"}, {"cached_outputs"}),
    ({"name": "gpt-oss-20b"}, {"prefix_cache_retention_interval": 0},
     {"cached_outputs", "cached_windows"}),
    ({"name": "gpt-oss-20b"}, {"prefix_cache_retention_interval": "none"},
     {"cached_outputs", "cached_windows"}),
    ({"hf_config": SIZES}, {}, {"cached_outputs", "cached_windows"}),
    ({"hf_config": TINY}, {}, {"cached_outputs", "cached_states"}),
    ({"hf_config": TINY}, {"prefix_cache_retention_interval": "none"},
     {"cached_outputs", "cached_states"}),
    ({"hf_config": TINY}, {"prefix_match_unit": 4}, {"cached_outputs", "cached_states"}),
    ({"hf_config": TINY}, {"prefill_checkpoint_alignment": 16},
     {"cached_outputs", "cached_states"}),
]  # fmt: skip
NAMES = ["-".join(map(str, (*m.values(), *a.values()))).split("/")[-1] for m, a, _ in CASES]


def scenario(
    model: dict[str, Any],
    allocator: dict[str, Any],
    scheduler: dict[str, Any],
    steps: int | None = None,
    tokens: int = 2400,
) -> Scenario:
    return Scenario.from_table(
        {
            "model": {**model, "max_model_len": 1024},
            "device": {"name": "a100-80gb"},
            "memory": {"kv_cache_tokens": tokens},
            "allocator": [{"kind": "paged", **allocator}],
            "scheduler": scheduler,
            "step_time": {"kind": "linear", "base_us": 8000, "prefill_token_us": 40},
            **({} if steps is None else {"max_steps": steps}),
        }
    )


@pytest.mark.parametrize(("model", "allocator", "reasons"), CASES, ids=NAMES)
@settings(max_examples=3, deadline=None)
@given(requests=streams())
@unless_thrashing
def test_reasons_of_cached_blocks_equal_a_recount_at_every_event(
    model: dict[str, Any], allocator: dict[str, Any], reasons: set[str], requests: list[Request]
) -> None:
    for scheduler in SCHEDULERS[:3]:
        made = scenario(model, allocator, scheduler, 1, 1024)
        auditor = ReasonAuditor()
        Simulation(made, requests).run(made.allocator[0], "audited", observer=auditor)
        assert auditor.seen.keys() <= reasons | {"prompt"}


@pytest.mark.parametrize(("model", "allocator", "reasons"), CASES, ids=NAMES)
def test_every_cached_block_has_a_reason(
    model: dict[str, Any], allocator: dict[str, Any], reasons: set[str]
) -> None:
    """Two turns of conversations, after which prompts and outputs stay cached. At the second use of
    a prefix a state and the end of a window are cached.
    """
    requests = []
    for index in range(6):
        now, start = index * 10**13, (index % 3) << 20
        requests.append(
            Request(
                f"r{index}", now, 200, 100, prompt_runs=((start, 200),), output_start=start + 200
            )
        )
    found = []
    for scheduler in SCHEDULERS[:2]:
        for steps in (1, 3, None):
            (run,) = kvsim.simulate(scenario(model, allocator, scheduler, steps), requests).runs
            found.append((scheduler, run.recorder.part_sums, run.summary["memory"]))
        memory = run.summary["memory"]
        parts = {name: share for name, share in memory["parts"].items() if "cached" in name}
        assert parts.keys() == reasons | {"cached_prompts"}
        assert sum(parts.values()) == pytest.approx(memory["time_mean"]["cached"])
        sums = [each for kind, *each in found if kind is scheduler]
        assert sums[0] == sums[1] == sums[2]
        auditor = ReasonAuditor()
        made = scenario(model, allocator, scheduler, 1)
        Simulation(made, requests).run(made.allocator[0], "audited", observer=auditor)
        assert auditor.seen.keys() == reasons | {"prompt"}
