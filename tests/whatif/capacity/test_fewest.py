"""The search for the fewest GPUs equals a search of every pair, and works on the command line."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from kvsim.cli import app
from kvsim.plumbing.errors import InputError
from kvsim.whatif.capacity.fewest import ReplicaKey, fewest, num_gpus, replica_keys


@given(
    st.lists(st.integers(1, 24), min_size=24, max_size=24),
    st.integers(1, 8),
    st.integers(1, 8),
    st.tuples(st.integers(1, 6), st.integers(1, 6)),
)
def test_found_prefill_and_decode_counts_have_the_fewest_gpus(
    needed: list[int], first: int, second: int, start: tuple[int, int]
) -> None:
    """needed[i]: decode replicas required with i + 1 prefill replicas."""
    needed = sorted(needed, reverse=True)
    keys = (ReplicaKey("p", first, start[0]), ReplicaKey("d", second, start[1]))

    def keeps(counts: tuple[int, ...]) -> bool:
        prefill, decode = counts
        return decode >= needed[min(prefill, len(needed)) - 1]

    found = fewest(keys, keeps)
    assert found is not None
    assert keeps(found)
    pairs = [(p, d) for p in range(1, 60) for d in range(1, 60) if keeps((p, d))]
    assert num_gpus(keys, found) == min(num_gpus(keys, pair) for pair in pairs)


def test_fewest_gpus_of_one_replica_kind_or_none_if_256_do_not_suffice() -> None:
    keys = (ReplicaKey("fleet.replicas", 2, 3),)
    assert fewest(keys, lambda counts: counts[0] >= 7) == (7,)
    assert fewest(keys, lambda counts: False) is None


RUN = (
    *("--find", "gpus", "--slo", "tpot_s.p99=0.0125", "--slo", "ttft_s.p99=2", "--repeat", "1"),
    *("--jobs", "1", "--set", "workload.num_requests=80", "--json"),
)


def answer(*more: str) -> dict[str, Any]:
    found = CliRunner().invoke(app, ["capacity", "prefill-or-both", *RUN, *more])
    assert found.exit_code == 0, found.output
    (data,) = json.loads(found.stdout)["fewest"]
    return dict(data)


def test_capacity_finds_gpus_for_prefill_decode_and_fleet_in_one_command() -> None:
    split = answer("--rate", "10", "--set", "disaggregation.decode.model.tensor_parallel_size=2")
    prefill, decode = (split[f"disaggregation.{side}.replicas"] for side in ("prefill", "decode"))
    assert split["gpus"] == prefill + 2 * decode
    whole = answer("--rate", "10")
    assert whole["gpus"] == whole["fleet.replicas"] > 1


def test_fewest_gpus_search_refuses_fleet_groups() -> None:
    table = {
        "model": {"name": "llama-2-7b"},
        "device": {"name": "a100-80gb"},
        "allocator": {"kind": "paged"},
        "fleet": {"group": [{"replicas": 1}]},
    }
    with pytest.raises(InputError, match=r"fleet\.replicas in place of fleet\.group"):
        replica_keys(table, Path())
