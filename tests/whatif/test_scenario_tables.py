"""Changes of a scenario's tables: the pool's bytes stay the same when other keys change."""

from pathlib import Path
from typing import Any

import pytest

from kvsim.scenario import Scenario
from kvsim.simulation import Simulation
from kvsim.whatif.advice.serve import command
from kvsim.whatif.scenario_tables import sized_in_bytes, with_value


def scenario(memory: dict[str, Any]) -> dict[str, Any]:
    return {
        "model": {"name": "opt-13b"},
        "device": {"name": "a100-40gb"},
        "memory": memory,
        "allocator": [{"kind": "paged"}],
        "workload": {
            "kind": "synthetic",
            "num_requests": 5,
            "arrivals": {"kind": "poisson", "rate_per_s": 1.0},
            "prompt": {"kind": "fixed", "tokens": 100},
            "output": {"kind": "fixed", "tokens": 10},
        },
    }


def pool(table: dict[str, Any]) -> tuple[int, int]:
    """(bytes, tokens) of the scenario's pool."""
    result = Simulation(Scenario.from_table(table, Path())).result()
    memory = result.runs[0].summary.memory
    return memory.capacity_bytes, memory.capacity_tokens


@pytest.mark.parametrize("given", [{"kv_cache_tokens": 15_728}, {"num_gpu_blocks": 983}])
def test_fp8_cache_doubles_the_tokens_of_a_pool_given_in_tokens(given: dict[str, int]) -> None:
    """A pool that stays fixed in tokens or blocks would lose half of its bytes and gain nothing."""
    today = scenario(given)
    size, tokens = pool(today)
    table = sized_in_bytes(today, Path())
    assert pool(table) == (size, tokens)
    assert pool(with_value(table, "model.kv_cache_dtype", "fp8")) == (size, 2 * tokens)
    flags = command(with_value(table, "model.kv_cache_dtype", "fp8"), Path())
    assert "--num-gpu-blocks-override" not in flags
    assert f"--kv-cache-memory-bytes {size}" in flags


@pytest.mark.parametrize("given", [{"gpu_memory_utilization": 0.9}, {"kv_cache_bytes": 10**9}])
def test_pool_given_in_bytes_or_utilization_is_unchanged(given: dict[str, Any]) -> None:
    today = scenario(given)
    assert sized_in_bytes(today, Path()) is today


def test_serve_command_contains_the_pipeline_parallel_size() -> None:
    table = scenario({"gpu_memory_utilization": 0.9})
    model = {**table["model"], "pipeline_parallel_size": 2}
    lines = command({**table, "model": model}, Path()).splitlines()
    assert lines[0].startswith("vllm serve")
    assert "--pipeline-parallel-size 2" in " ".join(lines)
