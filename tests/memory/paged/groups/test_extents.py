"""Extents give every sequence the blocks that lists of blocks give it, by number and time."""

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import HYBRIDS, SCHEDULERS, streams
from support.outcomes import STEP_TIME, or_thrashing

from kvsim.memory.paged import assembly
from kvsim.request import Request
from kvsim.results.result import Run
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation

# vLLM v0 has no groups, what groups keep is not swapped, and 0.11 has blocks of one size.
APART = {"preemption_mode", "semantics"}
RULES = [table for table in SCHEDULERS if table["kind"] != "vllm-v0" and not APART & table.keys()]
MODELS = {**HYBRIDS, "plain": {"name": "opt-125m"}}


@or_thrashing
def outcome(made: Scenario, requests: list[Request]) -> Any:
    (run,) = Simulation(made, requests).result(addresses=True).runs
    summary = {key: value for key, value in run.summary.items() if key != "wall_s"}
    assert run.recorder is not None
    return summary, run.recorder.part_sums, run.recorder.series, stays(run)


def stays(run: Run) -> list[list[Any]]:
    """Which blocks were held or cached, from when to when, neighbours as one."""
    columns = ["start_ps", "end_ps", "kind", "address", "num_bytes"]
    found: list[list[Any]] = []
    for row in run.tables["addresses"]().sort_values(columns)[columns].to_numpy().tolist():
        before = found[-1] if found else []
        if before[:3] == row[:3] and before[3] + before[4] == row[3]:
            before[4] += row[4]
        else:
            found.append(row)
    return found


@pytest.mark.parametrize("scheduler", RULES, ids=lambda table: "-".join(map(str, table.values())))
@pytest.mark.parametrize("model", MODELS)
@settings(max_examples=2, deadline=None)
@given(
    requests=streams(),
    tokens=st.sampled_from([1024, 1500, 3000]),
    retention=st.sampled_from([None, 0, 160, "none"]),
    named=st.booleans(),
    caching=st.booleans(),
)
def test_extents_hold_the_blocks_of_lists(
    model: str,
    scheduler: dict[str, Any],
    requests: list[Request],
    tokens: int,
    retention: Any,
    named: bool,
    caching: bool,
) -> None:
    if not named:
        requests = [each._replace(prompt_runs=None, output_start=None) for each in requests]
    if HYBRIDS.get(model, {}).get("hf_config", "").endswith("tiny_hybrid.json"):
        tokens *= 2
    table: dict[str, Any] = {"kind": "paged"}
    if model != "plain":
        table["prefix_cache_retention_interval"] = retention
    if not caching:
        table = {"kind": "paged", "enable_prefix_caching": False}
    made = Scenario.from_table(
        {
            "model": {**MODELS[model], "max_model_len": 1024},
            "device": {"name": "a100-80gb"},
            "memory": {"kv_cache_tokens": tokens},
            "allocator": [table],
            "scheduler": scheduler,
            "step_time": STEP_TIME,
        }
    )
    in_extents = outcome(made, requests)
    with patch.object(assembly, "blocks_are_single", return_value=True):
        assert outcome(made, requests) == in_extents
