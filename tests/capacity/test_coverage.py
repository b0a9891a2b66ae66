"""The coverage that `kvsim models` lists for each model, compared with simulations."""

from typing import Any

import pytest

import kvsim
from kvsim.capacity.coverage import covered
from kvsim.capacity.sglang.sizing import sglang_layout
from kvsim.model import ModelOptions, model_names, named_model
from kvsim.plumbing.errors import InputError
from kvsim.request import Request

ENGINES = {"vllm": ("paged", "continuous"), "sglang": ("radix", "sglang")}


def test_models_are_simulated_unless_coverage_says_sized_only(tables: Any) -> None:
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
        ("falcon-mamba-7b", "exact", "exact"),
    ],
)
def test_coverage_levels_follow_the_kinds_of_layers(name: str, vllm: str, sglang: str) -> None:
    found = covered(named_model(name))
    assert (found["vllm"].level, found["sglang"].level) == (vllm, sglang)


def test_purely_recurrent_model_runs_one_sequence_per_state(tables: Any) -> None:
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


ALONE: dict[str, Any] = {
    "model": {"name": "mamba-2.8b"},
    "memory": {"mem_fraction_static": 0.8},
    "allocator": [{"kind": "radix"}],
    "scheduler": {"kind": "sglang"},
}


def twelve() -> list[Request]:
    return [Request(str(i), 0, 400, 50, max_tokens=50) for i in range(12)]


def test_sglang_limits_purely_recurrent_models_by_tokens(tables: Any) -> None:
    """Tokens take no memory there, and yet 2,048 of them, the longest sequence of a config that
    names none, are all that run at once (SGLang 0.5.23, `_zero_kv_max_tokens`).
    """
    made, requests = tables(**ALONE), twelve()
    requests.append(Request("long", 0, 2043, 5, max_tokens=5))
    (run,) = kvsim.simulate(made, requests).runs
    assert run.summary.requests.finished == 12
    assert run.summary.requests.rejected == 1
    assert run.summary.running_mean <= 4
    many = made | {
        "memory": {"kv_cache_tokens": 100_000},
        "allocator": [{"kind": "radix", "max_mamba_cache_size": 36}],
        "model": {"name": "mamba-2.8b", "max_model_len": 8192},
    }
    (run,) = kvsim.simulate(many, requests).runs
    assert run.summary.requests.finished == 13
    assert 8 < run.summary.running_mean <= 12  # three states each
    state = 64 * 5120 * (16 * 4 + 3 * 2)  # float32, and the convolution in bfloat16
    assert run.summary.memory.capacity_bytes == 37 * state


def test_kv_cache_tokens_with_mem_fraction_static_is_accepted(tables: Any) -> None:
    """--max-total-tokens beside --mem-fraction-static, which sizes the states."""
    made, requests = tables(**ALONE), twelve()
    few = kvsim.simulate(made, requests).runs[0]
    assert any("2,048 tokens" in note.text for note in few.summary.notes or ())
    memory = {"mem_fraction_static": 0.8, "kv_cache_tokens": 100_000}
    many = kvsim.simulate(made | {"memory": memory}, requests).runs[0]
    assert not any("2,048 tokens" in note.text for note in many.summary.notes or ())
    assert many.summary.running_mean > 2 * few.summary.running_mean
    assert many.summary.memory.capacity_bytes == few.summary.memory.capacity_bytes


@pytest.mark.parametrize(("tokens", "kept"), [(9_000, 9_000), (10**9, None)])
def test_kv_cache_tokens_cap_the_pool_of_mem_fraction_static(
    tables: Any, tokens: int, kept: int | None
) -> None:
    def capacity(**memory: Any) -> int:
        made = tables(
            model={"name": "llama-3.1-8b"},
            memory={"mem_fraction_static": 0.8, **memory},
            allocator=[{"kind": "radix"}],
            scheduler={"kind": "sglang"},
        )
        (run,) = kvsim.simulate(made, [Request("r", 0, 100, 10)]).runs
        return run.summary.memory.capacity_tokens

    assert capacity(kv_cache_tokens=tokens) == (kept or capacity())


@pytest.mark.parametrize(
    ("memory", "allocator", "words"),
    [
        ({"kv_cache_tokens": 9000}, {}, "take no memory"),
        (
            {"kv_cache_bytes": 1 << 34},
            {"mamba_radix_cache_strategy": "extra_buffer"},
            "only in models with attention",
        ),
        ({"kv_cache_bytes": 1 << 34}, {"page_size": 16}, "without buffers only"),
    ],
)
def test_unsupported_sglang_options_for_recurrent_models_are_refused(
    tables: Any, memory: dict[str, Any], allocator: dict[str, Any], words: str
) -> None:
    made = tables(
        model={"name": "mamba-2.8b"},
        memory=memory,
        allocator=[{"kind": "radix", **allocator}],
        scheduler={"kind": "sglang"},
    )
    with pytest.raises(InputError, match=words):
        kvsim.simulate(made, [Request("r", 0, 100, 10)])


def test_states_under_sglang_are_float32_unless_their_dtype_is_named() -> None:
    options = ModelOptions(name="falcon-h1-34b")
    model = options.build()
    state = sum(group.state_bytes for group in options.layout(model).groups)
    kept = sum(group.state_bytes for group in sglang_layout(model, options).groups)
    named = ModelOptions(name="falcon-h1-34b", mamba_ssm_cache_dtype="bfloat16")
    assert sum(g.state_bytes for g in sglang_layout(named.build(), named).groups) == state
    assert 1.9 * state < kept < 2 * state
