"""Hybrid models: runs of k steps equal single steps, and the books agree at every event."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from support.auditor import Auditor
from support.cases import SCHEDULERS, streams
from support.outcomes import or_thrashing, unless_thrashing
from support.pairs import pairs

import kvsim
from kvsim.request import Request
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation

# Windows of 128 tokens; a recurrent state in blocks of thousands, and in blocks of 16 that others
# go on from; windows of 64 in blocks of 32 tokens beside full attention in blocks of 16; local
# attention in chunks of 64.
SUPPORT = Path(__file__).parents[3] / "support"
TINY = str(SUPPORT / "tiny_hybrid.json")
MODELS: dict[str, dict[str, Any]] = {
    "gpt-oss-20b": {"name": "gpt-oss-20b"},
    "jamba-v0.1": {"name": "jamba-v0.1"},
    "tiny": {"hf_config": TINY},
    "sizes": {"hf_config": str(SUPPORT / "tiny_sizes.json")},
    "chunks": {"hf_config": str(SUPPORT / "tiny_chunks.json")},
}
SERVED: list[dict[str, Any]] = [
    {"prefix_cache_retention_interval": 0},
    {"prefix_cache_retention_interval": "none"},
]
STATES: list[dict[str, Any]] = [
    {"prefill_checkpoint_alignment": 16},
    {"prefix_match_unit": 4},
    {"prefix_match_unit": 4, "prefill_checkpoint_alignment": 4},
]
# vLLM v0 has no groups, and what groups keep is not swapped.
RULES = [t for t in SCHEDULERS if t["kind"] != "vllm-v0" and "preemption_mode" not in t]


def starts(model: str, scheduler: dict[str, Any]) -> bool:
    """vLLM 0.11 does not, with blocks of several sizes."""
    return (model, scheduler.get("semantics")) != ("sizes", "vllm-0.11")


def scenario(
    model: str,
    scheduler: dict[str, Any],
    tokens: int,
    steps: int | None,
    served: dict[str, Any] | None = None,
) -> Scenario:
    allocator: dict[str, Any] = {"kind": "paged"}
    if served is not None and scheduler.get("semantics") != "vllm-0.11":
        allocator |= served
    return Scenario.from_table(
        {
            "model": {**MODELS[model], "max_model_len": 1024},
            "device": {"name": "a100-80gb"},
            "memory": {"kv_cache_tokens": tokens},
            "allocator": [allocator],
            "scheduler": scheduler,
            "step_time": {"kind": "linear", "base_us": 8000, "prefill_token_us": 40},
            **({} if steps is None else {"max_steps": steps}),
        }
    )


@or_thrashing
def outcome(made: Scenario, requests: list[Request]) -> Any:
    (run,) = kvsim.simulate(made, requests).runs
    recorder = run.recorder
    summary = {key: value for key, value in run.summary.items() if key != "wall_s"}
    sums = recorder.time_sum, recorder.step_sum, recorder.part_sums
    return summary, sums, run.requests.to_dict("records")


@pytest.mark.parametrize(("model", "scheduler"), pairs(list(MODELS), RULES, allowed=starts))
@settings(max_examples=3, deadline=None)
@given(requests=streams())
def test_runs_of_k_steps_equal_single_steps(
    model: str, scheduler: dict[str, Any], requests: list[Request]
) -> None:
    tokens = 2400 if model == "tiny" else 1024
    for served in [*SERVED, *STATES] if model == "tiny" else SERVED:
        single = outcome(scenario(model, scheduler, tokens, 1, served), requests)
        assert outcome(scenario(model, scheduler, tokens, None, served), requests) == single
        assert outcome(scenario(model, scheduler, tokens, 3, served), requests) == single


def test_block_freed_by_a_copy_admits_the_queue_head_in_the_next_step() -> None:
    """The original of a copied block is freed when the step is scheduled, after the head of the
    queue was refused. So the head is admitted in the next step.
    """
    shared, second, last = 1 << 40, ((2 << 20, 2), (1 << 50, 30)), (4 << 20, 6)
    late = 102 * 10**9
    stream = [  # arrival, priority, prompt, output
        (0, 1, ((shared, 80), (1 << 20, 93)), (5 << 50, 38)),
        (10**9, 0, ((shared, 1), second[0]), second[1]),
        (10**9, 1, ((shared, 145), (3 << 20, 38)), (6 << 50, 29)),
        (10**9, 2, ((shared, 1), *second, last), (2 << 50, 61)),
        (2 * 10**9, 0, ((shared, 67), (7 << 20, 83)), (7 << 50, 49)),
        (late + 10**9, 0, ((shared, 50), (8 << 20, 146)), (8 << 50, 13)),
        (late + 10**9, 1, ((shared, 1), *second, last, (2 << 50, 61), (9 << 20, 40)), (9 << 50, 6)),
    ]
    requests = [
        Request(
            f"r{index}",
            arrival,
            sum(length for _, length in runs),
            tokens,
            priority=priority,
            prompt_runs=runs,
            output_start=start,
        )
        for index, (arrival, priority, runs, (start, tokens)) in enumerate(stream)
    ]
    scheduler = {"kind": "continuous", "max_num_batched_tokens": 64, "policy": "priority"}
    served = {
        "enable_prefix_caching": True,
        "prefix_match_unit": 1,
        "prefix_cache_retention_interval": "none",
    }
    for semantics in ("vllm-0.27", "vllm-0.33"):
        table = {**scheduler, "semantics": semantics}
        single = outcome(scenario("tiny", table, 1000, 1, served), requests)
        assert single[0]["preemptions"]
        assert outcome(scenario("tiny", table, 1000, None, served), requests) == single


@pytest.mark.parametrize("model", MODELS)
@settings(max_examples=4, deadline=None)
@given(requests=streams())
@unless_thrashing
def test_the_ledger_is_consistent_at_every_event(model: str, requests: list[Request]) -> None:
    for scheduler in RULES[:3]:
        made = scenario(model, scheduler, 1024, None)
        run = Simulation(made, requests).run(made.allocator[0], "audited", observer=Auditor())
        assert sum(run.summary["requests"].values()) == 2 * len(requests)
