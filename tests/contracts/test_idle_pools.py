"""No key of SGLang's tree or of llama.cpp's cells and slots is ignored silently. With each of the
other choices, some value of the key changes a run, or all but its default are refused.
"""

from random import Random
from typing import Any

import pytest
from support.fuzzing.drawing import SKIPPED, value_for
from support.idle_streams import SESSIONS as TURNS
from support.idle_streams import SINGLE as URGENT
from support.idle_streams import Table, uniform

import kvsim
from kvsim.engine.schedulers import SCHEDULERS
from kvsim.memory import ALLOCATORS
from kvsim.memory.radix.hicache.options import HicacheStorageConfig
from kvsim.plumbing.errors import InputError

SESSIONS: Table = {**TURNS, "num_sessions": 20}
SINGLE: Table = {key: value for key, value in URGENT.items() if key != "priorities"}
LONG: Table = {  # beyond the windows of gemma-3-1b, and to the end of a slot
    **SESSIONS, "num_sessions": 4, "first_prompt": uniform(500, 700), "prompt": uniform(60, 120),
    "turns": {"kind": "fixed", "tokens": 6},
}  # fmt: skip
AGAIN: Table = {  # the same beginnings, again and again
    **SINGLE, "arrivals": {"kind": "poisson", "rate_per_s": 30.0}, "output": uniform(30, 90),
    "prompt": uniform(1, 8),
    "prefixes": [
        {"tokens": uniform(40, 80), "count": 3, "share": 0.5},
        {"tokens": uniform(120, 400), "count": 2},
    ],
}  # fmt: skip
STREAMS = [SESSIONS, SINGLE, LONG, AGAIN]
HOST = {"enable_hierarchical_cache": True}
STORAGE = HOST | {
    "hicache_storage_backend": "file",
    "hicache_storage_backend_extra_config": {"prefetch_threshold": 16},
}
SWA, STATES = ("gemma-3-1b", 2600), ("qwen3.5-4b", 15_000)
OPT = ("opt-125m", 2600)
TREES: dict[str, tuple[tuple[str, int], Table, Table]] = {
    "pages": (OPT, {}, {}),
    "no tree": (OPT, {"disable_radix_cache": True}, {}),
    "host memory": (OPT, HOST, {}),
    "storage": (OPT, STORAGE, {}),
    "storage, waited for": (
        OPT,
        STORAGE | {"hicache_storage_prefetch_policy": "wait_complete"},
        {},
    ),
    "windows": (SWA, {}, {}),
    "windows, no tree": (SWA, {"disable_radix_cache": True}, {}),
    "states": (STATES, {}, {}),
    "states, no buffer": (STATES, {}, {"disable_overlap_schedule": True}),
    "states, no tree": (STATES, {"disable_radix_cache": True}, {}),
}
CELLS: dict[str, tuple[tuple[str, int], Table, Table]] = {
    "cells": (OPT, {}, {}),
    "cells with windows": (SWA, {}, {}),
    "slots": (("opt-125m", 2048), {}, {"cache_ram": 16}),
    "slots with windows": (("gemma-3-1b", 2048), {}, {"cache_ram": 16}),
    "slots without host memory": (("opt-125m", 2048), {}, {"cache_ram": 0}),
}
VALUES: dict[str, list[Any]] = {  # where values at random bite too seldom, or are names
    "hicache_storage_backend": ["file"],
    "hicache_size": [0.01, 0.1],
    "max_mamba_cache_size": [6, 12, 40],
    "n_parallel": [1, 2, 8],
    "cache_ram": [0, 1, 4],
    "cache_reuse": [1, 16],
    "slot_prompt_similarity": [0.0, 0.6, 1.0],
    "n_seq_max": [1, 2, 8],
    "ctx_checkpoints": [0, 1],
}
# Of one replica nothing is shared, which is refused; of a fleet tests/fleet has its test.
ELSEWHERE = {"preemption_mode", "swap_space_gib", "swap_latency_us", "victim", "kind"}


def table_of(model: tuple[str, int], allocator: Table, scheduler: Table, stream: Table) -> Table:
    name, tokens = model
    return {
        "model": {"name": name, "max_model_len": 1024}, "device": {"name": "h100"},
        "memory": {"kv_cache_tokens": tokens}, "step_time": {"kind": "roofline"},
        "allocator": allocator, "scheduler": scheduler, "workload": stream,
    }  # fmt: skip


