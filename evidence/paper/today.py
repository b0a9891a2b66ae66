"""Figure 2 for a current server: Llama-3-8B on an H200, chunked prefill, blocks of 16, ShareGPT
lengths.

Step times are the roofline's; the load is above what any of the systems can serve.
"""

from typing import Any

from evidence.paper.experiment import Means, Setting

RATE_PER_S = 240.0
WINDOW_S = (60.0, 120.0)
BASE: dict[str, Any] = {
    "model": {"name": "llama-3-8b"},
    "device": {"name": "h200"},
    "memory": {},
    # Bytes and FLOPs alone: memory is the question, and all systems have the same steps.
    "step_time": {"kind": "roofline", "layer_us": 0.0},
    "scheduler": {"kind": "continuous", "max_num_seqs": 4096, "max_num_batched_tokens": 8192},
}
SYSTEMS: dict[str, dict[str, Any]] = {
    "model's maximum (8,192), first fit": {"kind": "max-buffer", "reserve": "model-max"},
    "power of two, buddies": {"kind": "max-buffer", "reserve": "pow2", "placement": "buddy"},
    "exact size, buddies": {"kind": "max-buffer", "reserve": "exact", "placement": "buddy"},
    "exact size, first fit": {"kind": "max-buffer", "reserve": "exact"},
    "exact size, best fit": {"kind": "max-buffer", "reserve": "exact", "placement": "best-fit"},
    "doubling from 64, first fit": {"kind": "doubling", "initial_tokens": 64},
    "paged, blocks of 16": {"kind": "paged", "block_size": 16},
}


def simulate(setting: Setting) -> dict[str, Means]:
    """Simulate every system under the same stream."""
    found = {}
    for name, allocator in SYSTEMS.items():
        tables = {**BASE, "allocator": [allocator]}
        (found[name],) = setting.watch(tables, setting.sharegpt, RATE_PER_S, 1, WINDOW_S)
    return found
