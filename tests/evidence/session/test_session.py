"""A session with a GPU, on the CPU that stands in for one: the same stages, the same code."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from evidence.session import __main__ as command
from evidence.session.plan import GPU, STAND_IN
from evidence.session.stage import Journal
from evidence.session.stages import LABELS, stages
from kvsim.backend.measure.log import Log
from kvsim.observed.folder import ObservedRun
from kvsim.step_time.calibrated.file import read_calibration
from kvsim.validate.run.steps import lock_step

ROOT = Path(__file__).parents[3]


@pytest.fixture
def here(monkeypatch):
    """Stages run in this process: torch is imported once."""

    def start(self, stage, journal):
        command._run_one(self.plan, self.out, stage.name, self.end_s)

    monkeypatch.setattr(command.SessionRunner, "_start", start)


def run(out, *options):
    return command.main(["--device", "cpu", "--out", str(out), *options])


@pytest.mark.slow
def test_a_session_runs_to_its_end_and_goes_on_where_it_ended(tmp_path, here, capsys):
    out = tmp_path / "gpu"
    assert run(out, "--minutes", "0") == 0
    entries = Journal.open(out).entries
    assert {entry["status"] for entry in entries.values()} == {"skipped"}
    assert "0.0 minutes left, it takes about 2" in entries["prove"]["why"]
    assert run(out, "--minutes", "60") == 0
    said = capsys.readouterr().out
    names = [stage.name for stage in stages(STAND_IN)]
    assert f"{len(names)} done, 0 skipped, 0 failed" in said
    entries = Journal.open(out).entries
    for subject in STAND_IN.subjects:
        for store in subject.stores:
            file = read_calibration(out / f"{subject.name}-{store}.json")
            assert file.measured.backend["graphs"]
            assert file.measured.method["served"]["steps"] > 20
    for label in LABELS:
        recorded = ObservedRun.read(out / f"run-{label.replace(' ', '-')}")
        assert len(recorded.rows) == STAND_IN.requests
        assert lock_step(recorded).difference is None
        steps = len(recorded.steps)
        assert entries[f"validate {label}"]["steps_decided_as_recorded"] == f"{steps} of {steps}"
        assert "e2e_s" in entries[f"validate {label}"]["errors"]
    steps = entries["observe doubling by torch"]["steps"]
    assert entries["observe doubling by torch"]["bytes_as_simulated"] == f"{steps} of {steps} steps"
    assert entries["observe paged"]["graphs"]["replayed"] > 0
    assert json.loads((out / "prove.json").read_text())["ok"]
    assert run(out) == 0
    assert capsys.readouterr().out.count("done before") == len(names)


def test_a_measurement_that_runs_out_of_time_keeps_what_it_has(tmp_path, here):
    name = "measure tinier paged"
    assert run(tmp_path, "--stage", name, "--minutes", "0") == 0
    assert "what it has is kept" in Journal.open(tmp_path).entries[name]["why"]
    log = tmp_path / "tinier-paged.log.jsonl"
    lines = len(log.read_text().splitlines())
    assert lines >= 3
    assert run(tmp_path, "--stage", name) == 0
    assert Journal.open(tmp_path).done(name)
    assert len(log.read_text().splitlines()) > lines


def test_what_is_missing_or_fails_is_said_and_the_rest_goes_on(tmp_path, here, monkeypatch):
    found = stages(STAND_IN)
    broken = found[0]._replace(run=lambda session: 1 // 0)
    missing = found[1]._replace(needs=("no_such_package",))
    waiting = next(stage for stage in found if stage.name.startswith("validate"))
    monkeypatch.setattr(command, "stages", lambda plan: [broken, missing, waiting])
    assert run(tmp_path) == 1
    entries = Journal.open(tmp_path).entries
    assert entries["prove"]["status"] == "failed"
    assert "ZeroDivisionError" in entries["prove"]["why"]
    assert entries["plan"] == {
        "status": "skipped",
        "why": "needs no_such_package, not installed here",
    }
    assert entries[waiting.name]["why"].startswith("comes after observe paged, calibrate")
    assert run(tmp_path, "--stage", "sing") == 2


def test_a_stage_has_a_process_of_its_own(tmp_path, monkeypatch):
    plan = next(stage for stage in stages(STAND_IN) if stage.name == "plan")
    monkeypatch.setattr(command, "stages", lambda _: [plan])
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    assert run(tmp_path) == 0
    assert Journal.open(tmp_path).done("plan")
    assert len((tmp_path / "held-out.jsonl").read_text().splitlines()) > 20


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_gpu_is_this_command(tmp_path):
    options = f"GPU=--device cpu --out {tmp_path} --stage plan"
    done = subprocess.run(
        ["make", "gpu", f"GPU_PYTHON={sys.executable}", options],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert Journal.open(tmp_path).done("plan")


def test_a_gpu_gets_two_models_three_allocators_and_forty_minutes():
    found = stages(GPU)
    assert [subject.shape().layers for subject in GPU.subjects] == [32, 16]
    assert sum(stage.name.startswith("calibrate") for stage in found) == 3
    assert {"observe paged", "observe doubling", "observe max-buffer"} <= {
        stage.name for stage in found
    }
    assert sum(stage.minutes for stage in found) <= 40
    names = [stage.name for stage in found]
    for stage in found:
        assert all(names.index(before) < names.index(stage.name) for before in stage.after)


def test_the_log_of_a_stand_in_is_of_the_kernels_plain_twin(tmp_path, here):
    run(tmp_path, "--stage", "measure tiny contiguous", "--minutes", "0")
    first = json.loads((tmp_path / "tiny-contiguous.log.jsonl").read_text().splitlines()[0])
    assert (first["setup"]["attention"], first["setup"]["graphs"]) == ("reference", True)
    assert Log.open(tmp_path / "tiny-contiguous.log.jsonl", first["setup"]).rows
