"""A simulated run written as torch's memory snapshot is read back, by kvsim and by torch."""

from pathlib import Path
from typing import Any

import pytest

from kvsim.interchange.torch_snapshot.export import write_torch_snapshot
from kvsim.interchange.torch_snapshot.reader import ledgers, read_snapshot
from kvsim.plumbing.errors import InputError
from kvsim.request import Request
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation


@pytest.fixture
def simulation() -> Simulation:
    tables: dict[str, Any] = {
        "model": {"name": "opt-125m"},
        "device": {"name": "a100-40gb"},
        "memory": {"kv_cache_tokens": 4096},
        "allocator": [
            {"kind": "doubling", "initial_tokens": 64, "placement": "torch-caching"},
            {"kind": "max-buffer", "reserve": "exact"},
            {"kind": "paged"},
        ],
        "step_time": {"kind": "linear", "base_us": 1000},
    }
    requests = [Request(f"r{i}", i * 10**9, 100 + i, 90) for i in range(6)]
    return Simulation(Scenario.from_table(tables), requests)


@pytest.mark.parametrize("label", ["doubling", "max-buffer"])
def test_run_exported_as_a_torch_snapshot_can_be_read(
    simulation: Simulation, label: str, tmp_path: Path
) -> None:
    path = tmp_path / "run.pickle"
    at_s = write_torch_snapshot(simulation, label, path)
    assert at_s > 0
    (ledger,) = ledgers(read_snapshot(path))
    series = simulation.run(
        simulation.scenario.allocator[simulation.labels.index(label)], label
    ).memory
    asked = sum(series[f"{name}_bytes"] for name in ("used", "reserved", "overprovisioned"))
    assert ledger.requested == asked.max()
    viz = pytest.importorskip("torch.cuda._memory_viz", reason="torch is not installed")
    import pickle

    with path.open("rb") as file:
        assert "segment" in viz.segsum(pickle.load(file)).lower()


def test_snapshot_of_another_moment_has_fewer_blocks(
    simulation: Simulation, tmp_path: Path
) -> None:
    path = tmp_path / "run.pickle"
    write_torch_snapshot(simulation, "doubling", path)
    (most,) = ledgers(read_snapshot(path))
    write_torch_snapshot(simulation, "doubling", path, at_s=0.0)
    (least,) = ledgers(read_snapshot(path))
    assert 0 < least.requested < most.requested


def test_torch_snapshot_of_a_paged_allocator_is_refused(
    simulation: Simulation, tmp_path: Path
) -> None:
    path = tmp_path / "run.pickle"
    with pytest.raises(InputError, match="one allocation"):
        write_torch_snapshot(simulation, "paged", path)
    with pytest.raises(InputError, match="no such allocator"):
        write_torch_snapshot(simulation, "pagd", path)
    assert list(tmp_path.iterdir()) == []
