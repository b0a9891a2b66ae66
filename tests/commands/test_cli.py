"""The command line: answers, one-line errors, exit codes, nothing half-written."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SMALL = """
[model]
name = "llama-3-8b"
max_model_len = 2048
[device]
name = "a100-80gb"
[memory]
kv_cache_tokens = 8192
[[allocator]]
kind = "max-buffer"
[[allocator]]
kind = "doubling"
initial_tokens = 128
[[allocator]]
kind = "paged"
[workload]
kind = "synthetic"
num_requests = 40
arrivals = { kind = "poisson", rate_per_s = 20.0 }
prompt = { kind = "lognormal", components = [{ mu = 4.5, sigma = 0.8 }], max_tokens = 600 }
output = { kind = "fixed", tokens = 60 }
"""


def kvsim(*arguments: str | Path, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "kvsim.cli", *map(str, arguments)],
        capture_output=True, text=True, cwd=cwd, check=False,
    )  # fmt: skip


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def without_wall(summary: dict) -> dict:  # type: ignore[type-arg]  # JSON of any shape
    for run in summary["runs"]:
        assert run.pop("wall_s") > 0
    return summary


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The output of `kvsim run --out`, and the folder it wrote."""
    place = tmp_path_factory.mktemp("stored")
    (place / "small.toml").write_text(SMALL)
    done = kvsim("run", place / "small.toml", "--out", place / "out", "--json")
    assert done.returncode == 0, done.stderr
    return done.stdout, place / "out"


def test_run_writes_the_documented_files_and_summary(stored: tuple[str, Path]) -> None:
    printed, out = stored
    summary = json.loads(printed)
    assert [run["allocator"] for run in summary["runs"]] == ["max-buffer", "doubling", "paged"]
    for run in summary["runs"]:
        assert run["requests"] == {"submitted": 40, "finished": 40, "rejected": 0}
        for mean in ("time_mean", "step_mean"):
            assert sum(run["memory"][mean].values()) == pytest.approx(1, abs=1e-12)
        assert {"mean", "p50", "p90", "p95", "p99"} == set(run["ttft_s"])
    names = {path.name for path in out.iterdir()}
    assert names == {
        "scenario.toml", "summary.json", "requests.parquet", "memory.parquet", "report.html",
        "addresses.parquet", "events.parquet", "holes.parquet",
    }  # fmt: skip
    assert json.loads((out / "summary.json").read_text()) == summary


def test_run_without_page_writes_no_html(
    scenario: Path, stored: tuple[str, Path], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(stored[1], out)
    ledger = (out / "memory.parquet").read_bytes()
    done = kvsim("run", scenario, "--out", out, "--no-page")
    assert done.stdout.splitlines()[-1] == str(out)
    names = {path.name for path in out.iterdir()}
    assert names == {"scenario.toml", "summary.json", "requests.parquet", "memory.parquet"}
    assert (out / "memory.parquet").read_bytes() == ledger
    alone = kvsim("run", scenario, "--no-page")
    assert alone.returncode == 2
    assert alone.stderr == "error: --no-page: nothing is written; give --out DIR\n"


def test_the_same_scenario_gives_the_same_bytes(scenario: Path) -> None:
    first, second = (json.loads(kvsim("run", scenario, "--json").stdout) for _ in range(2))
    assert json.dumps(without_wall(first)) == json.dumps(without_wall(second))


def test_run_with_max_steps_1_gives_the_same_numbers(scenario: Path) -> None:
    leaps = json.loads(kvsim("run", scenario, "--json").stdout)
    steps = json.loads(kvsim("run", scenario, "--json", "--set", "max_steps=1").stdout)
    assert without_wall(leaps)["runs"] == without_wall(steps)["runs"]


def test_stored_scenario_reruns_with_the_same_summary(stored: tuple[str, Path]) -> None:
    printed, out = stored
    first = json.loads(printed)
    again = json.loads(kvsim("run", out / "scenario.toml", "--json").stdout)
    assert without_wall(again) == without_wall(first)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("allocator.2.blok_size=16", ["blok_size", "block_size"]),
        ("allocator.2.kind=pagd", ["pagd", "paged"]),
        ("allocator.9.block_size=16", ["no such item"]),
        ("model.name=llama-9", ["llama-9"]),
        ("device.name=a101", ["a101"]),
        ("scheduler.max_num_seqs=0", ["max_num_seqs"]),
        ("memory.kv_cache_tokens=3", ["block"]),
        ("memory.num_gpu_blocks=100", ["kv_cache_tokens", "num_gpu_blocks"]),
        ("seed=-1", ["seed"]),
        ("nonsense", ["a.b=value"]),
        ("workload.rate=3", ["unknown key"]),
        ("model.max_model_len=999999", ["max_model_len", "8192"]),
    ],
)
def test_bad_input_is_a_one_line_error_and_exit_2(
    scenario: Path, tmp_path: Path, change: str, words: list[str]
) -> None:
    out = tmp_path / "out"
    done = kvsim("run", scenario, "--set", change, "--out", out)
    assert done.returncode == 2
    assert done.stdout == ""
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, done.stderr
    for word in words:
        assert word in lines[0]
    assert not out.exists()


