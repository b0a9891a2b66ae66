import copy
import dataclasses
import io
import json

import pytest
import typer
from rich.console import Console
from support.each import check_each
from support.summaries import run_summary
from typer.testing import CliRunner

from kvsim.commands.compare import compare
from kvsim.commands.report import report
from kvsim.plumbing.errors import InputError
from kvsim.report.classes import LOOKS
from kvsim.report.comparison import as_json
from kvsim.report.differences import differences
from kvsim.report.measures import MEASURES, best
from kvsim.report.numbers import percent
from kvsim.report.terminal import print_result
from kvsim.results import store
from kvsim.results.result import Result

APP = typer.Typer()
APP.command("report")(report)
APP.command("compare")(compare)


@pytest.fixture
def call(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    return lambda *words: CliRunner().invoke(APP, [str(word) for word in words])


def printed(result, width):
    console = Console(width=width, file=io.StringIO())
    print_result(result, console)
    return console.file.getvalue()


@pytest.fixture
def folders(tmp_path, result):
    """Two folders with one result; the second has another seed and half the requests per second."""
    changed = Result(copy.deepcopy(result.scenario), copy.deepcopy(result.runs), result.version)
    changed.scenario["seed"] = 1
    changed.scenario["allocator"][2]["block_size"] = 32
    runs = tuple(
        dataclasses.replace(
            run,
            summary=dataclasses.replace(run.summary, requests_per_s=run.summary.requests_per_s / 2),
        )
        for run in changed.runs
    )
    changed = Result(changed.scenario, runs, result.version)
    paths = [tmp_path / "base", tmp_path / "other"]
    for path, each in zip(paths, (result, changed), strict=True):
        store.write(path, each, "<html>")
    return paths


def test_report_command_rebuilds_the_page(call, folders):
    answer = call("report", folders[0])
    page = folders[0] / store.REPORT
    assert (answer.exit_code, answer.stdout.strip()) == (0, str(page))
    assert page.read_text().startswith("<!doctype html>")


def test_report_writes_elsewhere_if_asked(call, folders, tmp_path):
    assert call("report", folders[0], "--out", tmp_path / "page.html").exit_code == 0
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    assert (folders[0] / store.REPORT).read_text() == "<html>"


def test_report_of_a_folder_without_a_result_names_the_missing_file(call, tmp_path):
    answer = call("report", tmp_path)
    assert isinstance(answer.exception, InputError)
    assert "summary.json is missing" in str(answer.exception)
    assert list(tmp_path.iterdir()) == []


def test_compare_prints_differing_keys_and_changes(call, folders):
    answer = call("compare", *folders)
    assert answer.exit_code == 0
    assert "allocator.2.block_size" in answer.stdout
    assert "-50.0 %" in answer.stdout
    assert answer.stdout.count("Makespan") == 3


def test_compare_of_equal_runs_says_so_in_a_line(call, folders):
    answer = call("compare", folders[0], folders[0])
    assert answer.stdout.startswith("The scenarios are the same.")
    assert "paged: the same numbers everywhere" in answer.stdout
    assert "Makespan" not in answer.stdout


def test_compare_as_json_is_json_alone(call, folders, result):
    answer = json.loads(call("compare", *folders, "--json").stdout)
    assert [each["folder"] for each in answer["results"]] == [str(path) for path in folders]
    assert answer["results"][0]["runs"] == result.summary()["runs"]
    assert answer["differences"] == [
        {"key": "seed", "values": [0, 1]},
        {"key": "allocator.2.block_size", "values": [None, 32]},
    ]


def test_compare_accepts_odd_results(call, tmp_path, odd_result):
    store.write(tmp_path / "a", odd_result, "<html>")
    for words in (["a"], ["a", "a"]):
        answer = call("compare", *(tmp_path / word for word in words))
        assert answer.exit_code == 0
        assert "nan" not in answer.stdout


def test_differences_of_nested_tables_have_dotted_keys():
    one = {"a": 1, "b": {"c": [1, 2]}, "d": [{"k": 1}], "same": 0}
    two = {"a": 1, "b": {"c": [1, 3]}, "d": [{"k": 1}, {"k": 2}], "same": 0}
    assert differences([one, two]) == [("b.c", ([1, 2], [1, 3])), ("d.1.k", (None, 2))]
    assert differences([one]) == differences([one, one]) == []
    before, after = {"m": {"a": 1}, "s": 1}, {"m": {"a": 2, "b": 3}, "s": 2}
    assert [each.key for each in differences([before, after])] == ["m.a", "m.b", "s"]


def test_terminal_report_has_a_row_for_every_run(odd_result):
    text = printed(odd_result, 130)
    assert all(text.count(run.label[:20]) >= 2 for run in odd_result.runs)
    assert "nan" not in text


def test_terminal_report_fits_80_columns(result):
    text = printed(result, 80)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert sum(line.startswith("max-buffer  ") for line in text.splitlines()) == 2


@pytest.mark.parametrize("width", [60, 80, 120])
def test_tables_print_every_column_at_any_width(odd_results, width):
    check_each(odd_results, lambda odd: check_columns(odd_results[odd], width))


def check_columns(result, width):
    text = printed(result, width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for run in result.runs:
        for look in LOOKS:
            share = run.summary["memory"]["time_mean"][look.name]
            assert not share or percent(share) in text
    heads = ("TTFT p99", "E2E p99", "makespan", "preempt")
    assert all(head in text for head in heads)


def test_compare_does_not_break_keys_inside_words(call, folders, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = call("compare", *folders).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("allocator.2.block_size ") for line in lines)


def test_more_running_sequences_are_not_ranked_as_better(result):
    runs = [run.summary for run in result.runs]
    assert best(MEASURES["running"], runs) == set()
    prompts = [dataclasses.replace(run, pool_of="prefill") for run in runs[1:]]
    assert best(MEASURES["makespan"], [runs[0], *prompts]) == set()
    assert best(MEASURES["makespan"], runs)
    counts = dataclasses.replace(runs[0].requests, finished=3)
    fewer = dataclasses.replace(runs[0], makespan_s=1.0, requests=counts)
    assert best(MEASURES["makespan"], [fewer, *runs[1:]]) == set()
    assert best(MEASURES["finished"], [fewer, *runs[1:]]) == {1, 2}


def test_compare_json_marks_changes_as_better_or_worse(folders):
    answer = as_json(["a", "b"], [store.read_summary(folder) for folder in folders])
    lines = {(line["label"], line["measure"]): line for line in answer["changes"]}
    slower = lines["paged", "Requests per second"]
    assert (slower["change"], slower["better"], slower["worse"]) == ([0.0, -0.5], [], [1])
    assert lines["paged", "Sequences running, mean"]["worse"] == []


@pytest.fixture
def against(result, tmp_path):
    """A function that writes two folders: the result, and the result after `change(scenario,
    summary)`.
    """

    def folders(change):
        scenario, runs = copy.deepcopy(result.scenario), []
        for run in result.runs:
            numbers = copy.deepcopy(run.summary.as_json())
            change(scenario, numbers)
            runs.append(dataclasses.replace(run, summary=run_summary(numbers)))
        changed = Result(scenario, tuple(runs), result.version)
        store.write(tmp_path / "a", result, "<html>")
        store.write(tmp_path / "b", changed, "<html>")
        return tmp_path / "a", tmp_path / "b"

    return folders


def judged(call, folders):
    """{measure: (better, worse)} for the run `paged`, and the text of `kvsim compare`."""
    lines = json.loads(call("compare", *folders, "--json").stdout)["changes"]
    lines = [line for line in lines if line["label"] == "paged"]
    found = {line["measure"]: (bool(line["better"]), bool(line["worse"])) for line in lines}
    return found, " ".join(call("compare", *folders).stdout.split())


def test_runs_of_different_requests_are_not_judged_better_or_worse(call, against):
    def change(scenario, summary):
        scenario["workload"] = {**scenario["workload"], "scale": 2.0}
        summary["makespan_s"] *= 2

    found, said = judged(call, against(change))
    assert set(found.values()) == {(False, False)}
    assert "The requests were not the same (workload.scale): no change is called better" in said


def test_run_that_refuses_more_requests_is_not_judged_better(call, against):
    def change(scenario, summary):
        scenario["seed"], scenario["max_steps"] = 7, 1
        summary["requests"]["finished"] -= 1
        summary["requests"]["rejected"] += 1
        summary["makespan_s"] /= 2

    found, said = judged(call, against(change))
    assert found.pop("Requests finished") == found.pop("Requests refused") == (False, True)
    assert set(found.values()) == {(False, False)}
    assert "They did not finish the same requests: beside what was served, no change" in said


def test_changes_of_shares_are_in_percentage_points(call, against):
    def change(scenario, summary):
        summary["memory"]["peak_used"] = 0.25
        summary["memory"]["peak_allocated"] /= 2

    folders = against(change)
    line = next(
        line for line in call("compare", *folders).stdout.splitlines()
        if line.startswith("Pool used, peak")
    )  # fmt: skip
    before = store.read_summary(folders[0]).runs[0].memory.peak_used
    assert line.endswith(f"25 % {25 - 100 * before:+.1f} points")


def test_change_that_rounds_to_zero_is_not_judged(call, against):
    def change(scenario, summary):
        summary["makespan_s"] *= 1.0004
        summary["requests_per_s"] *= 0.999

    found, said = judged(call, against(change))
    assert found["Makespan"] == (False, False)
    assert found["Requests per second"] == (False, True)
    assert "+0.0 %" in said


def test_compare_prints_the_notes_of_runs(call, against):
    def change(scenario, summary):
        summary["notes"] = [{"about": "saturated", "text": "The queue grew."}]
        summary["makespan_s"] *= 2

    folders = against(change)
    assert judged(call, folders)[1].count(f"note: {folders[1]}: The queue grew.") == 3


def test_results_under_several_seeds_have_intervals(tmp_path, result, call):
    for seed, rate in enumerate((2.0, 3.0, 4.0)):
        scenario = {**result.scenario, "seed": seed}
        runs = tuple(
            dataclasses.replace(run, summary=dataclasses.replace(run.summary, requests_per_s=rate))
            for run in result.runs
        )
        store.write(tmp_path / str(seed), Result(scenario, runs), "<html>")
    answer = json.loads(call("compare", *(tmp_path / str(n) for n in range(3)), "--json").stdout)
    (over,) = (
        line["over_seeds"]
        for line in answer["changes"]
        if (line["label"], line["measure"]) == ("paged", "Requests per second")
    )
    assert over["mean"] == 3.0
    # Student's t at 97.5 % and two degrees of freedom is 4.303, the deviation 1, of three values.
    assert over["half"] == pytest.approx(4.302653 / 3**0.5, rel=1e-6)
    assert "3.00 ± 2.48" in call("compare", *(tmp_path / str(n) for n in range(3))).stdout
