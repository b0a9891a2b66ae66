"""A sweep's table is equal on every backend, and after failures and kills."""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

import kvsim
from kvsim.cli import app
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.reading.toml_text import value_of
from kvsim.report.measures import MEASURES
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation
from kvsim.whatif.backends import BACKENDS, processes
from kvsim.whatif.findings import CommandText, FindingsTable
from kvsim.whatif.intervals import mean_interval
from kvsim.whatif.sweep.axes import parse_axis
from kvsim.whatif.sweep.journal import JOURNAL, SweepJournal
from kvsim.whatif.sweep.ranking import best, by_load, pareto, settings_of
from kvsim.whatif.sweep.sweep import Sweep
from kvsim.whatif.sweep.sweep_figures import curves, heat_grids
from kvsim.whatif.sweep.sweep_findings import sweep_findings, sweep_sentences
from kvsim.whatif.sweep.sweep_gpus import with_gpus
from kvsim.whatif.sweep.sweep_leads import run_again
from kvsim.whatif.task import TaskOutcome, flat, make_task, run_task

AXES = [parse_axis("scheduler.max_num_seqs=4,16"), parse_axis("memory.kv_cache_tokens=1500,4000")]
VARY = ("--vary", "scheduler.max_num_seqs=4,16", "--vary", "memory.kv_cache_tokens=1500,4000")


def swept(table: dict[str, Any], folder: Path, backend: str = "processes", **options: Any) -> Any:
    options.setdefault("jobs", 1)
    sweep = Sweep(table, folder, AXES, repeat=2)
    with SweepJournal(folder / "out") as journal:
        return sweep.run(journal, BACKENDS.get(backend)(**options))


def lines(folder: Path) -> list[str]:
    path = folder / JOURNAL
    return path.read_text().splitlines(keepends=True) if path.exists() else []


def wait_for_lines(folder: Path, num: int, process: subprocess.Popen[str]) -> None:
    limit = time.monotonic() + 120
    while sum(line.endswith("\n") for line in lines(folder)) < num:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < limit
        time.sleep(0.01)


def children_of(pid: int) -> list[int]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in listed]


def is_worker(pid: int) -> bool:
    return b"popen_loky" in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_sweep_row_equals_the_summary_of_its_run(table: dict[str, Any], tmp_path: Path) -> None:
    frame = swept(table, tmp_path)
    assert len(frame) == 2 * 2 * 2 * 2
    row = frame.loc[
        (frame["scheduler.max_num_seqs"] == 16)
        & (frame["memory.kv_cache_tokens"] == 1500)
        & (frame["seed"] == 1)
        & (frame["label"] == "doubling")
    ]
    alone = {**table, "seed": 1, "memory": {"kv_cache_tokens": 1500}}
    alone["scheduler"] = {"kind": "continuous", "max_num_seqs": 16}
    run = kvsim.simulate(alone)["doubling"]
    expected = {key: value for key, value in flat(run.summary).items() if key != "wall_s"}
    assert {key: row.iloc[0][key] for key in expected} == expected


@pytest.mark.parametrize(
    ("backend", "package"), [("processes", "joblib"), ("dask", "distributed"), ("ray", "ray")]
)
@pytest.mark.filterwarnings("default")  # clusters warn of their own making
def test_sweep_table_is_equal_for_every_backend(
    table: dict[str, Any], tmp_path: Path, backend: str, package: str
) -> None:
    pytest.importorskip(package, reason=f"{package} is not installed")
    one = swept(table, tmp_path / "one")
    two = swept(table, tmp_path / "two", backend, jobs=2)
    pd.testing.assert_frame_equal(one, two, check_exact=True)