def test_a_missing_scenario_names_the_recipes() -> None:
    done = kvsim("run", "chta")
    assert done.returncode == 2
    assert "chat" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_request_that_can_never_fit_is_refused_by_name(scenario: Path) -> None:
    done = kvsim("run", scenario, "--json", "--set", "memory.kv_cache_tokens=320")
    runs = {run["allocator"]: run for run in json.loads(done.stdout)["runs"]}
    assert runs["max-buffer"]["requests"]["finished"] == 0  # its buffer is 2,048 tokens
    assert runs["paged"]["requests"]["rejected"] > 0
    for run in runs.values():
        counts = run["requests"]
        assert counts["finished"] + counts["rejected"] == counts["submitted"]


def test_run_without_a_served_request_exits_with_2(scenario: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = kvsim("run", scenario, "--set", "memory.kv_cache_tokens=64", "--out", out)
    assert done.returncode == 2
    line = done.stderr.splitlines()[-1]
    assert line.startswith("error: workload: no request was served under any allocator: All 40 ")
    assert (out / "summary.json").exists()  # what was found out is kept


def test_help_imports_no_heavy_library() -> None:
    code = (
        "import sys; sys.argv = ['kvsim', '--help']\n"
        "from kvsim.cli import app\n"
        "try: app()\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'pandas', 'plotly', 'scipy', 'torch', 'pyarrow', 'simpy', 'pydantic'}\n"
        "found = sorted(heavy & sys.modules.keys())\n"
        "assert not found, found\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_run_of_one_replica_imports_no_fleet_or_tier_modules() -> None:
    code = (
        "import sys; sys.argv = ['kvsim', 'run', 'chat', '--set', 'workload.num_requests=5']\n"
        "from kvsim.cli import main\n"
        "try: main()\n"
        "except SystemExit as done: assert not done.code, done.code\n"
        "rooms = ('engine.connectors.offloading.disk',\n"
        "    'engine.executor.copies', 'engine.waves', 'fleet.watch', 'simulation.fleet',\n"
        "    'results.fleet', 'results.store', 'results.summary_beyond',\n"
        "    'scenario.build.tiers', 'simulation.prefill_decode',\n"
        "    'engine.connectors.tiers', 'engine.connectors.offloading', 'memory.paged.loading',\n"
        "    'fleet.options', 'fleet.disaggregation', 'step_time.front_end',\n"
        "    'engine.speculation.options',\n"
        "    'step_time.kernels.host', 'capacity.tensorrt_llm', 'capacity.sglang',\n"
        "    'model.checkpoint', 'model.hf.quantization', 'workload.traces',\n"
        "    'workload.catalogue')\n"
        "found = [room for room in rooms if f'kvsim.{room}' in sys.modules]\n"
        "assert not found, found\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
