"""Faults during a run: full and read-only disks, Ctrl-C, kill -9, two processes at once.

No half-written file has a final name, and no finished result is lost.
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.writing import check_writable, replace_files, write_text
from kvsim.results import store
from kvsim.workload import catalogue
from kvsim.workload.catalogue import TraceEntry

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
ROUNDS = 10
LONGEST_S = 300.0  # on a busy machine; what is waited for takes a moment
FINAL = {store.SCENARIO, store.SUMMARY, store.REQUESTS, store.MEMORY, store.REPORT}
SCENARIO = """
[model]
name = "opt-125m"
[device]
name = "a100-40gb"
[memory]
kv_cache_tokens = 2048
[[allocator]]
kind = "paged"
[workload]
kind = "synthetic"
num_requests = 12
arrivals = { kind = "poisson", rate_per_s = 20.0 }
prompt = { kind = "uniform", max_tokens = 60 }
output = { kind = "fixed", tokens = 20 }
"""
# Writes the results of two seeds in turn into one folder, and says when the first stands.
WRITER = """
import sys, tomllib
from pathlib import Path
import kvsim
from kvsim.results import store
table = tomllib.loads(Path(sys.argv[1]).read_text())
first = int(sys.argv[3])
results = [kvsim.simulate(table | {"seed": seed}) for seed in (first, first + 1)]
for turn in range(int(sys.argv[4])):
    result = results[turn % 2]
    store.write(Path(sys.argv[2]), result, f"seed {result.scenario['seed']}")
    if turn == 0:
        print("ready", flush=True)
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SCENARIO)
    return path


def command(code: str, *arguments: str | Path | int) -> list[str]:
    return [sys.executable, "-c", code, *map(str, arguments)]


def kvsim(*arguments: str | Path, before: str = "") -> "subprocess.CompletedProcess[str]":
    code = f"{before}\nimport sys\nfrom kvsim.cli import main\nmain()"
    return subprocess.run(command(code, *arguments), capture_output=True, text=True, check=False)


