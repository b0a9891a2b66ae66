"""Invariants of every registered kind of tier: k steps equal single steps, ledger and allocator
agree at every event, and content evicted from the device hits in the tier.
"""

from typing import Any

import pytest
from support.auditor import Auditor

from kvsim.engine.connectors import TIERS
from kvsim.engine.connectors.tiers import TierOptions
from kvsim.results.summary import RunSummary
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation

HOST_GIB = 4.0  # of a tier whose size has no default


def of_kind(kind: str, gib: float = HOST_GIB) -> dict[str, Any]:
    """The table of a tier with its required keys alone, which are sizes in GiB."""
    fields = TIERS.get(kind).model_fields.items()
    return {"kind": kind, **{key: gib for key, field in fields if field.is_required()}}


def chain(kind: str) -> list[dict[str, Any]]:
    """The tables of `[[tier]]`: this kind alone, or second after a small host memory."""
    if TIERS.get(kind).connector is TierOptions.connector:
        return [of_kind("vllm-offloading", 0.5), of_kind(kind)]
    return [of_kind(kind)]


def tables(tiers: list[dict[str, Any]], *, overlaps: bool) -> dict[str, Any]:
    """Conversations of six turns; the pool holds a few of them."""
    found: dict[str, Any] = {
        "seed": 11,
        "model": {"name": "llama-3.1-8b", "max_model_len": 8192},
        "device": {"name": "h100-80gb"},
        "memory": {"kv_cache_tokens": 24_000},
        "allocator": [{"kind": "paged"}],
        "scheduler": {"kind": "continuous", "async_scheduling": overlaps},
        "workload": {
            "kind": "sessions",
            "num_sessions": 8,
            "max_context": "max_model_len",
            "arrivals": {"kind": "poisson", "rate_per_s": 2.0},
            "turns": {"kind": "fixed", "tokens": 6},
            "prompt": {"kind": "uniform", "min_tokens": 500, "max_tokens": 1500},
            "output": {"kind": "uniform", "min_tokens": 20, "max_tokens": 60},
            "think": {"kind": "exponential", "mean_s": 8.0},
        },
    }
    return found | {"tier": tiers} if tiers else found


def run(table: dict[str, Any], auditor: Auditor | None = None) -> RunSummary:
    simulation = Simulation(Scenario.from_table(table))
    (options,), (label,) = simulation.scenario.allocator, simulation.labels
    return simulation.run(options, label, observer=auditor).summary


@pytest.mark.parametrize("overlaps", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("kind", tuple(TIERS))
def test_tiers_obey_the_connector_interface(kind: str, overlaps: bool) -> None:
    table = tables(chain(kind), overlaps=overlaps)
    together, auditor = run(table), Auditor()
    singly, without = run(table | {"max_steps": 1}, auditor), run(tables([], overlaps=overlaps))
    assert auditor.events
    assert together.simulated() == singly.simulated()
    assert together.offloading is not None
    of_tier = together.offloading.tiers[-1]
    assert of_tier.stored_bytes > 0
    assert of_tier.loaded_bytes > 0
    assert together.prefix_cache.hit_tokens > without.prefix_cache.hit_tokens
    assert together.prefix_cache.hit_tokens <= together.prefix_cache.query_tokens
