"""Slots outside of sliding windows, in allocators where every layer keeps every token, never count
as used.
"""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from support.auditor import Auditor
from support.cases import streams

import kvsim
from kvsim.engine.replica import assemble
from kvsim.layout import KVGroup, KVLayout
from kvsim.memory.ledger import OVERPROVISIONED, USED, Course
from kvsim.memory.left_behind import LeftBehind, WindowedDecoder
from kvsim.memory.options import AllocatorOptions, MemorySpec
from kvsim.memory.stepwise import Grant, StepwiseAllocator
from kvsim.request import Request
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation

# gpt-oss-20b: 12 full layers, and 12 with a window of 128 tokens; 2,048 bytes each and token.
WINDOW, HALF = 128, 12 * 2048
ALLOCATORS: list[dict[str, Any]] = [
    {"kind": "paged", "disable_hybrid_kv_cache_manager": True},
    {"kind": "paged", "disable_hybrid_kv_cache_manager": True, "enable_prefix_caching": False},
    {"kind": "page-groups", "page_group_kib": 64},
    {"kind": "max-buffer"},
    {"kind": "doubling", "initial_tokens": 64},
]
SCHEDULERS: list[dict[str, Any]] = [
    {"kind": "continuous", "max_num_batched_tokens": 96},
    {"kind": "continuous", "max_num_batched_tokens": 512, "async_scheduling": True},
]


def scenario(allocator: dict[str, Any], scheduler: dict[str, Any], steps: int | None) -> Scenario:
    return Scenario.from_table(
        {
            "model": {"name": "gpt-oss-20b", "max_model_len": 1024},
            "device": {"name": "a100-80gb"},
            "memory": {"kv_cache_tokens": 4096},
            "allocator": [allocator],
            "scheduler": scheduler,
            "step_time": {"kind": "linear", "base_us": 8000, "prefill_token_us": 40},
            **({} if steps is None else {"max_steps": steps}),
        }
    )


@pytest.mark.parametrize("allocator", ALLOCATORS, ids=lambda table: "-".join(map(str, table)))
def test_slots_outside_the_window_do_not_count_as_used(allocator: dict[str, Any]) -> None:
    """A prompt in chunks of 96 and 400 outputs: full attention uses every slot n, a window those
    that the step at hand attends to, its own new ones and 127 before them.
    """
    request = Request("r", 0, 480, 400)
    (run,) = kvsim.simulate(scenario(allocator, SCHEDULERS[0], 1), [request]).runs
    rows = run.memory[run.memory.steps == 1]
    ends = [*range(96, 481, 96), *range(481, 480 + 400)]
    starts = [0, *ends[:-1]]
    expected = [
        HALF * n + HALF * min(n, n - start + WINDOW - 1)
        for start, n in zip(starts, ends, strict=True)
    ]
    assert list(rows.used_bytes) == expected


@pytest.mark.parametrize("scheduler", SCHEDULERS, ids=["sync", "async"])
@pytest.mark.parametrize("allocator", ALLOCATORS, ids=lambda table: "-".join(map(str, table)))
@settings(max_examples=4, deadline=None)
@given(requests=streams())
def test_k_steps_count_the_same_slots_outside_windows_as_single_steps(
    allocator: dict[str, Any], scheduler: dict[str, Any], requests: list[Request]
) -> None:
    found = []
    for steps in (1, 3, None):
        (run,) = kvsim.simulate(scenario(allocator, scheduler, steps), requests).runs
        recorder = run.recorder
        found.append((recorder.time_sum, recorder.step_sum, run.summary["memory"]))
    assert all(one == other for one, other in pairwise(found))
    made = scenario(allocator, scheduler, None)
    Simulation(made, requests).run(made.allocator[0], "audited", observer=Auditor())


def test_slots_outside_windows_are_a_part_of_overprovisioned() -> None:
    """A buffer as long as its sequence holds one slot more, that of the last token."""
    requests = [Request(f"r{i}", 0, 300 + 90 * i, 80 + 50 * i) for i in range(3)]
    made = scenario({"kind": "max-buffer", "reserve": "exact"}, SCHEDULERS[0], None)
    (run,) = kvsim.simulate(made, requests).runs
    memory = run.summary["memory"]
    last = run.summary["running_mean"] / memory["capacity_tokens"]
    left = pytest.approx(memory["time_mean"]["overprovisioned"] - last)
    assert memory["parts"] == {"left_behind": left}


class Exact(AllocatorOptions):
    """As many slots as tokens."""

    def build(self, memory: MemorySpec) -> "ExactAllocator":
        return ExactAllocator(memory)


class ExactAllocator(StepwiseAllocator):
    def grant(self, tokens: int) -> Grant:
        return Grant(tokens, tokens * self.token_bytes)


@pytest.mark.parametrize("scheduler", SCHEDULERS, ids=["sync", "async"])
@pytest.mark.parametrize("steps", [1, None])
def test_stepwise_allocator_counts_the_same_slots_outside_windows(
    scheduler: dict[str, Any], steps: int | None
) -> None:
    requests = [Request(f"r{i}", 0, 300 + 90 * i, 80 + 50 * i) for i in range(3)]
    made = scenario({"kind": "max-buffer", "reserve": "exact"}, scheduler, steps)
    simulation = Simulation(made, requests)
    spec, found = simulation.replica_spec(made.allocator[0]), []
    for options in spec.allocator, Exact():
        replica = assemble(
            replace(spec, allocator=options), simulation.stream, simulation.step_time
        )
        replica.run()
        used, behind = replica.recorder.time_sum[0], replica.recorder.part_sums
        found.append((used, behind))
    assert found[0] == found[1]


def test_ledger_change_of_many_steps_sums_single_steps_outside_windows() -> None:
    """Against each step written out: one decoder past its windows, one that enters them, one whose
    prompt has just been computed, one that shares its beginning.
    """
    layout = KVLayout(
        (KVGroup("full", 1, 5), KVGroup("sliding", 1, 3, 4), KVGroup("sliding", 1, 2, 9))
    )
    behind = LeftBehind(layout)
    decoders = [WindowedDecoder(*each) for each in ((19, 20), (2, 3), (0, 15), (20, 21, 16))]
    steps = 12
    course = behind.during(Course(), decoders, steps)
    stood = [behind.bytes(computed, shared) for computed, _, shared in decoders]
    jumps = []
    for t in range(1, steps + 1):
        now = [behind.bytes(slots + t - 1, shared) for _, slots, shared in decoders]
        jumps.append(sum(now) - sum(stood))
        stood = now
    second = sum(t * (t - 1) // 2 * j for t, j in enumerate(jumps, 1))
    sums = sum(jumps), sum(t * j for t, j in enumerate(jumps, 1)), second
    assert course.moves == ((USED, OVERPROVISIONED, 1, 0, *sums),)
