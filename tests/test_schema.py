"""`kvsim schema` accepts exactly the valid scenarios."""

import json
import tomllib
from functools import cache
from pathlib import Path
from random import Random

import pytest
from jsonschema import Draft202012Validator
from support.fuzzing.scenarios import scenario
from typer.testing import CliRunner

from kvsim.cli import app
from kvsim.plumbing.errors import InputError
from kvsim.scenario import Scenario
from kvsim.scenario.json_schema import scenario_schema

ROOT = Path(__file__).parents[1]
FILES = sorted([*ROOT.glob("workloads/*.toml"), *ROOT.glob("benchmarks/scenarios/*.toml")])


@cache
def schema() -> Draft202012Validator:
    return Draft202012Validator(scenario_schema())


def test_schema_command_prints_a_json_schema() -> None:
    done = CliRunner().invoke(app, ["schema"])
    printed = json.loads(done.stdout)
    Draft202012Validator.check_schema(printed)
    assert printed == scenario_schema()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_schema_accepts_every_shipped_scenario(path: Path) -> None:
    assert not list(schema().iter_errors(tomllib.loads(path.read_text())))


@pytest.mark.parametrize("seed", range(40))
def test_schema_accepts_random_valid_scenarios(seed: int) -> None:
    table = scenario(Random(seed))
    try:
        Scenario.from_table(table)
    except InputError:
        return
    assert not list(schema().iter_errors(json.loads(json.dumps(table))))


@pytest.mark.parametrize(
    ("place", "key", "value"),
    [
        (["allocator", 2], "blok_size", 16),
        (["allocator", 2], "block_size", 0),
        (["allocator", 2], "kind", "pagged"),
        (["scheduler"], "max_num_sequences", 4),
        ([], "sed", 1),
        (["workload"], "kind", "traces"),
    ],
)
def test_schema_marks_values_that_a_scenario_refuses(
    place: list[str | int], key: str, value: object
) -> None:
    table = tomllib.loads((ROOT / "workloads" / "chat.toml").read_text())
    table.setdefault("scheduler", {"kind": "continuous"})
    inner = table
    for each in place:
        inner = inner[each]  # type: ignore[index]  # a list where it is an index
    inner[key] = value
    with pytest.raises(InputError):
        Scenario.from_table(table)
    assert list(schema().iter_errors(table))
