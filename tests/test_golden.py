"""Regression test: every recipe's summary is unchanged to the last bit."""

import tomllib
from pathlib import Path

import pytest
from support.golden import DIGESTS, digests
from support.public_traces import public_trace

from kvsim.workload.catalogue import entries

RECIPES = {path.stem: path for path in (Path(__file__).parents[1] / "workloads").glob("*.toml")}
NOT_RECORDED = {"azure-code": "its trace was not at hand when the digests were made"}
SLOW = ("azure-conv", "llamacpp-vllm-or-sglang", "vllm-or-sglang-mooncake")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in RECIPES]
)
def test_recipe_summary_matches_its_recorded_digest(name: str) -> None:
    if name in NOT_RECORDED:
        pytest.skip(NOT_RECORDED[name])
    workload = tomllib.loads(RECIPES[name].read_text())["workload"]
    if workload["kind"] == "trace":
        public_trace(entries()[workload["name"]].file_name)
    found = digests(name)
    moved = {label for label in DIGESTS[name] | found if found.get(label) != DIGESTS[name][label]}
    assert not moved, f"python -m kvsim run {name} --json gives other figures than it did"


def test_every_recipe_has_recorded_digests() -> None:
    assert DIGESTS.keys() | NOT_RECORDED.keys() == RECIPES.keys()