def left_over(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - FINAL if folder.exists() else set()


def is_of_one_run(folder: Path) -> int:
    """The seed of the complete result in the folder."""
    result = store.read(folder)
    seed = int(result.scenario["seed"])
    assert tomllib.loads((folder / store.SCENARIO).read_text())["seed"] == seed
    assert (folder / store.REPORT).read_text() == f"seed {seed}"
    for run in result.runs:
        assert len(run.requests) == run.summary["requests"]["submitted"]
        ends = (run.requests["finish_ps"].max() - run.requests["arrival_ps"].min()) / 1e12
        assert ends == pytest.approx(run.summary["makespan_s"])
    return seed


@pytest.fixture
def killed() -> Iterator[list["subprocess.Popen[str]"]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_process_killed_while_writing_leaves_a_complete_result_or_none(
    scenario: Path, tmp_path: Path, killed: list["subprocess.Popen[str]"]
) -> None:
    out, waits = tmp_path / "out", random.Random(0)
    subprocess.run(command(WRITER, scenario, out, 1, 1), check=True, capture_output=True)
    whole = 0
    for _ in range(ROUNDS):
        process = subprocess.Popen(
            command(WRITER, scenario, out, 1, 10**6), stdout=subprocess.PIPE, text=True
        )
        killed.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(waits.uniform(0.0, 0.15))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        if (out / store.SUMMARY).exists():
            assert is_of_one_run(out) in (1, 2)
            whole += 1
    assert whole > 0
    done = subprocess.run(command(WRITER, scenario, out, 7, 1), check=True, capture_output=True)
    assert done.returncode == 0
    assert is_of_one_run(out) == 7
    assert not left_over(out)  # what the killed ones left is gone


@pytest.mark.slow
def test_two_processes_writing_one_folder_leave_one_complete_result(
    scenario: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    for _ in range(3):
        both = [
            subprocess.Popen(command(WRITER, scenario, out, first, 15), stdout=subprocess.DEVNULL)
            for first in (1, 11)
        ]
        assert [process.wait(timeout=LONGEST_S) for process in both] == [0, 0]
        assert is_of_one_run(out) in (1, 2, 11, 12)
        assert not left_over(out)


# Whoever runs the tests in the background of a shell hands down a SIGINT that is ignored.
INTERRUPTIBLE = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from kvsim.cli import main
main()
"""


def test_an_interrupted_run_leaves_nothing(scenario: Path, tmp_path: Path) -> None:
    scenario.write_text(SCENARIO.replace("num_requests = 12", "num_requests = 400000"))
    out = tmp_path / "out"
    process = subprocess.Popen(
        command(INTERRUPTIBLE, "run", scenario, "--out", out),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        try:
            assert process.stderr is not None
            process.stderr.readline()  # a line of progress: it is at work
            process.send_signal(signal.SIGINT)
            told, errors = process.communicate(timeout=LONGEST_S)
        finally:
            process.kill()
    assert process.returncode == 130
    assert told == ""
    assert "Traceback" not in errors
    assert not out.exists()


# Interrupts itself as soon as a module is looked for; compiled ones are not, they load each other.
PRESSED = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
module = sys.argv.pop()

class Press:
    def find_spec(self, name, path, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)

import kvsim  # which looks for its own modules first
sys.meta_path.insert(0, Press())
"""


@pytest.mark.parametrize(
    "module",
    ["kvsim.cli", "typer", "kvsim.commands.run", "kvsim.simulation", "kvsim.engine.replica"],
)
def test_interrupted_import_prints_no_traceback(
    scenario: Path, tmp_path: Path, module: str
) -> None:
    scripts = tomllib.loads(PROJECT.read_text())["project"]["scripts"]
    entry, name = scripts["kvsim"].split(":")
    code = f"{PRESSED}\nfrom {entry} import {name}\n{name}()"
    done = subprocess.run(
        command(code, "run", scenario, "--out", tmp_path / "out", module),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
    assert not (tmp_path / "out").exists()


# Where the wall clock is written down, and nothing is computed from two readings of it.
DATES = {"backend/serve/run.py", "record/recording.py", "step_time/calibrated/file.py"}


def test_no_duration_is_taken_from_the_wall_clock() -> None:
    """The wall clock may be set back while kvsim runs."""
    package = Path(store.__file__).parents[1]
    named = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if re.search(r"\btime\.time(_ns)?\(|datetime\.(utc)?now\(", path.read_text())
    }
    assert named == DATES


FULL = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))
"""


def test_full_disk_leaves_earlier_results_intact(scenario: Path, tmp_path: Path) -> None:
    """A limit on file sizes replaces a full disk: the error is the same for any file."""
    out = tmp_path / "out"
    done = kvsim("run", scenario, "--out", out, "--json", before=FULL)
    assert done.returncode == 2
    assert json.loads(done.stdout)["runs"][0]["requests"]["finished"] == 12
    assert "cannot write" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(out.iterdir())


def test_failed_write_of_a_new_result_keeps_the_old_one(scenario: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    subprocess.run(command(WRITER, scenario, out, 3, 1), check=True, capture_output=True)
    done = kvsim("run", scenario, "--out", out, "--set", "seed=4", before=FULL)
    assert done.returncode == 2
    assert is_of_one_run(out) == 3
    assert not left_over(out)


def test_unwritable_output_is_refused_before_the_simulation(scenario: Path, tmp_path: Path) -> None:
    """The simulation is disabled, so that a command that begins to simulate would fail."""
    (tmp_path / "file").write_text("")
    for before, out in (("", tmp_path / "file" / "out"), (FULL.replace("6000", "10"), tmp_path)):
        before += "\nimport kvsim.simulation\nkvsim.simulation.Simulation.result = None"
        done = kvsim("run", scenario, "--out", out, before=before)
        assert done.returncode == 2
        assert done.stdout == ""
        assert len(done.stderr.splitlines()) == 1


def test_full_disk_is_reported_when_creating_a_folder(tmp_path: Path) -> None:
    code = f"{FULL.replace('6000', '10')}\nfrom pathlib import Path\nimport sys\n" + (
        "from kvsim.plumbing.writing import check_writable\ncheck_writable(Path(sys.argv[1]))\n"
    )
    done = subprocess.run(
        command(code, tmp_path / "a" / "b"), capture_output=True, text=True, check=False
    )
    assert "cannot write" in done.stderr
    assert not list(tmp_path.iterdir())


AS_NOBODY = """
import os, sys
from pathlib import Path
from kvsim.plumbing.writing import check_writable
if os.geteuid() == 0:  # root may write everywhere
    os.setuid(65534)
check_writable(Path(sys.argv[1]) / "out")
"""


def test_read_only_output_folder_is_refused_before_the_simulation() -> None:
    with tempfile.TemporaryDirectory() as folder:  # pytest's own lies where nobody may look
        Path(folder).chmod(0o555)
        done = subprocess.run(
            command(AS_NOBODY, folder), capture_output=True, text=True, check=False
        )
        assert f"{folder}/out: cannot write; got Permission denied" in done.stderr
        assert not list(Path(folder).iterdir())
        Path(folder).chmod(0o777)
        subprocess.run(command(AS_NOBODY, folder), capture_output=True, check=True)


def test_output_path_that_is_no_folder_is_refused_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="not a folder"):
        check_writable(tmp_path / "file" / "out")
    with pytest.raises(InputError, match="cannot write"):
        check_writable(tmp_path / ("x" * 300))
    check_writable(tmp_path / "a" / "b")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_writing_to_a_device_file_keeps_it(tmp_path: Path) -> None:
    """Writing a temporary file and renaming it would replace the pipe by a file."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True)
    write_text(pipe, "told\n")
    assert reader.communicate(timeout=LONGEST_S)[0] == "told\n"
    assert pipe.is_fifo()


def test_last_written_file_marks_the_folder_as_complete(tmp_path: Path) -> None:
    """A folder whose writer is killed between two renames has no mark, old or new."""
    replace_files(tmp_path, {name: lambda path: path.write_text("old") for name in ("a", "mark")})

    def interrupted(path: Path) -> None:
        path.write_text("new")
        path.chmod(0o600)

    seen: list[list[str]] = []
    original = Path.replace

    def watched(self: Path, target: Path) -> Path:
        seen.append(sorted(path.name for path in tmp_path.iterdir() if path.name[0] != "."))
        return original(self, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "replace", watched)
        replace_files(tmp_path, {"a": interrupted, "mark": interrupted})
    assert seen == [["a"], ["a"]]
    assert (tmp_path / "mark").read_text() == "new"


def test_trace_file_with_a_wrong_sha256_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = TraceEntry(
        name="mine", url="https://127.0.0.1:9/mine.csv", source="here", licence="CC0-1.0",
        rows=2, sha256="0" * 64, format="vidur",
    )  # fmt: skip
    monkeypatch.setattr(catalogue, "entries", lambda: {"mine": entry})
    monkeypatch.setenv("KVSIM_DATA_DIR", str(tmp_path))
    (tmp_path / "mine.csv").write_text("num_prefill_tokens,num_decode_tokens\n1,1\n")
    with pytest.raises(InputError, match=r"sha256 differs.*move it away"):
        catalogue.locate("mine")
