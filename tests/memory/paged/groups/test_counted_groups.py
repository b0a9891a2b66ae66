"""Counting blocks of several groups gives what keeping their block tables gives."""

import re
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import HYBRIDS, SCHEDULERS, streams
from support.outcomes import STEP_TIME, or_thrashing

import kvsim
from evidence.schedule.verdict import validate_case
from kvsim.memory.options import MemorySpec
from kvsim.memory.paged import assembly, options
from kvsim.memory.paged.allocator import PagedAllocator
from kvsim.memory.paged.assembly import blocks_are_counted
from kvsim.request import Request
from kvsim.scenario import Scenario

# vLLM v0 has no groups, what groups keep is not swapped, and 0.11 puts blank blocks behind others.
APART = {"preemption_mode", "semantics"}
RULES = [table for table in SCHEDULERS if table["kind"] != "vllm-v0" and not APART & table.keys()]
# What vLLM's scheduler did with several groups of layers and no drafts, recorded.
RECORDED = [
    case
    for folder in (Path(__file__).parent, Path(__file__).parents[3] / "validate" / "schedule")
    for case in sorted(folder.glob("*/*.json"))
    if re.search('"(serve|kv_groups)":', text := case.read_text())
    and '"speculative_config":' not in text
    # Connectors with tiers ask for block ids.
    and '"offload":' not in text
    and ('"kv_transfer_config":' not in text or '"pd":' in text)
]


class Checked(PagedAllocator):
    """Counts what it is asked, and checks itself whenever it is."""

    asked = 0

    def usage(self, *arguments: Any, **keywords: Any) -> Any:
        type(self).asked += 1
        self.check()
        return super().usage(*arguments, **keywords)


@or_thrashing
def outcome(made: Scenario, requests: list[Request]) -> Any:
    (run,) = kvsim.simulate(made, requests).runs
    summary = {key: value for key, value in run.summary.items() if key != "wall_s"}
    recorder = run.recorder
    parts = recorder.part_sums, recorder.part_series
    return summary, parts, recorder.series, run.requests.to_dict("records")


@pytest.mark.parametrize("scheduler", RULES, ids=lambda table: "-".join(map(str, table.values())))
@pytest.mark.parametrize("model", HYBRIDS)
@settings(max_examples=4, deadline=None)
@given(
    requests=streams(),
    tokens=st.sampled_from([1024, 1500, 3000]),
    retention=st.sampled_from([None, 0, 160, "none"]),
    named=st.booleans(),
    caching=st.booleans(),
)
def test_counts_equal_tables(
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
    if HYBRIDS[model].get("hf_config", "").endswith("tiny_hybrid.json"):
        tokens *= 2
    table: dict[str, Any] = {"kind": "paged", "prefix_cache_retention_interval": retention}
    if not caching:
        table = {"kind": "paged", "enable_prefix_caching": False}
    made = Scenario.from_table(
        {
            "model": {**HYBRIDS[model], "max_model_len": 1024},
            "device": {"name": "a100-80gb"},
            "memory": {"kv_cache_tokens": tokens},
            "allocator": [table],
            "scheduler": scheduler,
            "step_time": STEP_TIME,
        }
    )
    Checked.asked = 0
    with patch.object(options, "PagedAllocator", Checked):
        counted = outcome(made, requests)
    assert Checked.asked
    with patch.object(assembly, "blocks_are_counted", return_value=False):
        assert outcome(made, requests) == counted


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: case.stem)
def test_recorded_schedules_come_out_where_blocks_are_counted(case: Path) -> None:
    asked: list[bool] = []

    def counted(memory: MemorySpec) -> bool:
        asked.append(blocks_are_counted(memory._replace(unwatched=True)))
        return asked[-1]

    with patch.object(assembly, "blocks_are_counted", counted):
        answer = validate_case(case)
    if not any(asked):
        pytest.skip("its blocks are not counted")
    assert answer.equal, answer.text()
