"""A GPU session run on a CPU: the same stages and the same code."""

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from zipfile import ZipFile

import pytest

from evidence.session import __main__ as command
from evidence.session import home, wheels
from evidence.session.archive import MOST_BYTES, pack, unpack
from evidence.session.plan import GPU, SHORT, SHORT_STAND_IN, STAND_IN
from evidence.session.stage import Journal
from evidence.session.stages import LABELS, stages
from kvsim.backend.measure.log import Log
from kvsim.observed.folder import ObservedRun
from kvsim.plumbing.errors import InputError
from kvsim.step_time.calibrated.file import read_calibration
from kvsim.validate.run.steps import lock_step

ROOT = Path(__file__).parents[3]


@pytest.fixture
def here(monkeypatch):
    """Run the stages in this process, so that torch is imported only once."""

    def start(self, stage, journal):
        command._run_one(self.plan, self.out, stage.name, self.end_s)

    monkeypatch.setattr(command.SessionRunner, "_start", start)


def run(out, *options):
    return command.main(["--device", "cpu", "--out", str(out), *options])


@pytest.mark.slow
def test_gpu_session_skips_stages_out_of_time_and_resumes(tmp_path, here, capsys):
    out = tmp_path / "gpu"
    assert run(out, "--minutes", "0") == 0
    entries = Journal.open(out).entries
    assert {entry["status"] for entry in entries.values()} == {"skipped"}
    assert "0.0 minutes left, it takes about 2" in entries["prove"]["why"]
    check_short_plan(tmp_path, capsys)
    assert run(out, "--minutes", "60") == 0
    said = capsys.readouterr().out
    names = [stage.name for stage in stages(STAND_IN)]
    assert f"{len(names)} done, 0 skipped, 0 failed" in said
    entries = Journal.open(out).entries
    assert entries["measure tiny paged"]["rounds"] == SHORT_STAND_IN.rounds  # by the short plan
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


def check_short_plan(tmp_path, capsys):
    """Everything is in one archive, from which a session resumes and which `home` unpacks."""
    out, archive = tmp_path / "gpu", tmp_path / "gpu.tar.xz"
    names = [stage.name for stage in stages(SHORT_STAND_IN)]
    assert run(out, "--plan", "short", "--minutes", "60") == 0
    said = capsys.readouterr().out
    assert f"short plan: {len(names)} done, 0 skipped, 0 failed" in said
    assert archive.stat().st_size < MOST_BYTES
    shutil.rmtree(out)
    assert run(out, "--plan", "short") == 0
    assert capsys.readouterr().out.count("done before") == len(names)
    root = tmp_path / "project"
    (root / "calibration").mkdir(parents=True)
    shutil.copy(ROOT / "calibration" / "README.md", root / "calibration")
    assert home.main([str(archive), "--root", str(root)]) == 0
    said = capsys.readouterr().out
    (calibration,) = root.glob("calibration/*-tiny.json")
    file = read_calibration(calibration)
    assert (file.model.dtype, file.measured.method["rounds"]) == ("float32", 2)
    assert f"| {calibration.stem} |" in (root / "calibration" / "README.md").read_text()
    (report,) = root.glob("reports/*/README.md")
    words = report.read_text()
    for name in ("prove.json", "kernels.csv", "compare.json", "session.json"):
        assert (report.parent / name).exists()
    assert len((report.parent / "kernels.csv").read_text().splitlines()) == 1 + 6
    for label in LABELS:
        folder = root / "reports" / f"observed-{report.parent.name}" / label.replace(" ", "-")
        again = json.loads((folder / "comparison.json").read_text())["lock_step"]
        assert again["equal"] == again["steps"] > 20
        assert f"| {folder.name} | {again['steps']} of {again['steps']} |" in words


@pytest.mark.slow
def test_gpu_session_killed_in_a_round_keeps_finished_rounds(tmp_path, capsys):
    """SIGTERM arrives as from a machine that ends the job; all files are still archived."""
    out, archive, name = tmp_path / "gpu", tmp_path / "gpu.tar.xz", "measure tiny paged"
    out.mkdir()
    for stage in stages(SHORT_STAND_IN):
        if stage.name != name:
            Journal.open(out).note(stage.name, "done")
    command_line = [sys.executable, "-m", "evidence.session", "--plan", "short", "--device", "cpu"]
    session = subprocess.Popen([*command_line, "--out", str(out)], cwd=ROOT)
    samples, log = out / "tiny-paged.samples.jsonl", out / "tiny-paged.log.jsonl"
    until(lambda: samples.exists(), session)
    timed = log.read_text().count('"timing"')
    until(lambda: log.read_text().count('"timing"') >= timed + 2, session)
    session.send_signal(signal.SIGTERM)
    assert session.wait(30) == 128 + signal.SIGTERM
    plans = len(Log.read(log).plans)
    assert plans < len(Log.read(log).rows) < 2 * plans
    shutil.rmtree(out)
    root = tmp_path / "project"
    assert home.main([str(archive), "--root", str(root)]) == 0
    (calibration,) = root.glob("calibration/*-tiny.json")
    file = read_calibration(calibration)
    assert (file.samples.rows, file.measured.method["rounds"]) == (plans, 1)
    assert f"its row is: | {calibration.stem} |" in capsys.readouterr().out