def test_sweep_without_joblib_runs_in_one_process(
    table: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_it = swept(table, tmp_path / "one")
    monkeypatch.setattr(processes, "find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "joblib", None)
    without = swept(table, tmp_path / "none", jobs=None)
    pd.testing.assert_frame_equal(with_it, without, check_exact=True)
    with pytest.raises(InputError, match=r"--jobs: joblib is not installed; .*, or --jobs 1"):
        swept(table, tmp_path / "two", jobs=2)


@pytest.mark.parametrize(("backend", "package"), [("dask", "distributed"), ("ray", "ray")])
def test_unreachable_cluster_is_reported(
    table: dict[str, Any], tmp_path: Path, backend: str, package: str
) -> None:
    pytest.importorskip(package, reason=f"{package} is not installed")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]  # nobody has it once the server is gone
    scheme = "tcp://" if backend == "dask" else ""
    with pytest.raises(InputError, match="cluster answers"):
        swept(table, tmp_path, backend, address=f"{scheme}127.0.0.1:{port}")


def test_settings_of_a_sweep_get_the_same_requests(table: dict[str, Any], tmp_path: Path) -> None:
    sweep = Sweep(table, tmp_path, [parse_axis("workload.arrivals.rate_per_s=2.0,4.0")], repeat=2)
    made = []
    for point in sweep.points:
        scenario = kvsim.Scenario.from_table(point.task.table)
        requests = Simulation(scenario).stream.requests
        made.append([(r.prompt_tokens, r.output_tokens, r.arrival_ps) for r in requests])
    slow, other_seed, fast, _ = made
    lengths = [[row[:2] for row in rows] for rows in (slow, fast, other_seed)]
    assert lengths[0] == lengths[1] != lengths[2]
    # The same draws at twice the rate: each arrival at half its time, but for rounded picoseconds.
    assert [row[2] for row in slow] == pytest.approx([2 * row[2] for row in fast], abs=len(slow))


def test_failed_point_is_recorded_and_other_points_run(
    table: dict[str, Any], tmp_path: Path
) -> None:
    sweep = Sweep(table, tmp_path, [parse_axis("model.max_model_len=512,4096,1024")])
    with SweepJournal(tmp_path / "out") as journal:
        frame = sweep.run(journal, BACKENDS.get("processes")(jobs=1))
    assert frame["status"].tolist() == ["done", "done", "failed", "done", "done"]
    assert "max_model_len" in frame["error"].iloc[2]
    assert frame["allocator"].isna().tolist() == [False, False, True, False, False]


def test_a_finished_point_is_never_run_again(
    table: dict[str, Any], tmp_path: Path, monkeypatch: Any
) -> None:
    whole = swept(table, tmp_path)
    kept = lines(tmp_path / "out")
    assert len(kept) == 8
    # All but three lines, the last of them torn as a kill in the middle of writing leaves it.
    (tmp_path / "out" / JOURNAL).write_text("".join(kept[:5]) + kept[5][:100])
    ran = []
    monkeypatch.setattr(
        "kvsim.whatif.backends.processes.run_task",
        lambda task: ran.append(task.key) or run_task(task),
    )
    pd.testing.assert_frame_equal(swept(table, tmp_path), whole, check_exact=True)
    assert len(ran) == 3
    assert sorted(json.loads(line)["key"] for line in lines(tmp_path / "out")) == sorted(
        json.loads(line)["key"] for line in kept
    )
    swept(table, tmp_path)
    assert len(ran) == 3


def test_failures_are_run_again_only_when_asked(table: dict[str, Any], tmp_path: Path) -> None:
    task = make_task(table, tmp_path)
    with SweepJournal(tmp_path / "out") as journal:
        journal.add(TaskOutcome(task.key, (), "its worker died", False, 0.0))
    sweep = Sweep({**table, "seed": 0}, tmp_path, [])
    (point,) = sweep.points
    with SweepJournal(tmp_path / "out") as journal:
        journal.add(TaskOutcome(point.task.key, (), "its worker died", False, 0.0))
        backend = BACKENDS.get("processes")(jobs=1)
        assert sweep.run(journal, backend)["status"].tolist() == ["failed"]
        assert sweep.run(journal, backend, retry_failed=True)["status"].tolist() == ["done"] * 2
    with SweepJournal(tmp_path / "out") as journal:
        assert journal.outcomes[point.task.key].error is None


def test_task_keys_depend_on_file_contents(table: dict[str, Any], tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    workload = {"kind": "trace", "path": "requests.csv"}
    for folder in (here, there):
        folder.mkdir()
        (folder / "requests.csv").write_text(
            "arrived_at,num_prefill_tokens,num_decode_tokens\n0,9,9\n"
        )
    table = {**table, "workload": workload}
    key = make_task(table, here).key
    assert make_task(table, there).key == key
    (here / "requests.csv").write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,9,10\n")
    assert make_task(table, here).key != key
    assert make_task({**table, "seed": 3}, there).key != key


def test_one_sweep_at_a_time_writes_a_folder(tmp_path: Path) -> None:
    with SweepJournal(tmp_path), pytest.raises(InputError, match="another sweep"):
        SweepJournal(tmp_path)
    with SweepJournal(tmp_path):
        pass


def test_a_kill_in_the_middle_loses_no_finished_point(
    scenario: Path, tmp_path: Path, start: Any, table: dict[str, Any]
) -> None:
    out = tmp_path / "out"
    arguments = (scenario, *VARY, "--repeat", 8, "--jobs", 2, "--out", out)
    victim = start(*arguments)
    wait_for_lines(out, 5, victim)
    victim.kill()
    victim.wait()
    kept = [line for line in lines(out) if line.endswith("\n")]
    assert 5 <= len(kept) < 32
    again = start(*arguments)
    assert again.communicate()[0]
    assert again.returncode == 0
    assert lines(out)[: len(kept)] == kept  # untouched, and nothing of them run a second time
    keys = [json.loads(line)["key"] for line in lines(out)]
    assert len(keys) == len(set(keys)) == 32
    alone = Sweep(table, tmp_path, AXES, repeat=8)
    with SweepJournal(tmp_path / "alone") as journal:
        alone.run(journal, BACKENDS.get("processes")(jobs=1))
        expected = alone.frame(journal.outcomes)
    stored = pd.read_parquet(out / "sweep.parquet")
    pd.testing.assert_frame_equal(stored, expected, check_exact=True, check_dtype=False)


def test_interrupted_sweep_keeps_finished_points_and_goes_on(
    scenario: Path, tmp_path: Path, table: dict[str, Any]
) -> None:
    """Ctrl-C is sent to the whole process group including workers, as a terminal does."""
    out = tmp_path / "out"
    # Whoever runs the tests in the background of a shell hands down a SIGINT that is ignored.
    code = (
        "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from kvsim.cli import main\nmain()"
    )
    arguments = [str(scenario), *VARY, "--repeat", "40", "--jobs", "2", "--out", str(out)]
    with subprocess.Popen(
        [sys.executable, "-c", code, "sweep", *arguments],
        cwd=Path(__file__).parents[3], start_new_session=True, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        wait_for_lines(out, 5, process)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    kept = lines(out)
    assert 5 <= len(kept) < 160
    assert all(json.loads(line)["error"] is None for line in kept)
    assert not (out / "sweep.parquet").exists()
    with SweepJournal(out) as journal:  # nobody holds the folder any more
        Sweep(table, scenario.parent, AXES, repeat=2).run(
            journal, BACKENDS.get("processes")(jobs=1)
        )
    assert lines(out)[: len(kept)] == kept


def test_sweep_intervals_cover_the_mean_at_their_confidence_level(
    table: dict[str, Any], tmp_path: Path
) -> None:
    """Sixty intervals of 95 %, each over three separate seeds; the truth is the mean of all."""
    table["workload"]["num_requests"] = 12
    table["allocator"] = [{"kind": "paged"}]
    sweep = Sweep(table, tmp_path, [parse_axis("scheduler.max_num_seqs=4")], repeat=180)
    with SweepJournal(tmp_path / "out") as journal:
        sweep.run(journal, BACKENDS.get("processes")(jobs=1))
        frame = sweep.frame(journal.outcomes)
    values = frame["requests_per_s"].tolist()
    assert len(set(values)) > 170
    mean = sum(values) / len(values)
    found = [mean_interval(values[at : at + 3]) for at in range(0, 180, 3)]
    held = sum(each.low <= mean <= each.high for each in found)
    assert 52 <= held <= 60  # outside with a chance of 1 in 100 at 95 %


def test_a_killed_worker_process_loses_no_point(scenario: Path, tmp_path: Path, start: Any) -> None:
    out = tmp_path / "out"
    process = start(scenario, *VARY, "--repeat", 12, "--jobs", 2, "--out", out)
    wait_for_lines(out, 3, process)
    workers = [child for child in children_of(process.pid) if is_worker(child)]
    assert workers
    os.kill(workers[0], signal.SIGKILL)
    _, said = process.communicate()
    assert process.returncode == 0, said
    stored = pd.read_parquet(out / "sweep.parquet")
    assert (stored["status"] == "done").all()
    assert len(stored) == 2 * 2 * 12 * 2


@pytest.mark.filterwarnings("default")  # clusters warn of their own making
def test_a_killed_dask_worker_loses_no_point(scenario: Path, tmp_path: Path, start: Any) -> None:
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    cluster = distributed.LocalCluster(
        n_workers=3, threads_per_worker=1, processes=True, dashboard_address=None,
        silence_logs=50,
    )  # fmt: skip
    with cluster, distributed.Client(cluster) as client:
        out = tmp_path / "out"
        process = start(
            scenario, *VARY, "--repeat", 16, "--backend", "dask",
            "--address", cluster.scheduler_address, "--out", out,
        )  # fmt: skip
        wait_for_lines(out, 8, process)
        pids = client.run(os.getpid)
        os.kill(next(iter(pids.values())), signal.SIGKILL)
        _, said = process.communicate()
    assert process.returncode == 0, said
    stored = pd.read_parquet(out / "sweep.parquet")
    assert (stored["status"] == "done").all()
    assert len(stored) == 2 * 2 * 16 * 2


def test_sweep_on_a_full_disk_keeps_finished_points(scenario: Path, tmp_path: Path) -> None:
    """A limit on file sizes replaces a full disk: the error is the same for any file."""
    out = tmp_path / "out"
    code = (
        "import resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))\n"
        "from kvsim.cli import main\n"
        "sys.argv = ['kvsim', *sys.argv[1:]]\n"
        "main()\n"
    )
    root = Path(__file__).parents[3]
    arguments = ["sweep", str(scenario), *VARY, "--jobs", "1", "--out", str(out)]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=root, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "cannot write" in done.stderr
    assert "Traceback" not in done.stderr
    kept = lines(out)
    assert kept
    assert all(line.endswith("\n") for line in kept)
    whole = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert whole.exit_code == 0
    assert lines(out)[: len(kept)] == kept
    assert len(lines(out)) == 4


def test_sweep_without_out_prints_its_answer_and_leaves_no_file(
    scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", None)
    arguments = ["sweep", str(scenario), *VARY, "--jobs", "1", "--json"]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    with_folder = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "out")])
    assert json.loads(done.stdout)["best"] == json.loads(with_folder.stdout)["best"]
    assert not list((tmp_path / "temporary").iterdir())
    refused = CliRunner().invoke(app, [*arguments, "--retry-failed"])
    assert "no points are kept" in str(refused.exception)


def test_sweep_command_prints_json_and_writes_its_page(scenario: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["sweep", str(scenario), *VARY, "--repeat", "2", "--jobs", "1", "--json"]
    done = CliRunner().invoke(app, [*arguments, "--out", str(out)], catch_exceptions=False)
    assert done.exit_code == 0
    answer = json.loads(done.stdout)
    assert answer["points"] == 8
    assert len(answer["settings"]) == 8
    means = [entry["e2e_p50"]["mean"] for entry in answer["best"]]
    assert means == sorted(means)
    assert min(entry["e2e_p50"]["mean"] for entry in answer["settings"]) == means[0]
    page = (out / "sweep.html").read_text()
    assert "Pareto-optimal settings" in page
    assert "https://" not in page.split("<script>")[0]


def test_command_of_the_best_setting_parses_back_to_swept_tables(
    table: dict[str, Any], tmp_path: Path
) -> None:
    table["allocator"] = [{"kind": "paged"}]
    host = '[{kind = "vllm-offloading", kv_offloading_size = 1}]'
    sweep = Sweep(table, tmp_path, [parse_axis(f"tier=[],{host}")])
    with SweepJournal(tmp_path / "out") as journal:
        frame = sweep.run(journal, BACKENDS.get("processes")(jobs=1))
    settings = settings_of(frame, sweep.keys)
    typed = []
    for each in settings:
        (command,) = run_again([({}, [each, each])], MEASURES["e2e_p50"], "kvsim run file.toml")
        _, word = shlex.split(command.text)[-2:]
        typed.append(value_of(word.removeprefix("tier=")))
    assert typed == [[], [{"kind": "vllm-offloading", "kv_offloading_size": 1}]]


def test_a_setting_that_refuses_requests_is_not_called_the_best(
    table: dict[str, Any], tmp_path: Path
) -> None:
    """Serving only short requests is quicker, so by latency alone the setting that refuses would
    win.
    """
    table["workload"] |= {"clip_to": None}
    table["allocator"] = [{"kind": "paged"}]
    sweep = Sweep(table, tmp_path, [parse_axis("model.max_model_len=150,1024")])
    with SweepJournal(tmp_path / "out") as journal:
        frame = sweep.run(journal, BACKENDS.get("processes")(jobs=1))
    settings = settings_of(frame, sweep.keys)
    quick, whole = settings
    by = MEASURES["e2e_p50"]
    assert quick.refused > 0 == whole.refused
    assert quick.values(by) < whole.values(by)  # type: ignore[operator]
    assert [each.setting for each in best(settings, by, 2)] == [whole, quick]
    assert f"refuses {quick.refused}" in quick.load
    assert any(
        "refuse more requests" in line for line in sweep_sentences(settings, sweep.keys, frame, by)
    )


def test_equal_settings_are_listed_once(table: dict[str, Any], tmp_path: Path) -> None:
    sweep = Sweep(table, tmp_path, [parse_axis("scheduler.max_num_seqs=64,128,256")])
    with SweepJournal(tmp_path / "out") as journal:
        frame = sweep.run(journal, BACKENDS.get("processes")(jobs=1))
    settings = [s for s in settings_of(frame, sweep.keys) if s.label == "paged"]
    assert pareto(settings, MEASURES["e2e_p50"]) == [(settings[0], 2)]


def test_sweep_table_counts_gpus_of_replicas(table: dict[str, Any], tmp_path: Path) -> None:
    """Three replicas have lower peaks than one, but take three times the GPUs."""
    table["allocator"] = [{"kind": "paged"}]
    table["workload"]["arrivals"]["rate_per_s"] = 40.0
    sweep = Sweep(table, tmp_path, [parse_axis("fleet.replicas=1,2,3")])
    with SweepJournal(tmp_path / "out") as journal:
        frame = sweep.run(journal, BACKENDS.get("processes")(jobs=1))
    settings = with_gpus(settings_of(frame, sweep.keys), sweep)
    assert [each.gpus for each in settings] == [1, 2, 3]
    (first, _), *_ = pareto(settings, MEASURES["ttft_p99"])
    assert first.settings == {"fleet.replicas": 1}
    found = sweep_findings(sweep, frame, MEASURES["ttft_p99"], 5)
    (listed,) = (each for each in found.sections if each.title == "Pareto-optimal settings")
    assert isinstance(listed, FindingsTable)
    assert "takes fewer GPUs" in listed.note
    split = Sweep(table, tmp_path, [parse_axis("model.tensor_parallel_size=1,2")])
    assert [split.simulation(each).num_gpus for each in split.settings] == [1, 2]


@pytest.mark.parametrize(
    "vary", ["scheduler.max_num_sqs=1,2", 'scheduler.max_num_seqs="x"', "model.name=nobody"]
)
def test_sweep_of_invalid_keys_writes_nothing(
    vary: str, scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_run(*_: Any, **__: Any) -> None:
        raise AssertionError("a point was run")

    monkeypatch.setattr(Sweep, "run", no_run)
    arguments = ["sweep", str(scenario), "--vary", vary, "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, arguments)
    assert isinstance(done.exception, InputError), done.output
    assert "no setting can be run" in str(done.exception)
    assert not (tmp_path / "out").exists()


def test_sweep_without_a_finished_point_reports_the_first_error(
    scenario: Path, tmp_path: Path
) -> None:
    arguments = ["sweep", str(scenario), "--vary", "model.max_model_len=4096,8192"]
    done = CliRunner().invoke(app, [*arguments, "--jobs", "1", "--out", str(tmp_path / "out")])
    assert isinstance(done.exception, InputError)
    assert "max_model_len" in str(done.exception)


def test_sweep_does_not_rank_settings_across_loads(table: dict[str, Any], tmp_path: Path) -> None:
    """The lower one of two loads is always quicker, so each load has a separate best setting."""
    axes = ["workload.num_requests=20,60", "scheduler.max_num_seqs=4,64"]
    sweep = Sweep(table, tmp_path, [parse_axis(axis) for axis in axes])
    with SweepJournal(tmp_path / "out") as journal:
        frame = sweep.run(journal, BACKENDS.get("processes")(jobs=1))
    by = MEASURES["e2e_p50"]
    groups = by_load(settings_of(frame, sweep.keys), sweep.keys)
    assert [load for load, _ in groups] == [
        {"workload.num_requests": 20},
        {"workload.num_requests": 60},
    ]
    data = sweep_findings(sweep, frame, by, 1)
    heads = [line for line in data.sentences if line.startswith("Best in")]
    assert len(heads) == 2
    assert all(f"at num_requests = {n}:" in line for n, line in zip((20, 60), heads, strict=True))
    assert not any("num_requests" in line.partition(": ")[2] for line in heads)
    alone = Sweep(table, tmp_path, [parse_axis(axes[0])])
    kept = frame[(frame["scheduler.max_num_seqs"] == 64) & (frame["label"] == "paged")]
    said = sweep_sentences(settings_of(kept, alone.keys), alone.keys, kept, by)
    assert not any(line.startswith("Best in") for line in said)


def test_swept_key_of_one_allocator_does_not_rerun_the_others(
    table: dict[str, Any], tmp_path: Path
) -> None:
    """The other allocators run once for all values of the key; their rows equal those of a full
    run.
    """
    table["allocator"] = [{"kind": "max-buffer"}, {"kind": "paged"}, {"kind": "doubling"}]
    sweep = Sweep(table, tmp_path, [parse_axis("allocator.paged.block_size=8,16,32")], 2)
    with SweepJournal(tmp_path / "out") as journal:
        frame = sweep.run(journal, BACKENDS.get("processes")(jobs=1))
    key = "allocator.paged.block_size"
    assert frame["label"].value_counts().to_dict() == {"paged": 6, "max-buffer": 2, "doubling": 2}
    assert frame.loc[frame["label"] == "paged", key].tolist() == [8, 8, 16, 16, 32, 32]
    assert frame.loc[frame["label"] != "paged", key].isna().all()
    whole = Simulation(Scenario.from_table(table | {"seed": 0}, tmp_path)).result()
    for label in ("max-buffer", "doubling"):
        row = frame[(frame["label"] == label) & (frame["seed"] == 0)].iloc[0]
        assert row["e2e_s.mean"] == whole[label].summary["e2e_s"]["mean"]
    curve = curves(settings_of(frame, sweep.keys), sweep.keys, MEASURES["e2e_p50"])
    assert curve is not None
    lines = [line for line in curve.data if line.mode == "lines+markers"]
    assert {tuple(line.customdata) for line in lines} == {(8, 16, 32)}
    assert len({tuple(line.x) for line in lines}) == 3  # no interval covers another


def test_sweep_grid_has_a_cell_per_setting_shaded_by_rank(
    table: dict[str, Any], tmp_path: Path
) -> None:
    axes = ["scheduler.max_num_seqs=1,64", "allocator.paged.block_size=8,16"]
    sweep = Sweep(table, tmp_path, [parse_axis(axis) for axis in axes])
    with SweepJournal(tmp_path / "out") as journal:
        frame = sweep.run(journal, BACKENDS.get("processes")(jobs=1))
    settings = settings_of(frame, sweep.keys)
    for name in ("e2e_p50", "tokens_per_s"):
        by = MEASURES[name]
        curve = curves(settings, sweep.keys[::-1], by, [by])  # the key that changes most is across
        assert curve.layout.xaxis.title.text == "scheduler.max_num_seqs"
        assert {line.name for line in curve.data} >= {"paged, block_size 8", "paged, block_size 16"}
        for grid in heat_grids(settings, sweep.keys, by):
            assert (grid.xs, grid.ys) == (["1", "64"], ["8", "16"])
            for slow, fast in grid.cells:
                assert 1.0 >= slow[1] > fast[1] >= 0.0
                assert "" not in (slow[0], fast[0])
    run = "kvsim run 'my file.toml'"
    commands = next(
        each.text
        for each in sweep_findings(sweep, frame, MEASURES["e2e_p50"], 1, run).sections
        if isinstance(each, CommandText)
    )
    words = shlex.split(commands)
    assert words[:3] == ["kvsim", "run", "my file.toml"]
    assert "scheduler.max_num_seqs=64" in words
