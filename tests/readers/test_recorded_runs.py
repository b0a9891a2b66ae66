"""Collections of published runs: each kind read from a folder of its own, and compared."""

import csv
import json
import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.collection_samples import (
    MAKERS,
    all_at_once,
    blis_training,
    inferencex,
    observed,
    rate_stages,
    residency,
    write_csv,
)
from typer.testing import CliRunner

from kvsim.cli import app
from kvsim.observed.trial import FIGURES, Trial
from kvsim.observed.vllm_meta import VllmMeta
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_MS, PS_PER_S
from kvsim.readers.detect import read_runs, readers
from kvsim.readers.reader import RecordedRuns, look
from kvsim.request import Request
from kvsim.step_time.linear import LinearForm
from kvsim.validate.runs.simulate import simulate_trial

STEP_MS = 10
STEPS = LinearForm(STEP_MS * PS_PER_MS, 0, 0, 0)

COLLECTIONS = readers(RecordedRuns)


@pytest.fixture(params=list(COLLECTIONS))
def made(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    MAKERS[request.param](tmp_path)
    return request.param, tmp_path


def test_folder_of_runs_is_recognised_by_one_reader_only(made: tuple[str, Path]) -> None:
    name, folder = made
    claims = [each for each in COLLECTIONS if COLLECTIONS[each].sniff(look(folder))]
    assert claims == [name]
    assert not COLLECTIONS[name].sniff(look(folder.parent))


def test_every_published_run_is_simulated_with_finite_figures(made: tuple[str, Path]) -> None:
    _, folder = made
    for _, trial in read_runs([folder]):
        assert set(trial.recorded) <= set(FIGURES)
        found = simulate_trial(trial, STEPS)
        assert set(trial.recorded) <= set(found)
        assert all(math.isfinite(value) for value in found.values())
        # A step is 10 ms whatever it computes, so that is the gap between tokens but for mishaps.
        assert found["tpot_s"] == pytest.approx(STEP_MS / 1e3, rel=0.05)
        assert trial.assumed


def trial(requests: int, max_in_flight: int | None, gap_s: float = 0.0) -> Trial:
    meta = VllmMeta.parse({"model": "llama-3.1-8b", "gpu": "H100"}, "meta")
    stream = tuple(Request(f"r{at}", round(at * gap_s * PS_PER_S), 10, 5) for at in range(requests))
    return Trial("t", meta, stream, {}, max_in_flight)


@pytest.mark.parametrize("most", [1, 2, 5])
def test_client_never_exceeds_max_in_flight(most: int) -> None:
    found = simulate_trial(trial(20, most), STEPS)
    assert found["running"] == pytest.approx(most, rel=0.1)
    alone = simulate_trial(trial(1, most), STEPS)
    # Nobody waits for memory or a slot: each takes as long as alone, `most` side by side.
    assert found["e2e_s"] == pytest.approx(alone["e2e_s"], rel=0.25)
    assert found["makespan_s"] == pytest.approx(20 / most * found["e2e_s"], rel=0.05)


def test_concurrency_limit_that_is_never_reached_changes_nothing() -> None:
    waits = simulate_trial(trial(10, 10, gap_s=1.0), STEPS)
    free = simulate_trial(trial(10, None, gap_s=1.0), STEPS)
    assert waits == pytest.approx(free)


def test_only_requests_before_the_first_failure_are_compared(tmp_path: Path) -> None:
    blis_training(tmp_path)
    ((_, found),) = read_runs([tmp_path])
    assert len(found.requests) == 167 == len(found.counted or ()) + 1  # until 330.5 s
    assert {request.output_tokens for request in found.requests} == {6}
    starts = {request.prompt_runs[0] for request in found.requests if request.prompt_runs}
    assert starts == {(0, 40), (10**6, 40), (2 * 10**6, 40)}
    assert any("clients gave up" in text for text in found.assumed)


def test_periodic_prompt_lengths_give_repeated_prompts(tmp_path: Path) -> None:
    blis_training(tmp_path)
    rows = [
        {"id": at, "arrival_s": at, "prompt_tokens": 60 + at * at % 23, "output_tokens": 4,
         "ttft_s": 0.02, "e2e_s": 0.05, "failed": 0}
        for at in range(230)
    ]  # fmt: skip
    write_csv(tmp_path / "a.csv.gz", rows)
    ((_, found),) = read_runs([tmp_path])
    prompts = [request.prompt_runs for request in found.requests]
    assert len(set(prompts)) == 23
    assert prompts[23:] == prompts[:-23]
    assert any(
        "every 23 requests (100% of them): and so do the prompts" in a for a in found.assumed
    )


def test_repeated_runs_are_averaged_and_unsupported_ones_left_out(tmp_path: Path) -> None:
    for maker in (inferencex, rate_stages):
        (tmp_path / maker.__name__).mkdir()
        maker(tmp_path / maker.__name__)
    names = [(collection, one.name) for collection, one in read_runs([tmp_path])]
    assert names == [("inferencex", "cf_c2_b5"), ("rate_stages", "vllm at 5/s")]
    first = next(one for _, one in read_runs([tmp_path]))
    assert first.recorded["ttft_s"] == pytest.approx(0.0215)


def test_run_names_begin_with_the_ids_in_runs_csv(tmp_path: Path) -> None:
    all_at_once(tmp_path)
    ids = [row["id"] for row in csv.DictReader((tmp_path / "runs.csv").read_text().splitlines())]
    assert [one.name.split(" ")[0] for _, one in read_runs([tmp_path])] == ids


def test_runs_command_lists_and_compares_a_collection(tmp_path: Path) -> None:
    residency(tmp_path)
    run = CliRunner().invoke
    listed = run(app, ["validate", "runs", str(tmp_path), "--list"])
    assert listed.exit_code == 0
    assert "cell, 20 requests" in listed.stdout
    command = ["validate", "runs", str(tmp_path), "--json", "--step-time", "roofline"]
    told = run(app, [*command, "--set", "layer_us=0"])
    (row,) = json.loads(told.stdout)
    assert row["refused"] is None
    assert row["errors"]["tpot_s"] == pytest.approx(
        row["simulated"]["tpot_s"] / row["recorded"]["tpot_s"] - 1
    )
    slower = run(app, command)
    assert json.loads(slower.stdout)[0]["simulated"]["tpot_s"] > row["simulated"]["tpot_s"]
    shown = run(app, ["validate", "runs", str(tmp_path), "--out", str(tmp_path / "out")])
    assert shown.exit_code == 0
    assert "cell" in (tmp_path / "out" / "table.md").read_text()
    assert json.loads((tmp_path / "out" / "runs.json").read_text())[0]["name"] == "cell"


@pytest.mark.parametrize(
    ("spoil", "options", "fault"),
    [
        (lambda folder: None, ["--set", "layer_us"], "--set: not of the form KEY=VALUE"),
        (lambda folder: None, ["--set", "speed=3"], "--set.speed: unknown key"),
        (lambda folder: (folder / "runs.json").unlink(), [], "no recorded runs that kvsim reads"),
        (lambda folder: (folder / "cell.csv.gz").unlink(), [], "cell.csv.gz: cannot read it"),
        (
            lambda folder: (folder / "cell.csv.gz").write_bytes(b"no gzip"),
            [],
            "cell.csv.gz: no rows",
        ),
        (
            lambda folder: (folder / "cell.csv.gz").write_bytes(b"\x1f\x8bno gzip"),
            [],
            "cell.csv.gz: broken gzip",
        ),
        (lambda folder: (folder / "runs.json").write_text("[" * 10**5), [], "levels deep"),
        (
            lambda folder: write_csv(folder / "cell.csv.gz", [{"scheduled_s": "soon"}]),
            [],
            "not a number",
        ),
    ],
)
def test_damaged_collection_is_a_one_line_error(
    tmp_path: Path, spoil: Callable[[Path], object], options: list[str], fault: str
) -> None:
    residency(tmp_path)
    spoil(tmp_path)
    done = CliRunner().invoke(app, ["validate", "runs", str(tmp_path), *options])
    assert isinstance(done.exception, InputError)
    assert fault in str(done.exception)
    assert "\n" not in str(done.exception)


def test_run_of_an_unknown_model_is_listed_as_refused(tmp_path: Path) -> None:
    observed(tmp_path)
    (tmp_path / "meta.json").write_text(json.dumps({"model": "acme/Cool-1B", "gpu": "H100"}))
    told = CliRunner().invoke(app, ["validate", "runs", str(tmp_path), "--json"])
    (row,) = json.loads(told.stdout)
    assert row["errors"] == {}
    assert "acme/Cool-1B" in row["refused"]


# --- the public ones ------------------------------------------------------------------------------


def test_public_collections_give_the_expected_number_of_runs() -> None:
    root = os.environ.get("KVSIM_REAL_RUNS_DIR")
    if root is None:
        pytest.skip("KVSIM_REAL_RUNS_DIR names no folder of recorded runs")
    found: dict[str, int] = {}
    for collection, one in read_runs([Path(root)]):
        found[collection] = found.get(collection, 0) + 1
        assert one.requests
        assert one.recorded
    missing = {"blis-training-h100", "residency-h100-qwen3-14b"} - set(found)
    if missing:
        pytest.skip(f"no {', '.join(sorted(missing))} in KVSIM_REAL_RUNS_DIR")
    assert found["blis-training-h100"] == 8
    assert found["residency-h100-qwen3-14b"] == 5


def test_resident_tokens_of_an_overloaded_h100_are_within_one_percent() -> None:
    """The pool decides that, not the step times."""
    root = os.environ.get("KVSIM_REAL_RUNS_DIR")
    folder = Path(root or "") / "residency-h100-qwen3-14b"
    if root is None or not folder.is_dir():
        pytest.skip("no residency-h100-qwen3-14b in KVSIM_REAL_RUNS_DIR")
    told = CliRunner().invoke(app, ["validate", "runs", str(folder), "--json"])
    errors = {row["name"]: row["errors"] for row in json.loads(told.stdout)}
    assert abs(errors["w7_agg18"]["resident_tokens"]) < 0.01
    assert all(abs(row["e2e_s"]) < 0.2 for row in errors.values())


def test_doctor_examines_runs_of_every_collection(made: tuple[str, Path]) -> None:
    """`kvsim doctor` takes a run of each kind for what it is: a server, and what it really did."""
    name, folder = made
    asked = ["doctor", str(folder), "--json", "--requests", "100", "--repeat", "3", "--jobs", "1"]
    result = CliRunner().invoke(app, asked, catch_exceptions=False)
    answer = json.loads(result.stdout)
    answers = [answer] if name == "observed" else answer
    assert answers
    for each in answers:
        assert "refused" not in each
        assert each["words"]
        assert {"TTFT, mean", "TPOT, mean"} <= {one["name"] for one in each["real"]}
