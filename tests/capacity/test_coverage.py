"""What `kvsim models` says of each model's simulation, held against simulations."""

from typing import Any

import pytest

import kvsim
from kvsim.capacity.coverage import covered
from kvsim.model import model_names, named_model
from kvsim.plumbing.errors import InputError
from kvsim.request import Request

ENGINES = {"vllm": ("paged", "continuous"), "sglang": ("radix", "sglang")}


def test_models_are_simulated_unless_they_are_sized_alone(tables: Any) -> None:
    requests = [Request("r", 0, 100, 10)]
    for name in model_names():
        for engine, coverage in covered(named_model(name)).items():
            allocator, scheduler = ENGINES[engine]
            made = tables(
                model={"name": name, "max_model_len": 1024},
                memory={"kv_cache_bytes": 64 << 30},
                allocator=[{"kind": allocator}],
                scheduler={"kind": scheduler},
            )
            if coverage.level == "sized":
                with pytest.raises(InputError, match="model"):
                    kvsim.simulate(made, requests)
            else:
                assert kvsim.simulate(made, requests).runs[0].summary["requests"]["finished"] == 1
            assert coverage.reason or coverage.level == "exact"


@pytest.mark.parametrize(
    ("name", "vllm", "sglang"),
    [
        ("llama-3.1-8b", "exact", "exact"),
        ("gpt-oss-20b", "exact", "exact"),
        ("qwen3.5-27b", "exact", "exact"),
        ("lfm2-1.2b", "exact", "approximate"),
        ("llama-4-scout", "exact", "exact"),
        ("deepseek-v4-flash", "exact", "approximate"),
        ("falcon-mamba-7b", "exact", "sized"),
    ],
)
def test_levels_follow_the_layers(name: str, vllm: str, sglang: str) -> None:
    found = covered(named_model(name))
    assert (found["vllm"].level, found["sglang"].level) == (vllm, sglang)


def test_a_model_of_states_alone_runs_as_many_sequences_as_its_pool_has_states(tables: Any) -> None:
    model = named_model("mamba-2.8b")
    state = sum(group.state_bytes for group in model.kv_layout().groups)
    made = tables(
        model={"name": "mamba-2.8b"},
        memory={"kv_cache_bytes": 5 * state + 7},
        allocator=[{"kind": "paged"}],
        scheduler={"kind": "continuous"},
    )
    (run,) = kvsim.simulate(made, [Request(str(i), 0, 100, 50) for i in range(12)]).runs
    memory = run.summary.memory
    assert run.summary.preemptions == 0
    assert memory.capacity_tokens == 0
    # Four run at a time: one block of the pool is the null block.
    assert memory.peak_allocated == pytest.approx(4 * state / (5 * state + 7))
    assert run.summary.requests.finished == 12
