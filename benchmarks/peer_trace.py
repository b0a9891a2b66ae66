"""A case's requests for other simulators, in the form of Mooncake's traces."""

import json
from functools import cache
from itertools import count
from pathlib import Path

from case import Case

from kvsim.fleet.routers import ROUTERS
from kvsim.memory.content_keys import ContentKeys
from kvsim.scenario import Scenario
from kvsim.scenario.build.context_parallel import BLOCK_SIZE
from kvsim.sequence import Sequence
from kvsim.simulation import Simulation


@cache
def write_trace(case: Case, path: Path) -> dict[str, int | str]:
    """Write the requests to `path`, a hash id for each block of the prompts, equal ones where
    prompts are equal so far; returns the limits of the engine that serves them, how many replicas
    there are, and the kind of their router.
    """
    simulation = Simulation(Scenario.load(case.path, case.set))
    (allocator,) = simulation.scenario.allocator
    size = getattr(allocator, "block_size", BLOCK_SIZE)
    keys, fresh, ids = ContentKeys(size), count(), dict[int, int]()
    with path.open("w") as file:
        for request in simulation.stream.requests:
            full = request.prompt_tokens // size
            named = keys.of(Sequence(request, 0)).listed(0, full)
            hash_ids = [
                ids[key] if key in ids else ids.setdefault(key, next(fresh)) for key in named
            ]
            hash_ids += [next(fresh) for _ in range(-(-request.prompt_tokens // size) - len(named))]
            record = {
                "timestamp": request.arrival_ps / 1e9,
                "input_length": request.prompt_tokens,
                "output_length": request.output_tokens,
                "hash_ids": hash_ids,
            }
            file.write(json.dumps(record) + "\n")
    scheduler, fleet = simulation.scenario.scheduler, simulation.scenario.fleet
    return {
        "replicas": 1 if fleet is None else fleet.replicas or 1,
        "router": "none" if fleet is None else ROUTERS.name_of(fleet.router),
        "num_gpu_blocks": simulation.pool.capacity_bytes
        // (size * simulation.layout.bytes_per_token),
        "block_size": size,
        "max_num_seqs": getattr(scheduler, "max_num_seqs", 0),
        "max_num_batched_tokens": getattr(scheduler, "max_num_batched_tokens", 0),
        "enable_prefix_caching": int(getattr(allocator, "enable_prefix_caching", False)),
    }
