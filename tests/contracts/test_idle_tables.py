"""No key of a tier, a router, an autoscaler, a fleet or SGLang's scheduler is ignored in silence:
of some random values of it one changes a run, or all but its default are refused.
"""

import json
from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

import pytest
from support.fuzzing.drawing import SKIPPED, value_for
from support.idle_streams import SESSIONS, SINGLE, Table

import kvsim
from kvsim.engine.connectors import TIERS
from kvsim.engine.schedulers import SCHEDULERS
from kvsim.fleet.options import FleetOptions
from kvsim.fleet.routers import ROUTERS
from kvsim.fleet.scaling import AUTOSCALERS
from kvsim.plumbing.errors import InputError

STREAMS = [
    ("opt-125m", 2600, SESSIONS),
    ("opt-125m", 1300, SINGLE),
    ("opt-125m", 14_000, SINGLE),
]
# What a key needs beside it to have something to change.
BESIDE: dict[str, Table] = {
    "max_tracker_size": {"store_threshold": 2},
    "n_read_threads": {"n_write_threads": 1, "read_gb_per_s": 0.01},
    "n_write_threads": {"n_read_threads": 1, "write_gb_per_s": 0.01},
}
VALUES: dict[str, list[Any]] = {  # where values at random bite too seldom
    "sync_load_budget_bytes": [1 << 30],
    "n_read_threads": [1, 8],
    "n_write_threads": [1, 8],
    "objectives": [{"ttft_s": 0.01}],
}
NEEDED = {"scheduler": range(3)}  # of the streams; elsewhere the first
REQUIRED: dict[str, Table] = {
    "requests": {"ongoing": 2.0},
    "rate": {"rate_per_s": 20.0},
    "hpa": {"ongoing": 2.0},
    "vllm-offloading": {"kv_offloading_size": 0.05},
    "vllm-simple-offloading": {"kv_offloading_size": 2.0},
    "lmcache": {"max_local_cpu_size": 0.05, "chunk_size": 32},
}


def tiers(keys: Table) -> Table:
    first = {"kind": "vllm-offloading", "kv_offloading_size": 0.05}
    return {"tier": [first, keys] if keys["kind"] == "file-system" else [keys]}


def scaled(keys: Table) -> Table:
    quick = {"interval_s": 0.02, "start_up_s": 0.01, "scale_down_after_s": 0.05}
    return {"fleet": {"replicas": 2, "autoscaler": quick | keys}}


def fleet(keys: Table) -> Table:
    del keys["kind"]
    return {"fleet": {"replicas": 3, "router": {"kind": "cache-aware"}} | keys}


PLACES: dict[str, tuple[Any, Callable[[Table], Table]]] = {
    **{f"tier {kind}": (TIERS.get(kind), tiers) for kind in TIERS},
    **{
        f"router {kind}": (
            ROUTERS.get(kind),
            lambda keys: {"fleet": {"replicas": 3, "router": keys}},
        )
        for kind in ROUTERS
    },
    **{f"autoscaler {kind}": (AUTOSCALERS.get(kind), scaled) for kind in AUTOSCALERS},
    "fleet fleet": (FleetOptions, fleet),
    "scheduler sglang": (
        SCHEDULERS.get("sglang"),
        lambda keys: {"allocator": {"kind": "radix"}, "scheduler": keys},
    ),
}


def ran(at: int, tables: Table) -> str | None:
    """All results of a run; None if the run is refused. Cached, since many keys are tried on one
    base.
    """
    return _ran(at, json.dumps(tables))


@cache
def _ran(at: int, written: str) -> str | None:
    tables = json.loads(written)
    model, tokens, stream = STREAMS[at]
    table = {
        "model": {"name": model, "max_model_len": 1024}, "device": {"name": "h100"},
        "memory": {"kv_cache_tokens": tokens}, "allocator": {"kind": "paged"},
        "step_time": {"kind": "roofline"}, "workload": stream,
    }  # fmt: skip
    try:
        result = kvsim.simulate(table | tables)
    except InputError:
        return None
    said = [dict(run.summary.items()) | {"wall_s": 0, "notes": []} for run in result.runs]
    return repr((said, result.fleets))


@pytest.mark.parametrize("place", PLACES)
def test_tier_router_or_fleet_key_changes_a_run_or_is_refused(place: str) -> None:
    options, within = PLACES[place]
    (part, kind), idle = place.split(), []
    for name, field in options.model_fields.items():
        if name in (*SKIPPED, "scheduler"):
            continue
        beside = {"kind": kind} | REQUIRED.get(kind, {}) | BESIDE.get(name, {})
        random = Random(name)
        values = VALUES.get(name) or [value_for(random, name, field, 1) for _ in range(12)]
        values = [each for each in values if each not in (None, field.default)]
        found = set()
        for at in NEEDED.get(part, range(1)):
            was = ran(at, within(dict(beside)))
            for value in values if was is not None else ():
                now = ran(at, within({**beside, name: value}))
                found.add("refused" if now is None else "changed" if now != was else "the same")
                if "changed" in found:
                    break
            if "changed" in found or found == {"refused"}:
                break
        if values and not found & {"changed"} and found != {"refused"}:
            idle.append((name, found))
    assert idle == []
