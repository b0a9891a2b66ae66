"""The typed summary: its fields, how it is read, and which stored ones are refused."""

import ast
import dataclasses
import json
from pathlib import Path

import pytest
from support.summaries import run_summary

import kvsim
from kvsim.memory.ledger import CLASSES
from kvsim.plumbing.errors import InputError
from kvsim.request import Request
from kvsim.results import store
from kvsim.results.latency import QUANTILES
from kvsim.results.result_summary import ResultSummary
from kvsim.results.summary import ClassShares, LatencySummary, NoWindow

PACKAGE = Path(kvsim.__file__).parent


def names(part):
    return tuple(each.name for each in dataclasses.fields(part))


def test_summary_fields_are_the_ledger_classes_and_quantiles():
    assert names(ClassShares) == CLASSES
    assert names(LatencySummary) == ("mean", *QUANTILES)


def test_summary_value_is_equal_by_attribute_and_by_key():
    run = run_summary({"ttft_s": {"p50": 0.25}, "preemptions": 3})
    assert run.ttft_s.p50 == run["ttft_s"]["p50"] == 0.25
    assert run.preemptions == dict(run)["preemptions"] == 3
    assert run.memory.time_mean.of("idle") == 1.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        run.preemptions = 4
    with pytest.raises(KeyError):
        run["no_such_number"]


def test_summary_json_omits_optional_keys_and_keeps_null_values():
    run = run_summary({"queue_s": dict.fromkeys(("mean", *QUANTILES))})
    table = run.as_json()
    assert not {"speculation", "window", "notes", "waiting_mean", "engine_faults"} & table.keys()
    assert table["queue_s"] == dict.fromkeys(("mean", *QUANTILES))
    assert table["memory"]["sharing_savings"] is None
    assert "parts" not in table["memory"]
    assert run.memory.part("states") == 0.0


def test_wall_clock_time_is_not_a_simulated_number():
    one, other = run_summary({"wall_s": 1.0}), run_summary({"wall_s": 2.0})
    assert one != other
    assert one.simulated() == other.simulated()
    assert "wall_s" not in one.simulated()


def test_a_result_on_disk_is_the_summary_key_for_key(tmp_path, tables):
    requests = [Request(f"r{i}", 0, 100, 60) for i in range(9)]
    result = kvsim.simulate(tables(allocator=[{"kind": "paged"}]), requests)
    store.write(tmp_path, result, None)
    text = (tmp_path / store.SUMMARY).read_text()
    assert json.dumps(store.read_summary(tmp_path).as_json(), indent=2, ensure_ascii=False) == (
        text.rstrip("\n")
    )
    assert list(json.loads(text)["runs"][0])[:4] == [
        *("allocator", "label", "requests", "preemptions")
    ]
    assert isinstance(result.runs[0].summary.window, NoWindow)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("memory", "time_mean"), 3, "runs.0.memory.time_mean: not a table; got 3"),
        (("ttft_s", "p50"), "x", "runs.0.ttft_s.p50: not a number; got x"),
        (("steps",), 1.5, "runs.0.steps: not a whole number; got 1.5"),
        (("wall_s",), True, "runs.0.wall_s: not a number; got True"),
        (("memory", "peak_used"), 1e-40, "peak_used: a number out of bounds; got 1e-40"),
        (("memory", "time_mean", "used"), 2.0, "used: too large; got 2.0; limit at most 1"),
        (("makespan_s",), 0.0, "runs.0: requests have finished, and no time has passed"),
        (("notes",), [{"about": "x"}], "runs.0.notes.0.text: required key is missing"),
        (("window",), {"found": "steady"}, "runs.0.window.start_s: required key is missing"),
        (("window",), 4, "runs.0.window: not a table; got 4"),
    ],
)
def test_invalid_stored_number_is_a_one_line_error(path, value, said):
    run = run_summary({}).as_json()
    place = run
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(InputError) as error:
        ResultSummary.parse({"kvsim": "0", "scenario": {}, "runs": [run]}, "a file")
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_no_module_reads_a_summary_by_its_keys():
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            by_key = isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)
            if by_key and ast.unparse(node.value).endswith((".summary", ".time_mean")):
                raise AssertionError(f"{path}: {ast.unparse(node)}")
