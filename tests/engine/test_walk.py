"""How many files a step runs through, held where it is: a rule stated in one more place shows. And
what tiers are made of, of which nothing runs without one.
"""

import sys
from collections import Counter
from types import FrameType
from typing import Any

import pytest
from support.walk import PACKAGE, walk

import kvsim.engine.engine
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation

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

# Connectors and links, what stands between them and an engine, and SGLang's host memory.
TIERS = (
    "engine/connectors/",
    "engine/executor/copier.py",
    "engine/executor/copies.py",
    "engine/executor/hicache.py",
    "engine/executor/load_waits.py",
    "engine/hicache/",
    "engine/schedulers/connected_device.py",
    "engine/tier_books.py",
    "memory/paged/loads.py",
    "memory/radix/hicache/",
)
# Forms of them that do nothing, called where there are none.
NOTHING_DONE = ("NoConnector.matched", "NoHicache.", "Backup.__init__", "Backup.inserted")
# These say that there are none.
ASKED = ("tiers.py", "results/link_copies.py", "results/tier_hits.py")
DRAFTS = {"method": "ngram", "num_speculative_tokens": 2, "acceptance_rate": 0.5}

interpreted = pytest.mark.skipif(
    not kvsim.engine.engine.__file__.endswith(".py"), reason="compiled functions are not followed"
)


@interpreted
@pytest.mark.parametrize(
    ("table", "watched", "admits", "decodes"),
    [
        pytest.param(ONE, False, 37, 21, id="one table"),
        pytest.param(ONE, True, 41, 24, id="one table, watched"),
        pytest.param(GROUPS, False, 40, 23, id="groups"),
        pytest.param(GROUPS, True, 44, 26, id="groups, watched"),
        pytest.param(RADIX, False, 32, 25, id="radix"),
    ],
)
def test_decode_step_calls_a_bounded_number_of_files(
    table: dict[str, Any], watched: bool, admits: int, decodes: int
) -> None:
    found = walk({**BASE, **table}, watched=watched)
    for hits, most in ((True, admits), (False, decodes)):
        files = found.fewest(hits=hits)
        assert len(files) <= most, sorted(files)


def called(table: dict[str, Any], num_requests: int) -> Counter[str]:
    """Number of calls into each file of kvsim while num_requests requests are served; do-nothing
    forms are left out.
    """
    workload = {**BASE["workload"], "num_requests": num_requests}
    calls: Counter[str] = Counter()

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        name = frame.f_code.co_filename
        if event != "call" or frame.f_code.co_qualname.startswith(NOTHING_DONE):
            return
        if name.startswith(PACKAGE):
            calls[name.removeprefix(PACKAGE + "/")] += 1

    simulation = Simulation(Scenario.from_table({**BASE, **table, "workload": workload}))
    sys.setprofile(profile)
    try:
        simulation.result()
    finally:
        sys.setprofile(None)
    return calls


@interpreted
@pytest.mark.parametrize(
    "table",
    [
        pytest.param(ONE, id="one table"),
        pytest.param(GROUPS, id="groups"),
        pytest.param({**ONE, "speculative_config": DRAFTS}, id="drafts"),
        pytest.param(RADIX, id="radix"),
    ],
)
def test_run_without_tiers_calls_no_tier_code(table: dict[str, Any]) -> None:
    few, many = called(table, 20), called(table, 60)
    assert many["engine/engine.py"] > 2 * few["engine/engine.py"] > 40
    assert [name for name in many if name.startswith(TIERS)] == []
    assert {name: many[name] for name in ASKED} == {name: few[name] for name in ASKED}


@interpreted
def test_run_with_a_tier_calls_tier_code() -> None:
    """A run with a tier does call the files that the previous test excludes."""
    tier = {"tier": [{"kind": "vllm-offloading", "kv_offloading_size": 1}]}
    hicache = {"allocator": [{"kind": "radix", "enable_hierarchical_cache": True}]}
    found = called({**ONE, **tier}, 20) + called({**RADIX, **hicache}, 20)
    for name in TIERS:
        assert any(each.startswith(name) for each in found), name