def ran(table: Table) -> str | None:
    """All results of a run; None if the run is refused."""
    try:
        runs = kvsim.simulate(table).runs
    except InputError:
        return None
    return repr([dict(run.summary.items()) | {"wall_s": 0, "notes": []} for run in runs])


def values_of(name: str, field: Any, given: Table) -> list[Any]:
    random = Random(name)
    drawn = VALUES.get(name) or [value_for(random, name, field, 1) for _ in range(8)]
    if name == "hicache_storage_backend_extra_config":
        drawn = []  # its own keys are drawn below
    now = given.get(name, field.default)
    return [
        each for at, each in enumerate(drawn) if each not in (None, now) and each not in drawn[:at]
    ]


def idle_keys(fields: Any, given: Table, tables: Any) -> dict[str, set[str]]:
    """Keys with accepted values of which none changes a run. tables(keys, stream): a scenario with
    these keys added to the given ones.
    """
    was = [ran(tables({}, stream)) for stream in STREAMS]
    assert all(was)
    idle = {}
    for name, field in fields.items():
        if name in (*SKIPPED, *ELSEWHERE, "scheduler"):
            continue
        values, found = values_of(name, field, given), set()
        for value in values:
            for stream, before in zip(STREAMS, was, strict=True):
                now = ran(tables({name: value}, stream))
                found.add("refused" if now is None else "changed" if now != before else "the same")
                if found & {"changed", "refused"}:
                    break
            if "changed" in found:
                break
        if values and "the same" in found and "changed" not in found:
            idle[name] = found
    return idle


# What a state is kept for comes back under these streams in the other contexts. Prompts of these
# streams share less than the window of 512 tokens, and need a checkpoint whatever is moved.
UNSEEN = {
    "states, no buffer": {"mamba_max_states_per_path"},
    "slots with windows": {"cache_reuse"},
}


@pytest.mark.parametrize("context", TREES)
def test_radix_key_changes_a_run_or_is_refused(context: str) -> None:
    model, given, beside = TREES[context]
    fields = ALLOCATORS.get("radix").model_fields
    found = idle_keys(
        fields,
        given,
        lambda keys, stream: table_of(
            model, {"kind": "radix", **given, **keys}, {"kind": "sglang", **beside}, stream
        ),
    )
    assert found.keys() - UNSEEN.get(context, set()) == set()


@pytest.mark.parametrize("context", ["storage", "storage, waited for"])
def test_hicache_storage_key_changes_a_run_or_is_refused(context: str) -> None:
    model, given, beside = TREES[context]
    place = "hicache_storage_backend_extra_config"

    def tables(keys: Table, stream: Table) -> Table:
        allocator = {"kind": "radix", **given, place: given[place] | keys}
        return table_of(
            model,
            allocator | {"storage_read_gb_per_s": 0.001},
            {"kind": "sglang", **beside},
            stream,
        )

    assert idle_keys(HicacheStorageConfig.model_fields, given[place], tables) == {}


@pytest.mark.parametrize("context", CELLS)
def test_llama_server_key_changes_a_run_or_is_refused(context: str) -> None:
    model, given, beside = CELLS[context]
    slots = context.startswith("slots")
    scheduler = {"kind": "llama-server"} if slots else {"kind": "continuous"}

    def cells(keys: Table, stream: Table) -> Table:
        return table_of(model, {"kind": "cells", **given, **keys}, scheduler | beside, stream)

    def server(keys: Table, stream: Table) -> Table:
        return table_of(model, {"kind": "cells", **given}, scheduler | beside | keys, stream)

    found = idle_keys(ALLOCATORS.get("cells").model_fields, given, cells)
    if slots:
        found |= idle_keys(SCHEDULERS.get("llama-server").model_fields, beside, server)
    assert found.keys() - UNSEEN.get(context, set()) == set()


@pytest.mark.parametrize(
    ("model", "allocator", "because"),
    [
        ("opt-125m", {"kind": "radix"}, "no recurrent layers"),
        ("qwen3.5-4b", {"kind": "radix", "max_mamba_cache_size": 40}, "max_mamba_cache_size"),
        ("qwen3.5-4b", {"kind": "paged"}, "pool of states"),
    ],
)
def test_pool_ratio_without_effect_is_refused(model: str, allocator: Table, because: str) -> None:
    table = table_of((model, 1), allocator, {"kind": "sglang"}, SINGLE)
    memory = {"mem_fraction_static": 0.5, "mamba_full_memory_ratio": 0.4}
    with pytest.raises(InputError, match=rf"memory.mamba_full_memory_ratio.*{because}"):
        kvsim.simulate(table | {"memory": memory})
