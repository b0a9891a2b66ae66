"""How many files a step runs through, held where it is: a rule stated in one more place shows."""

from typing import Any

import pytest
from support.walk import walk

import kvsim.engine.engine

LENGTHS = {"kind": "uniform", "min_tokens": 1, "max_tokens": 100}
BASE: dict[str, Any] = {
    "seed": 0,
    "device": {"name": "a100-80gb"},
    "memory": {"kv_cache_tokens": 9000},
    "scheduler": {"kind": "continuous"},
    "step_time": {"kind": "linear", "base_us": 10_000.0, "context_token_ns": 10.0},
    "workload": {
        "kind": "synthetic",
        "num_requests": 40,
        "arrivals": {"kind": "poisson", "rate_per_s": 20.0},
        "prompt": LENGTHS,
        "output": LENGTHS,
        "prefixes": [{"tokens": {"kind": "fixed", "tokens": 64}, "count": 4, "share": 0.9}],
    },
}
PAGED = {"allocator": [{"kind": "paged"}]}
ONE = {**PAGED, "model": {"name": "opt-13b"}}
GROUPS = {**PAGED, "model": {"name": "gemma-3-12b", "max_model_len": 2048}}
RADIX = {**ONE, "allocator": [{"kind": "radix"}], "scheduler": {"kind": "sglang"}}


@pytest.mark.skipif(
    not kvsim.engine.engine.__file__.endswith(".py"), reason="compiled functions are not followed"
)
@pytest.mark.parametrize(
    ("table", "watched", "admits", "decodes"),
    [
        pytest.param(ONE, False, 35, 19, id="one table"),
        pytest.param(ONE, True, 40, 23, id="one table, watched"),
        pytest.param(GROUPS, False, 40, 23, id="groups"),
        pytest.param(GROUPS, True, 45, 27, id="groups, watched"),
        pytest.param(RADIX, False, 28, 22, id="radix"),
    ],
)
def test_a_step_runs_through_no_more_files(
    table: dict[str, Any], watched: bool, admits: int, decodes: int
) -> None:
    found = walk({**BASE, **table}, watched=watched)
    for hits, most in ((True, admits), (False, decodes)):
        files = found.fewest(hits=hits)
        assert len(files) <= most, sorted(files)
