"""No key of [memory] is ignored silently. With each way to size a pool and each kind of allocator,
a value of the key changes a run, is refused, or is mentioned in a note.
"""

from typing import Any

import pytest
from support.idle_streams import SINGLE, Table

import kvsim
from kvsim.capacity.options import WAYS, MemoryOptions
from kvsim.plumbing.errors import InputError
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation

VALUES: dict[str, list[Any]] = {
    "mamba_full_memory_ratio": [0.2],
    "weights_gib": [70.0],
    "activation_gib": [20.0],
    "other_gib": [20.0],
    "engine_version": ["V0", "0.19"],
    "enforce_eager": [True],
    "flashinfer_sampler": [False],
    "first_start": [True],
    "max_cudagraph_capture_size": [8],
    "enable_prefix_caching": [True, False],
    "drafter": ["qwen3-0.6b"],
    "num_speculative_tokens": [3],
    "max_loras": [4],
    "max_lora_rank": [64],
}
BESIDE: dict[str, Table] = {
    "num_speculative_tokens": {"drafter": "qwen3-0.6b"},
    "max_lora_rank": {"max_loras": 4},
}
POOLS: dict[str, Table] = {
    "share": {},
    "tokens": {"kv_cache_tokens": 14_000},
    "bytes": {"kv_cache_bytes": 500_000_000},
    "blocks": {"num_gpu_blocks": 600},
    "sglang": {"mem_fraction_static": 0.8},
    "trt-llm": {"free_gpu_memory_fraction": 0.7},
}
ALLOCATORS = ("paged", "max-buffer", "radix")
STREAM = {**SINGLE, "num_requests": 4}
SHARED = [{"tokens": {"kind": "fixed", "tokens": 70}, "count": 2}]


def ran(model: str, allocator: str, memory: Table, **asked: Any) -> tuple[str, str] | None:
    """Results of a run with its pool, and the notes; None if the run is refused."""
    table = {
        "model": {"name": model, "max_model_len": 1024}, "device": {"name": "h100"},
        "memory": memory, "allocator": {"kind": allocator}, "step_time": {"kind": "roofline"},
        "workload": STREAM | asked,
    }  # fmt: skip
    try:
        simulation = Simulation(Scenario.from_table(table))
        (run,) = simulation.result().runs
    except InputError:
        return None
    summary = dict(run.summary.items()) | {"wall_s": 0, "notes": []}
    return repr((summary, simulation.pool.simulated)), " ".join(
        note.text for note in run.summary.notes or ()
    )


def test_adapters_are_limited_by_memory_where_requests_ask_for_some() -> None:
    memory = {"kv_cache_tokens": 14_000, "max_loras": 4}
    said = ran("opt-125m", "paged", memory)
    assert said is not None
    assert "memory.max_loras changes nothing" in said[1]
    said = ran("opt-125m", "paged", memory, adapters={"count": 3})
    assert said is not None
    assert "max_loras" not in said[1]


def test_every_memory_key_has_a_test_value() -> None:
    assert VALUES.keys() == MemoryOptions.model_fields.keys() - set(WAYS)


@pytest.mark.parametrize("allocator", ALLOCATORS)
@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("model", ["opt-125m", "qwen3.5-4b"])
def test_memory_key_changes_a_run_or_is_noted(model: str, pool: str, allocator: str) -> None:
    for key, values in VALUES.items():
        beside = POOLS[pool] | BESIDE.get(key, {})
        was = ran(model, allocator, beside)
        for value in values if was is not None else ():
            now = ran(model, allocator, {**beside, key: value})
            if now is not None:
                idle = now[0] == was[0]
                if idle and isinstance(value, bool):  # it may be the default, written out
                    other = ran(model, allocator, {**beside, key: not value})
                    idle = other is not None and other[0] == was[0]
                assert idle == (f"memory.{key}" in now[1]), (key, value, now[1])


def test_prefill_and_decode_replicas_both_carry_the_scenario_notes() -> None:
    table = {
        "model": {"name": "opt-125m", "max_model_len": 1024}, "device": {"name": "a10g"},
        "memory": {"kv_cache_tokens": 2_000_000, "enforce_eager": True}, "allocator": "paged",
        "step_time": {"kind": "roofline"}, "workload": STREAM, "disaggregation": {},
    }  # fmt: skip
    runs = kvsim.simulate(table).runs
    assert len(runs) == 2
    for run in runs:
        told = [note.about for note in run.summary.notes or ()]
        assert {"pool", "idle-keys"} <= set(told)


def test_enforce_eager_is_noted_to_change_only_the_pool_size() -> None:
    """A larger pool at no cost in time would be an answer that misleads."""
    sized = ran("opt-125m", "paged", {"enforce_eager": True})
    fixed = ran("opt-125m", "paged", {"enforce_eager": True, "kv_cache_tokens": 14_000})
    assert sized is not None
    assert fixed is not None
    assert "enforce_eager changes the size of the pool alone" in sized[1]
    assert "memory.enforce_eager changes nothing" in fixed[1]
    assert "of the pool alone" not in fixed[1]