def until(condition, process):
    end = time.monotonic() + 120
    while not condition():
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.02)


def test_session_archive_leaves_out_the_largest_files_over_its_limit(tmp_path):
    out = tmp_path / "gpu"
    (out / "run").mkdir(parents=True)
    (out / "site-packages").mkdir()
    (out / "small.json").write_text("{}")
    (out / "run" / "steps.csv").write_bytes(random.Random(0).randbytes(40_000))
    (out / "site-packages" / "simpy.py").write_text("")
    packed = pack(out, tmp_path / "gpu.tar.xz", most_bytes=20_000)
    assert (packed.files, packed.left_out) == (1, ("run/steps.csv",))
    assert pack(out, tmp_path / "gpu.tar.xz").left_out == ()
    unpack(tmp_path / "gpu.tar.xz", tmp_path / "again")
    found = {path.name for path in (tmp_path / "again").rglob("*") if path.is_file()}
    assert found == {"small.json", "steps.csv"}
    (tmp_path / "none.tar.xz").write_text("hello")
    with pytest.raises(InputError, match="no archive"):
        unpack(tmp_path / "none.tar.xz", tmp_path / "again")
    assert home.main([str(tmp_path / "gpu.tar.xz"), "--root", str(tmp_path)]) == 2


def test_wheels_are_listed_and_used_without_pip(tmp_path, monkeypatch):
    names = [line.partition("==")[0] for line in wheels.wheels()]
    assert {"simpy", "pydantic", "pydantic-core", "plotly", "mypy-extensions"} <= set(names)
    assert not {"torch", "numpy", "pandas", "typer"} & set(names)
    (tmp_path / "wheels").mkdir()
    with pytest.raises(InputError, match="no wheels"):
        wheels.use_wheels(tmp_path / "wheels", tmp_path / "gpu")
    with ZipFile(tmp_path / "wheels" / "one-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("one_of_a_wheel.py", "")
    plan = stages(SHORT_STAND_IN)[0]._replace(needs=("one_of_a_wheel",), run=lambda _: {})
    monkeypatch.setattr(command, "stages", lambda _: [plan])
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setattr(sys, "path", [*sys.path])
    options = ["--plan", "short", "--stage", "plan", "--wheels", str(tmp_path / "wheels")]
    assert plan.missing() == ["one_of_a_wheel"]
    assert run(tmp_path / "gpu", *options) == 0
    assert plan.missing() == []


def test_short_session_plan_fits_15_minutes():
    found = stages(SHORT)
    assert sum(stage.minutes for stage in found) <= 13
    assert max(stage.most_minutes for stage in found) < SHORT.minutes < 10
    assert [stage.name for stage in found[:5]] == [
        "plan", "prove", "kernels", "observe paged", "measure llama-3.1-8b paged"
    ]  # fmt: skip


def test_measurement_out_of_time_keeps_its_samples(tmp_path, here):
    name = "measure tinier paged"
    assert run(tmp_path, "--stage", name, "--minutes", "0") == 0
    assert "what it has is kept" in Journal.open(tmp_path).entries[name]["why"]
    log = tmp_path / "tinier-paged.log.jsonl"
    lines = len(log.read_text().splitlines())
    assert lines >= 3
    assert run(tmp_path, "--stage", name) == 0
    assert Journal.open(tmp_path).done(name)
    assert len(log.read_text().splitlines()) > lines


def test_missing_or_failing_stage_is_reported_and_later_stages_run(tmp_path, here, monkeypatch):
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


def test_session_stage_runs_in_a_separate_process(tmp_path, monkeypatch):
    plan = next(stage for stage in stages(STAND_IN) if stage.name == "plan")
    monkeypatch.setattr(command, "stages", lambda _: [plan])
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    assert run(tmp_path) == 0
    assert Journal.open(tmp_path).done("plan")
    assert len((tmp_path / "held-out.jsonl").read_text().splitlines()) > 20


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_gpu_runs_the_session_command(tmp_path):
    options = f"GPU=--device cpu --out {tmp_path} --stage plan"
    done = subprocess.run(
        ["make", "gpu", f"GPU_PYTHON={sys.executable}", options],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert Journal.open(tmp_path).done("plan")


def test_gpu_session_plan_has_two_models_and_three_allocators():
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


def test_cpu_stand_in_session_logs_the_reference_attention(tmp_path, here):
    run(tmp_path, "--stage", "measure tiny contiguous", "--minutes", "0")
    first = json.loads((tmp_path / "tiny-contiguous.log.jsonl").read_text().splitlines()[0])
    assert (first["setup"]["attention"], first["setup"]["graphs"]) == ("reference", True)
    assert Log.open(tmp_path / "tiny-contiguous.log.jsonl", first["setup"]).rows
