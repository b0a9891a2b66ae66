"""Sweeps small enough for a test, and `kvsim sweep` in a separate process."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvsim.plumbing.toml import to_toml

ROOT = Path(__file__).parents[3]


@pytest.fixture
def table(tables: Any) -> dict[str, Any]:
    """A scenario with two allocators that runs in some tens of milliseconds."""
    return tables(
        allocator=[{"kind": "paged"}, {"kind": "doubling"}],
        model={"name": "opt-125m", "max_model_len": 1024},
        workload={
            "kind": "synthetic",
            "num_requests": 40,
            "arrivals": {"kind": "poisson", "rate_per_s": 4.0},
            "prompt": {"kind": "uniform", "min_tokens": 20, "max_tokens": 300},
            "output": {"kind": "geometric", "mean": 60},
            "clip_to": "max_model_len",
        },
    )


@pytest.fixture
def scenario(table: dict[str, Any], tmp_path: Path) -> Path:
    """A file with the scenario of `table`."""
    path = tmp_path / "scenario.toml"
    path.write_text(to_toml(table))
    return path


@pytest.fixture
def start() -> Any:
    """A function that starts `kvsim sweep` with these arguments in a new process group."""
    started = []

    def begin(*arguments: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "kvsim.cli", "sweep", *map(str, arguments)],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            pipe.close()
