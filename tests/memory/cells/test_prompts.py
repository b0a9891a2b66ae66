"""A prompt in chunks leaves the cells that decoders take at the end of the step."""

from support.outcomes import CROWDED

from kvsim.request import Request
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation


def test_prompt_chunk_leaves_a_free_cell_for_each_decoder() -> None:
    late = 500_000_000_000
    requests = [
        Request("r0", 0, 320, 86),
        Request("r1", 0, 1, 1, after="r0"),
        Request("r2", 0, 162, 1),
        Request("r3", 0, 1, 1, after="r2"),
        Request("r4", late, 37, 32),
        Request("r5", late, 236, 18),
        Request("r6", late, 358, 2, max_tokens=5),
        Request("r7", late, 189, 5),
    ]
    scheduler = {"long_prefill_token_threshold": 40, "max_num_batched_tokens": 128}
    tables = {
        **CROWDED,
        "device": {"name": "a100-80gb"},
        "allocator": [{"kind": "cells"}],
        "scheduler": {"kind": "continuous", **scheduler},
        "max_steps": 1,
    }
    scenario = Scenario.from_table(tables)
    run = Simulation(scenario, requests).run(scenario.allocator[0], "cells")
    assert run.summary["requests"]["finished"] == len(requests)
