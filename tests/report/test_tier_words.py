"""What the report says of tiers behind the device."""

from typing import Any

import pytest

import kvsim
from kvsim.report.numbers import seconds
from kvsim.report.tier_words import behind_device
from kvsim.report.words import paragraphs

TABLES: dict[str, Any] = {
    "model": {"name": "llama-3.1-8b", "max_model_len": 8192},
    "device": {"name": "h100-80gb"},
    "memory": {"kv_cache_tokens": 12_000},
    "allocator": "paged",
    "tier": [{"kind": "vllm-offloading", "kv_offloading_size": 0.5}, {"kind": "file-system"}],
    "workload": {
        "kind": "sessions",
        "num_sessions": 6,
        "max_context": "max_model_len",
        "arrivals": {"kind": "poisson", "rate_per_s": 2.0},
        "turns": {"kind": "fixed", "tokens": 4},
        "prompt": {"kind": "uniform", "min_tokens": 500, "max_tokens": 1500},
        "output": {"kind": "fixed", "tokens": 20},
        "think": {"kind": "exponential", "mean_s": 3.0},
    },
}


@pytest.mark.parametrize("fleet", [{}, {"fleet": {"replicas": 2}}], ids=["alone", "fleet"])
def test_hits_by_tier_waits_and_saved_time_are_told(fleet: dict[str, Any]) -> None:
    result = kvsim.simulate(TABLES | fleet)
    summary = result.fleets[0] if fleet else result.runs[0].summary
    assert summary.offloading is not None
    host, files = summary.offloading.tiers
    said = " ".join(behind_device([summary]))
    assert said in " ".join(paragraphs(result))
    assert f"{host.hit_tokens:,} tokens in vllm-offloading" in said
    assert f"{files.hit_tokens:,} tokens in file-system" in said
    assert f"Sequences waited {summary.offloading.loads_awaited} times" in said
    saved_s = summary.offloading.saved_s or 0.0
    assert seconds(abs(saved_s)) in said
    assert ("loads saved" in said) == (saved_s >= 0)


def test_tiers_without_a_hit_and_runs_without_tiers() -> None:
    single = {"kind": "fixed", "tokens": 1}
    unlike = {**TABLES, "workload": {**TABLES["workload"], "turns": single}}
    result = kvsim.simulate(unlike)
    (said,) = behind_device([run.summary for run in result.runs])
    assert said == (
        "paged found nothing in the tiers behind the device (vllm-offloading and file-system)."
    )
    without = {key: value for key, value in TABLES.items() if key != "tier"}
    assert not behind_device([run.summary for run in kvsim.simulate(without).runs])