def test_key_set_to_its_default_is_not_noted_as_unused() -> None:
    """SGLang's 0.9, written out, was said to change nothing, beside 0.1 that changes the pool."""
    sglang = {"mem_fraction_static": 0.8, "mamba_full_memory_ratio": 0.9}
    said = ran("qwen3.5-4b", "radix", sglang)
    assert said is not None
    assert "mamba_full_memory_ratio" not in said[1]


@pytest.mark.parametrize(
    ("semantics", "caching", "told"),
    [
        ("vllm-0.22", None, "only where allocator.enable_prefix_caching = true"),
        ("vllm-0.11", None, "Prefix caching is off"),
        ("vllm-0.22", True, None),
        ("vllm-0.22", False, None),
        ("vllm-0.33", None, None),
    ],
)
def test_prefix_cache_off_by_version_default_is_noted(
    semantics: str, caching: bool | None, told: str | None
) -> None:
    """Requests share prefixes, and an old version caches none of a hybrid model: it is said why."""
    given = {} if caching is None else {"enable_prefix_caching": caching}
    table = {
        "model": {"name": "qwen3.5-4b", "max_model_len": 1024}, "device": {"name": "h100"},
        "memory": {"kv_cache_bytes": 4_000_000_000}, "allocator": {"kind": "paged"} | given,
        "step_time": {"kind": "roofline"}, "workload": STREAM | {"prefixes": SHARED},
        "scheduler": {"kind": "continuous", "semantics": semantics},
    }  # fmt: skip
    (run,) = kvsim.simulate(table).runs
    notes = [note.text for note in run.summary.notes or () if note.about == "prefix-cache"]
    off = [text for text in notes if "Prefix caching is off" in text]
    assert len(off) == (told is not None)
    assert told is None or told in off[0]
    (run,) = kvsim.simulate(table | {"workload": STREAM | {"prefixes": []}}).runs
    assert all("is off" not in note.text for note in run.summary.notes or ())


@pytest.mark.parametrize(
    ("parts", "idle"),
    [
        ({}, True),
        ({"scheduler": {"kind": "continuous", "policy": "priority"}}, False),
        ({"scheduler": {"kind": "continuous", "victim": "lowest-priority"}}, False),
        ({"allocator": {"kind": "paged", "eviction_policy": "priorities"}}, False),
        ({"workload": STREAM | {"priorities": []}}, False),
    ],
)
def test_priorities_ignored_by_the_policy_are_noted(parts: Table, idle: bool) -> None:
    """`workload.priorities` under the default policy changed nothing in silence."""
    table = {
        "model": {"name": "opt-125m", "max_model_len": 1024}, "device": {"name": "h100"},
        "memory": {"kv_cache_tokens": 14_000}, "allocator": "paged",
        "step_time": {"kind": "roofline"}, "workload": STREAM | {"num_requests": 12},
    }  # fmt: skip
    (run,) = kvsim.simulate(table | parts).runs
    said = [note.text for note in run.summary.notes or () if "priorities of requests" in note.text]
    assert bool(said) == idle


LINEAR = {"kind": "linear", "base_us": 100.0}
DRAFTS = {"method": "ngram", "num_speculative_tokens": 2, "acceptance_rate": 0.5}
ROOFLINE, FLEET = {"kind": "roofline"}, {"router": "cache-aware"}


@pytest.mark.parametrize(
    ("parts", "key"),
    [
        ({"step_time": LINEAR | {"draft_token_us": 3.0}}, "step_time.draft_token_us"),
        (
            {"step_time": LINEAR | {"draft_token_us": 3.0}, "speculative_config": DRAFTS},
            None,
        ),
        ({"step_time": LINEAR}, None),
        ({"step_time": ROOFLINE | {"all_reduce_us": 40.0}}, "step_time.all_reduce_us"),
        (
            {
                "step_time": ROOFLINE | {"all_reduce_us": 40.0},
                "model": {"name": "opt-125m", "max_model_len": 1024, "tensor_parallel_size": 2},
            },
            None,
        ),
        ({"fleet": FLEET | {"replicas": 1}}, "fleet.router"),
        ({"fleet": FLEET | {"replicas": 2}}, None),
        ({"fleet": {"replicas": 1}}, None),
    ],
)
def test_keys_of_other_tables_without_effect_are_noted(parts: Table, key: str | None) -> None:
    table = {
        "model": {"name": "opt-125m", "max_model_len": 1024}, "device": {"name": "h100"},
        "memory": {"kv_cache_tokens": 14_000}, "allocator": "paged",
        "step_time": ROOFLINE, "workload": STREAM | {"priorities": []},
    }  # fmt: skip
    for run in kvsim.simulate(table | parts).runs:
        idle = [note.text for note in run.summary.notes or () if note.about == "idle-keys"]
        assert len(idle) == (key is not None)
        assert key is None or idle[0].startswith(f"{key} changes nothing here")


def test_kv_load_failure_policy_without_failed_reads_is_refused() -> None:
    table = {
        "model": {"name": "opt-125m"}, "device": {"name": "h100"}, "allocator": "paged",
        "workload": STREAM, "disaggregation": {"kv_load_failure_policy": "recompute"},
    }  # fmt: skip
    with pytest.raises(InputError, match="changes nothing without failed_reads"):
        kvsim.simulate(table)
