"""The load to copy holds on seeds that the search has not used; closed loops count users."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from kvsim.cli import app
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.toml import to_toml
from kvsim.whatif.capacity.fresh import NUM_FRESH, STEP, fresh_load
from kvsim.whatif.capacity.load import unit, users_of, with_users
from kvsim.whatif.capacity.objectives import complete, kept, parse_objective
from kvsim.whatif.task import make_task, run_task


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.floats(0.5, 400.0), min_size=1, max_size=NUM_FRESH), st.booleans(),
    st.floats(1.0, 800.0),
)  # fmt: skip
def test_load_to_copy_is_the_least_threshold_of_fresh_seeds(
    thresholds: list[float], whole: bool, start: float
) -> None:
    def keeps(value: float, seeds: Sequence[int]) -> list[bool]:
        return [value <= thresholds[seed] for seed in seeds]

    found = fresh_load(start, range(len(thresholds)), keeps, whole=whole)
    least = min(*thresholds, start)
    if found.value is None:
        assert least < (1 if whole else start / 50)
        return
    assert found.value <= least
    assert found.value >= (least * STEP - 1 if whole else least * STEP * 0.99)


@pytest.fixture
def users(tables: Any) -> dict[str, Any]:
    """Twelve users of a small pool, each waiting for the answer before the next request."""
    return tables(
        allocator=[{"kind": "paged"}],
        model={"name": "opt-125m", "max_model_len": 1024},
        scheduler={"kind": "continuous", "max_num_seqs": 64},
        workload={
            "kind": "synthetic",
            "num_requests": 60,
            "arrivals": {
                "kind": "closed-loop",
                "num_users": 12,
                "think": {"kind": "fixed", "seconds": 0.0},
            },
            "prompt": {"kind": "uniform", "min_tokens": 50, "max_tokens": 300},
            "output": {"kind": "geometric", "mean": 60},
            "clip_to": 1024,
        },
    )


def test_capacity_searches_closed_loops_by_number_of_users(
    users: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "users.toml"
    path.write_text(to_toml(users))
    slo = "ttft_s.p99=0.2"
    command = ["capacity", str(path), "--slo", slo, "--repeat", "2", "--fresh", "3"]
    done = CliRunner().invoke(app, [*command, "--jobs", "1", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    (answer,) = found["answers"]
    objectives = complete([parse_objective(slo)])
    for edge in answer["seeds"]:
        for users_now, keeps in ((edge["kept"], True), (edge["lost"], False)):
            table = {**with_users(users, int(users_now)), "seed": edge["seed"]}
            (row,) = run_task(make_task(table, Path())).rows
            assert kept(row, objectives) is keeps
    fresh = answer["fresh"]
    assert fresh["num_seeds"] == 3
    assert fresh["value"] <= min(edge["kept"] for edge in answer["seeds"])
    for seed in (2, 3, 4):
        table = {**with_users(users, int(fresh["value"])), "seed": seed}
        assert kept(run_task(make_task(table, Path())).rows[0], objectives)


def test_requests_scale_with_the_number_of_users(users: dict[str, Any]) -> None:
    assert (users_of(users), unit(users)) == (12, "users")
    more = with_users(users, 30)
    assert more["workload"]["arrivals"]["num_users"] == 30
    assert more["workload"]["num_requests"] == 150
    assert with_users(users, 3)["workload"]["num_requests"] == 60
    at_once = users["workload"] | {"arrivals": {"kind": "at-once"}, "max_concurrency": 8}
    assert users_of({**users, "workload": at_once}) == 8
    with pytest.raises(InputError, match="no users to count"):
        users_of({**users, "workload": users["workload"] | {"arrivals": {"kind": "at-once"}}})
