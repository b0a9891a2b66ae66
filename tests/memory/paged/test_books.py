"""Three ways to account for blocks give the same run: as counts, as extents with the time for which
each was held, and as lists of single blocks, the plain form. `test_paged_model.py` compares all of
them with vLLM's rules.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import HYBRIDS, SCHEDULERS, known_to, streams
from support.outcomes import STEP_TIME, or_thrashing
from support.pairs import is_whole, pairs
from support.quick import EVERY_SCHEDULE

import kvsim
from evidence.schedule.verdict import validate_case
from kvsim.memory.options import MemorySpec
from kvsim.memory.paged import assembly, options, page_groups
from kvsim.memory.paged.allocator import PagedAllocator
from kvsim.memory.paged.assembly import blocks_are_counted
from kvsim.memory.paged.pool import BlockPool
from kvsim.request import Request
from kvsim.results.result import Run
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation

# Of models whose layers keep every token, and of others, whose allocator is drawn.
PLAIN: list[dict[str, Any]] = [
    {"kind": "paged", "block_size": 16},
    {"kind": "paged", "block_size": 16, "enable_prefix_caching": False},
    {"kind": "paged", "block_size": 1},
    {"kind": "paged", "block_size": 64, "watermark": 0.1},
    {"kind": "page-groups", "page_group_kib": 256},
]
# vLLM v0 has no groups, what groups keep is not swapped, and 0.11 puts blank blocks behind others
# and has blocks of one size.
APART = {"preemption_mode", "semantics"}
# What vLLM's scheduler did with several groups of layers and no drafts, recorded.
HERE = Path(__file__).parent
RECORDED = [
    case
    for folder in (HERE / "groups", HERE.parents[1] / "evidence" / "schedule")
    for case in sorted(folder.glob("*/*.json"))
    if re.search('"(serve|kv_groups)":', text := case.read_text())
    and '"speculative_config":' not in text
    # Connectors with tiers ask for block ids.
    and '"offload":' not in text
    and ('"kv_transfer_config":' not in text or '"pd":' in text)
]


def knows(model: str | dict[str, Any], scheduler: dict[str, Any]) -> bool:
    """Whether the scheduler serves a model with several block tables (given by its name); a model
    given as a table has one.
    """
    return isinstance(model, dict) or not (
        scheduler["kind"] == "vllm-v0" or APART & scheduler.keys()
    )


class Checked(PagedAllocator):
    """Counts how often it is asked, and checks itself whenever it is."""

    asked = 0
    counted = False

    def usage(self, *arguments: Any, **keywords: Any) -> Any:
        type(self).asked += 1
        type(self).counted = isinstance(self.pool, BlockPool) and not self.pool.tracked
        self.check()
        return super().usage(*arguments, **keywords)


@contextmanager
def checked() -> Iterator[None]:
    Checked.asked = 0
    with (
        patch.object(options, "PagedAllocator", Checked),
        patch.object(page_groups, "PagedAllocator", Checked),
    ):
        yield
    assert Checked.asked


@or_thrashing
def outcome(made: Scenario, requests: list[Request]) -> Any:
    (run,) = kvsim.simulate(made, requests).runs
    return told(run)


@or_thrashing
def placed(made: Scenario, requests: list[Request]) -> Any:
    """The same, and where each block was."""
    (run,) = Simulation(made, requests).result(addresses=True).runs
    return told(run), stays(run)


def told(run: Run) -> Any:
    assert run.recorder is not None
    summary = {key: value for key, value in run.summary.items() if key != "wall_s"}
    parts = run.recorder.part_sums, run.recorder.part_series
    return summary, parts, run.recorder.series, run.requests.to_dict("records")


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


@pytest.mark.parametrize(
    ("model", "scheduler"), pairs([*PLAIN, *HYBRIDS], SCHEDULERS, allowed=knows)
)
@settings(max_examples=4, deadline=None)
@given(
    requests=streams(),
    tokens=st.sampled_from([1024, 1500, 3000]),
    retention=st.sampled_from([None, 0, 160, "none"]),
    named=st.booleans(),
    caching=st.booleans(),
    samples=st.sampled_from([1, 1, 3]),
)
def test_runs_are_equal_with_counted_blocks_extents_and_block_lists(
    model: str | dict[str, Any],
    scheduler: dict[str, Any],
    requests: list[Request],
    tokens: int,
    retention: Any,
    named: bool,
    caching: bool,
    samples: int,
) -> None:
    if not named:
        requests = [each._replace(prompt_runs=None, output_start=None) for each in requests]
    if isinstance(model, dict):
        table, config = known_to(scheduler, model), {"name": "opt-125m"}
        requests = [each._replace(n=1 if each.after else samples) for each in requests]
    else:
        table = {"kind": "paged", "prefix_cache_retention_interval": retention}
        if not caching:
            table = {"kind": "paged", "enable_prefix_caching": False}
        config = HYBRIDS[model]
        if model == "tiny":
            tokens *= 2
    made = Scenario.from_table(
        {
            "model": {**config, "max_model_len": 1024},
            "device": {"name": "a100-80gb"},
            "memory": {"kv_cache_tokens": tokens},
            "allocator": [table],
            "scheduler": scheduler,
            "step_time": STEP_TIME,
        }
    )
    with checked():
        counted = outcome(made, requests)
    in_extents = placed(made, requests)
    assert counted == (in_extents if isinstance(in_extents, str) else in_extents[0])
    with patch.object(assembly, "blocks_are_single", return_value=True):
        assert placed(made, requests) == in_extents


def test_blocks_are_counted_unless_ids_are_needed(tables: Any) -> None:
    request = Request(id="a", arrival_ps=0, prompt_tokens=40, output_tokens=3)
    made = tables(allocator=[PLAIN[0]])
    forked = tables(allocator=[{**PLAIN[0], "sharing": "copy-on-write"}])
    for scenario, counted in (made, True), (forked, False):
        with checked():
            kvsim.simulate(scenario, [request._replace(prompt_runs=((0, 40),), n=2)])
        assert Checked.counted == counted


@pytest.mark.parametrize(
    "case", RECORDED[:: 1 if is_whole() else EVERY_SCHEDULE], ids=lambda case: case.stem
)
def test_recorded_schedules_are_equal_with_counted_blocks(case: Path) -> None:
    asked: list[bool] = []

    def counted(memory: MemorySpec) -> bool:
        asked.append(blocks_are_counted(memory._replace(unwatched=True)))
        return asked[-1]

    with patch.object(assembly, "blocks_are_counted", counted):
        answer = validate_case(case)
    if not any(asked):
        pytest.skip("its blocks are not counted")
    assert answer.equal, answer.text()
