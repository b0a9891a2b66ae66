"""Counting blocks gives what keeping block tables gives, wherever nobody asks which is whose."""

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.cases import SCHEDULERS, known_to, streams
from support.outcomes import STEP_TIME, or_thrashing

import kvsim
from kvsim.memory.paged import assembly, options, page_groups
from kvsim.memory.paged.allocator import PagedAllocator
from kvsim.memory.paged.pool import BlockPool
from kvsim.request import Request

ALLOCATORS: list[dict[str, Any]] = [
    {"kind": "paged", "block_size": 16},
    {"kind": "paged", "block_size": 16, "enable_prefix_caching": False},
    {"kind": "paged", "block_size": 1},
    {"kind": "paged", "block_size": 64, "watermark": 0.1},
    {"kind": "page-groups", "page_group_kib": 256},
]


class Checked(PagedAllocator):
    """Counts what it is asked, and checks itself whenever it is."""

    asked = 0
    counted = False

    def usage(self, *arguments: Any, **keywords: Any) -> Any:
        type(self).asked += 1
        type(self).counted = isinstance(self.pool, BlockPool) and not self.pool.tracked
        self.check()
        return super().usage(*arguments, **keywords)


@or_thrashing
def outcome(tables: dict[str, Any], requests: list[Request]) -> Any:
    (run,) = kvsim.simulate(tables, requests).runs
    summary = {key: value for key, value in run.summary.items() if key != "wall_s"}
    recorder = run.recorder
    parts = recorder.part_sums, recorder.part_series
    return summary, parts, recorder.series, run.requests.to_dict("records")


@pytest.mark.parametrize(
    "scheduler", SCHEDULERS, ids=lambda table: "-".join(map(str, table.values()))
)
@pytest.mark.parametrize(
    "allocator", ALLOCATORS, ids=lambda table: "-".join(map(str, table.values()))
)
@settings(
    max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    requests=streams(),
    tokens=st.sampled_from([1024, 1500, 2048]),
    named=st.booleans(),
    samples=st.sampled_from([1, 1, 3]),
)
def test_counts_equal_tables(
    tables: Any,
    allocator: Any,
    scheduler: Any,
    requests: list[Request],
    tokens: int,
    named: bool,
    samples: int,
) -> None:
    if not named:
        requests = [each._replace(prompt_runs=None, output_start=None) for each in requests]
    requests = [each._replace(n=1 if each.after else samples) for each in requests]
    made = tables(
        allocator=[known_to(scheduler, allocator)],
        scheduler=scheduler,
        memory={"kv_cache_tokens": tokens},
        model={"name": "opt-125m", "max_model_len": 1024},
        step_time=STEP_TIME,
    )
    with (
        patch.object(options, "PagedAllocator", Checked),
        patch.object(page_groups, "PagedAllocator", Checked),
    ):
        counted = outcome(made, requests)
    with patch.object(assembly, "blocks_are_counted", return_value=False):
        assert outcome(made, requests) == counted
    with patch.object(assembly, "blocks_are_single", return_value=True):
        assert outcome(made, requests) == counted


def test_counts_are_kept_where_they_suffice(tables: Any) -> None:
    request = Request(id="a", arrival_ps=0, prompt_tokens=40, output_tokens=3)
    made = tables(allocator=[ALLOCATORS[0]])
    forked = tables(allocator=[{**ALLOCATORS[0], "sharing": "copy-on-write"}])
    with patch.object(options, "PagedAllocator", Checked):
        for scenario, counted in (made, True), (forked, False):
            Checked.asked = 0
            kvsim.simulate(scenario, [request._replace(prompt_runs=((0, 40),), n=2)])
            assert Checked.asked
            assert Checked.counted == counted
