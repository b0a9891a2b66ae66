"""Lost concurrency: simulations without a class of waste, and a pool that compacts."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from kvsim.cli import app
from kvsim.layout import KVGroup, KVLayout
from kvsim.memory.arena.buddy import Buddy
from kvsim.memory.arena.compacting import Compacting
from kvsim.memory.arena.placement import PlacementOptions
from kvsim.memory.options import MemorySpec
from kvsim.request import Request
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation
from kvsim.whatif.attribution import Attribution, attribute

MS = 10**9
SPEC = MemorySpec(100 * 16, KVLayout((KVGroup("full", 1, 1),)), 512, 10**12)
CACHELESS = {"kind": "paged", "block_size": 16, "enable_prefix_caching": False}


def attributed(requests: list[Request], allocator: Any, **parts: Any) -> Attribution:
    tables = {
        "model": {"name": "opt-125m", "max_model_len": 1024},
        "device": {"name": "a100-40gb"},
        "memory": {"kv_cache_tokens": 4096},
        "allocator": [allocator],
        "scheduler": {"kind": "orca"},
        "step_time": {"kind": "linear", "base_us": 1000},
    }
    scenario = Scenario.from_table({**tables, **parts})
    (found,) = attribute(Simulation(scenario, requests))
    return found


def burst(count: int, prompt: int = 64, output: int = 64) -> list[Request]:
    return [Request(f"r{index}", 0, prompt, output) for index in range(count)]


def test_allocator_without_waste_equals_the_ideal() -> None:
    found = attributed(
        burst(8),
        {"kind": "radix"},
        model={"name": "mamba-2.8b"},
        memory={"kv_cache_bytes": 1 << 30},
        scheduler={"kind": "sglang"},
    )
    assert found.costs == ()
    assert found.ideal == found.actual


@pytest.mark.parametrize(
    "allocator",
    [
        {"kind": "max-buffer", "placement": "buddy"},
        {"kind": "max-buffer", "reserve": "pow2", "placement": "buddy"},
        {"kind": "doubling", "initial_tokens": 16},
        CACHELESS,
        {"kind": "concatenation", "placement": "first-fit"},
    ],
    ids=lambda table: table["kind"],
)
def test_waste_costs_sum_to_the_gap_to_the_ideal(allocator: Any) -> None:
    requests = [Request(f"r{i}", 0, 37 + 13 * (i % 7), 20 + 31 * (i % 5)) for i in range(120)]
    found = attributed(requests, allocator)
    for name in ("running", "tokens_per_s"):
        costs = sum(getattr(cost, name) for cost in found.costs)
        gap = getattr(found.ideal, name) - getattr(found.actual, name)
        assert costs == pytest.approx(gap)
    gpus = found.ideal.tokens_per_s / found.actual.tokens_per_s - 1
    assert sum(cost.gpus for cost in found.costs) == pytest.approx(gpus)
    names = [name for cost in found.costs for name in cost.classes]
    assert len(set(names)) == len(names)


def test_unused_tails_of_maximum_buffers_cost_concurrency() -> None:
    """Four buffers of 1,024 slots for requests of 128: without waste eight times as many fit."""
    found = attributed(burst(64), {"kind": "max-buffer"})
    assert found.actual.running == 4
    by_class = {cost.classes: cost for cost in found.costs}
    assert by_class["overprovisioned",].after.running == 32
    assert by_class["overprovisioned",].running == 28
    # 64 requests in 16 rounds of 64 ms, and in 2; a token costs nothing in this time model.
    assert found.actual.tokens_per_s == 64 * 64 / 1.024
    assert by_class["overprovisioned",].gpus == pytest.approx(7)


def test_buddy_rounding_halves_the_concurrency() -> None:
    """Requests of 257 slots get 512: eight fit in 4,096, and fifteen without rounding."""
    found = attributed(
        burst(120, 200, 57),
        {"kind": "max-buffer", "reserve": "exact", "placement": "buddy"},
        scheduler={"kind": "orca", "max_num_batched_tokens": 4096},
    )
    costs = {cost.classes: cost.running for cost in found.costs}
    assert found.actual.running == 8
    assert found.costs[0].classes == ("rounding",)
    assert costs["rounding",] == 15 - 8


def test_waste_costs_nothing_without_waiting_requests() -> None:
    apart = [Request(f"r{index}", index * 10**12, 64, 64) for index in range(5)]
    found = attributed(apart, {"kind": "max-buffer", "placement": "buddy"})
    assert all(cost.running == 0 and cost.tokens_per_s == 0 for cost in found.costs)


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 700), max_size=30),
    freed=st.lists(st.integers(0, 29), max_size=20),
    model=st.sampled_from([None, Buddy(unit_tokens=16)]),
)
def test_compacting_pool_places_any_region_up_to_its_free_bytes(
    sizes: list[int], freed: list[int], model: PlacementOptions | None
) -> None:
    arena = Compacting(rounded_as=model).build(SPEC)
    live: list[tuple[int, int]] = []
    for turn, size in enumerate(sizes):
        granted = size if model is None else 16 << (-(-size // 16) - 1).bit_length()
        fits = granted <= arena.free_bytes and (model is None or granted <= 512)
        assert arena.fits(size) == fits
        placed = arena.allocate(size)
        assert (placed is not None) == fits
        if placed is not None:
            assert placed.granted == granted
            live.append(placed)
        if turn < len(freed) and freed[turn] < len(live):
            arena.free(live.pop(freed[turn])[0])
        arena.check()
        assert arena.free_bytes == 1600 - sum(granted for _, granted in live)


def test_compacting_pool_extends_regions_in_place() -> None:
    arena = Compacting().build(SPEC)
    first, second = arena.allocate(800), arena.allocate(700)
    assert first is not None
    assert second is not None
    assert arena.extend_in_place(first.address, 900)
    assert not arena.extend_in_place(second.address, 701)
    assert arena.free_bytes == 0
    arena.check()


def test_attribute_command_prints_json() -> None:
    arguments = ["attribute", "orca", "--json", "--set", "workload.num_requests=200"]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    runs = json.loads(done.stdout)["runs"]
    assert [run["label"] for run in runs][:3] == ["Orca (Max)", "Orca (Pow2)", "Orca (Oracle)"]
    assert all(run["ideal"]["tokens_per_s"] >= run["actual"]["tokens_per_s"] for run in runs[:4])
