"""The figure of hits by tier."""

import kvsim
from kvsim.report.figures import FIGURES


def test_hits_in_host_memory_and_in_files_have_lines_of_their_own() -> None:
    tables = {
        "model": {"name": "llama-3.1-8b", "max_model_len": 8192},
        "device": {"name": "h100-80gb"},
        "memory": {"kv_cache_tokens": 12_000},
        "allocator": "paged",
        "tier": [
            {"kind": "vllm-offloading", "kv_offloading_size": 0.5},
            {"kind": "file-system"},
        ],
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
    result = kvsim.simulate(tables)
    plot = FIGURES.get("tiers")().draw(result)
    assert [line.name for line in plot.data] == [
        "paged, anywhere", "paged, in a tier", "paged, in the storage",
    ]  # fmt: skip
    assert plot.layout.showlegend  # a dash means a place, which the key of the runs does not say
    assert len({line.line.dash for line in plot.data}) == 3
    anywhere, tier, storage = ([y for y in line.y if y == y] for line in plot.data)
    assert all(0 <= s <= t <= a <= 100 for a, t, s in zip(anywhere, tier, storage, strict=True))
    assert max(storage) > 0
