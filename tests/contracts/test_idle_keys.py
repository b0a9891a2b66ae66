"""No key of an allocator or a scheduler is ignored in silence: of some random values of it one
changes a run, over a few streams and models, or all are refused.
"""

from random import Random
from typing import Any

import pytest
from support.fuzzing.drawing import SKIPPED, value_for

import kvsim
from kvsim.engine.schedulers import SCHEDULERS
from kvsim.memory import ALLOCATORS
from kvsim.memory.radix.options import Radix
from kvsim.plumbing.errors import InputError

KINDS = [
    *(("allocator", kind) for kind in ALLOCATORS if kind not in ("radix", "cells")),
    *(("scheduler", kind) for kind in SCHEDULERS if kind not in ("sglang", "llama-server")),
]
# What a key needs beside it to have something to change.
BESIDE: dict[str, dict[str, Any]] = {
    "enable_chunked_prefill": {"max_num_batched_tokens": 1100, "max_num_seqs": 64},
    "policy": {"max_num_seqs": 2},
    "swap_space_gib": {"preemption_mode": "swap"},
    "swap_latency_us": {"preemption_mode": "swap", "swap_space_gib": 0.05},
    "max_loras": {"max_loras": 1},
    "max_cpu_loras": {"max_loras": 2},
    **{
        key: {"max_loras": 2, "max_num_batched_tokens": 160}
        for key in (
            "max_tokens_per_mm_item",
            "max_num_encoder_input_tokens",
            "encoder_cache_size",
            "disable_chunked_mm_input",
            "limit_mm_per_prompt",
            "encoder_us_per_token",
            "lora_load_ms",
        )
    },
}
PREEMPTING = {"trt-llm": {"capacity_scheduler_policy": "max-utilization"}}  # its default never does
# They need prompts of several steps that do not fit, and a model with windows in one pool.
LATER = {("continuous", "scheduler_reserve_full_isl"), ("paged", "sharing")}


def workload(count: int, rate: float) -> dict[str, Any]:
    return {
        "kind": "synthetic", "num_requests": count,
        "arrivals": {"kind": "poisson", "rate_per_s": rate},
        "prompt": {"kind": "uniform", "min_tokens": 20, "max_tokens": 400},
        "output": {"kind": "uniform", "min_tokens": 5, "max_tokens": 150},
        "prefixes": [{"tokens": {"kind": "fixed", "tokens": 70}, "count": 2}],
        "priorities": [{"priority": 0, "share": 1}, {"priority": 5, "share": 1}],
    }  # fmt: skip


STREAMS = [
    ("opt-125m", 1300, workload(40, 4000.0)),
    ("gemma-3-1b", 1500, workload(40, 60.0)),
    ("qwen3.5-4b", 9000, workload(25, 30.0)),
    ("opt-125m", 14_000, workload(60, 4000.0)),
    (
        "opt-125m",
        9000,
        workload(40, 60.0)
        | {
            "items": [
                {
                    "tokens": {"kind": "uniform", "min_tokens": 20, "max_tokens": 150},
                    "count": 12,
                    "per_prompt": {"kind": "uniform", "min_tokens": 1, "max_tokens": 3},
                }
            ],
            "adapters": {"count": 5},
        },
    ),
]


def ran(part: str, keys: dict[str, Any], at: int) -> str | None:
    """All results of a run; None if the run is refused."""
    model, tokens, stream = STREAMS[at]
    table: dict[str, Any] = {
        "model": {"name": model, "max_model_len": 1024},
        "device": {"name": "h100"},
        "memory": {"kv_cache_tokens": tokens},
        "allocator": {"kind": "paged"},
        "step_time": {"kind": "roofline"},
        "workload": stream,
        part: keys,
    }
    try:
        summary = dict(kvsim.simulate(table).runs[0].summary.items())
    except InputError:
        return None
    return repr(summary | {"wall_s": 0, "notes": []})


SECOND_POOLS = [name for name in Radix.model_fields if "swa" in name or "mamba" in name]


@pytest.mark.parametrize("name", SECOND_POOLS)
def test_key_for_a_pool_that_the_model_lacks_is_refused(name: str) -> None:
    random, field = Random(name), Radix.model_fields[name]
    drawn = {value_for(random, name, field, 1) for _ in range(12)} - {None, field.default}
    table: dict[str, Any] = {"model": {"name": "opt-125m"}, "device": {"name": "h100"}}
    table |= {"scheduler": {"kind": "sglang"}, "workload": STREAMS[0][2]}
    assert drawn
    for value in drawn:
        with pytest.raises(InputError, match=rf"{name}.*(no (sliding|recurrent)|at least 1)"):
            kvsim.simulate(table | {"allocator": {"kind": "radix", name: value}})


@pytest.mark.parametrize(("part", "kind"), KINDS, ids=str)
def test_allocator_or_scheduler_key_changes_a_run_or_is_refused(part: str, kind: str) -> None:
    registry: Any = ALLOCATORS if part == "allocator" else SCHEDULERS
    idle = []
    for name, field in registry.get(kind).model_fields.items():
        if name in (*SKIPPED, "scheduler") or (kind, name) in LATER:
            continue
        random, beside = Random(name), {"kind": kind, **BESIDE.get(name, {})}
        if name not in PREEMPTING.get(kind, {}):
            beside |= PREEMPTING.get(kind, {})
        drawn = [value_for(random, name, field, 1) for _ in range(12)]
        values = [
            each for at, each in enumerate(drawn) if each is not None and each not in drawn[:at]
        ]
        found = set()
        for at in range(len(STREAMS)):
            was = ran(part, beside, at)
            for value in values if was is not None else ():
                now = ran(part, {**beside, name: value}, at)
                found.add("refused" if now is None else "changed" if now != was else "the same")
                if "changed" in found:
                    break
            if "changed" in found:
                break
        if values and "changed" not in found and found != {"refused"}:
            idle.append(name)
    assert idle == []
