"""Runs that kvsim itself observed, against the simulator: where steps take exactly what a
calibration says, nothing may differ; where they do not, the error is the one that was put in.
"""

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.calibrations import hinge_file
from typer.testing import CliRunner

from kvsim.cli import app
from kvsim.engine.policies.preemption import Swap
from kvsim.observed.folder import ObservedRun
from kvsim.observed.own_meta import Circumstances, ObservedMeta
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_S
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation
from kvsim.step_time.calibrated.file import (
    CalibrationFile,
    find_calibration,
    read_calibration,
    write_calibration,
)
from kvsim.step_time.calibrated.form import CalibratedTime
from kvsim.step_time.calibrated.identity import ModelIdentity
from kvsim.validate.run.comparison import compare_run
from kvsim.validate.run.intervals import mean_interval
from kvsim.validate.run.memory import memory_errors
from kvsim.validate.run.replay import Held
from kvsim.validate.run.steps import lock_step

torch = pytest.importorskip("torch", reason="what an observed run is made with")

from kvsim.backend.calibrate.pace import at_pace_of  # noqa: E402
from kvsim.backend.serve.engine import RealTimeEngine  # noqa: E402
from kvsim.backend.serve.memory import MemoryCount  # noqa: E402
from kvsim.backend.serve.run import describe  # noqa: E402
from kvsim.backend.serve.setup import choose_allocator  # noqa: E402
from kvsim.observed.writing import write_observation  # noqa: E402

LABELS = ("paged", "doubling", "max-buffer")
TABLE = {
    "model": {"name": "llama-3.2-1b", "max_model_len": 512},
    "device": {"name": "a100-40gb"},
    "memory": {"kv_cache_tokens": 2600},
    "allocator": [
        {"kind": "paged"},
        {"kind": "doubling", "initial_tokens": 32, "allocation_latency_us": 500.0},
        {"kind": "max-buffer"},
    ],
    "scheduler": {"kind": "continuous", "max_num_batched_tokens": 256},
    "workload": {
        "kind": "synthetic",
        "num_requests": 60,
        "arrivals": {"kind": "poisson", "rate_per_s": 8.0},
        "prompt": {"kind": "uniform", "min_tokens": 20, "max_tokens": 300},
        "output": {"kind": "uniform", "min_tokens": 1, "max_tokens": 150},
        "prefixes": [{"tokens": {"kind": "fixed", "tokens": 64}, "share": 0.5}],
    },
}


@pytest.fixture(scope="module")
def calibration() -> CalibrationFile:
    """Steps of 5 ms and 60 us a token, 1 us a context token."""
    return hinge_file("a100-40gb", "llama-3.2-1b", base_s=5e-3, token_s=6e-5)


class Backend:
    """In place of a device: a clock, on which steps take what a calibration says, times `slower`.

    It is the engine's runner, its device and store, the maker of its spans and the watch on its
    memory.
    """

    name = "as calibrated"
    copied_bytes = 0
    overlaps = False

    def __init__(self, step_time: CalibratedTime, slower: float) -> None:
        self.store = self.host = self.device = self
        self._step_time = step_time
        self._slower = slower
        self._now_ps = 0

    def now_ps(self) -> int:
        return self._now_ps

    def wait_until(self, then_ps: int) -> None:
        self._now_ps = max(self._now_ps, then_ps)

    def spans(self, plan, scheduler):
        took_ps = sum(ps for ps, _ in plan.stalls) + self._step_time.step_ps(plan.shape())
        self._now_ps += round(took_ps * self._slower)
        return (), ()

    def stopped(self):
        return nullcontext()

    def bring(self, tokens):
        return tokens.tolist

    def preempted(self, plan, scheduler):
        return plan.preempted

    def step(self, spans, moves):
        return torch.zeros(1, 2)

    def left(self, seq) -> None: ...
    def release(self, id) -> None: ...
    def now(self) -> MemoryCount:
        return MemoryCount(0, 0, 0)


def record(
    folder: Path,
    label: str,
    calibration: CalibrationFile,
    slower: float = 1.0,
    tables: dict[str, Any] = TABLE,
) -> Path:
    simulation = Simulation(Scenario.from_table(tables))
    options, _ = choose_allocator(simulation, label)
    scheduler = simulation.replica_spec(options).build()
    backend = Backend(CalibratedTime(calibration), slower)
    engine = RealTimeEngine(simulation.stream.requests, scheduler, backend, backend, backend)
    ran = Circumstances(clock=backend.name)
    meta = describe(simulation, options, label, "A100-40GB", ran)
    write_observation(folder, engine.run(backend), meta)
    return folder


@pytest.fixture(scope="module", params=LABELS)
def folder(request, tmp_path_factory, calibration) -> Path:
    return record(tmp_path_factory.mktemp("runs") / request.param, request.param, calibration)


def test_run_with_calibrated_durations_is_simulated_without_error(folder, calibration):
    summary = compare_run(folder, calibration).summary()
    for name, errors in summary["errors"].items():
        found = list(errors.values()) if isinstance(errors, dict) else [errors]
        assert found == pytest.approx([0.0] * len(found), abs=1e-6), name
    again = summary["lock_step"]
    assert again["equal"] == again["steps"] == summary["steps"]
    assert again["first_difference"] is None
    times = summary["step_time_errors"]
    assert times["total"] == pytest.approx(0.0, abs=1e-9)
    assert set(times["by_kind"]) == {"decode", "prefill", "mixed"}
    for errors in times["by_kind"].values():
        assert errors["max"] < 1e-6
    memory = summary["memory"]
    assert memory["mean_absolute"] < 1e-4
    assert memory["recorded_peak"] == memory["simulated_peak"] > 0.8
    for low, high in summary["mean_errors_95"].values():
        assert (low, high) == pytest.approx((0.0, 0.0), abs=1e-6)
    curves = summary["curves"]
    assert curves["kv_cache_usage_mae"] < 1e-6
    assert curves["running_mae"] == curves["waiting_mae"] == 0.0
    assert summary["run"]["allocator"] == folder.name


def test_slower_device_changes_step_time_errors_but_no_decision(tmp_path, calibration):
    slow = record(tmp_path / "slow", "paged", calibration, slower=1.25)
    summary = compare_run(slow, calibration).summary()
    # The decisions are those of the recording whatever the simulated clock would have said.
    assert summary["lock_step"]["first_difference"] is None
    times = summary["step_time_errors"]
    assert times["total"] == pytest.approx(-0.2, abs=1e-6)
    for errors in times["by_kind"].values():
        assert errors["bias"] == pytest.approx(-0.2, abs=1e-5)
        assert errors["mape_95"] == pytest.approx([0.2, 0.2], abs=1e-5)
    assert -0.5 < summary["errors"]["e2e_s"]["mean"] < -0.1
    low, high = summary["mean_errors_95"]["e2e_s"]
    assert low < summary["errors"]["e2e_s"]["mean"] < high < 0.0
    assert summary["memory"]["mean_absolute"] > 0.01


def test_validate_page_and_text_compare_recorded_steps(folder, calibration, tmp_path):
    file = tmp_path / "own.json"
    write_calibration(file, calibration)
    arguments = ["validate", "run", str(folder), "--step-time", str(file)]
    shown = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "out")])
    assert shown.exit_code == 0, shown.exception
    words = " ".join(shown.stdout.split())
    steps = len(ObservedRun.read(folder).steps)
    assert f"{steps:,} of {steps:,} steps decided as recorded" in words
    assert "KV memory over time: 0.0 points apart" in words
    page = (tmp_path / "out" / "report.html").read_text().split("<script>")[0]
    for title in ("Decisions, step by step", "Step times", "KV memory over time", "kvsim 0."):
        assert title in page
    assert folder.name in page


def test_settings_of_an_observed_run_survive_writing_and_reading(folder):
    meta = ObservedRun.read(folder).meta
    assert isinstance(meta, ObservedMeta)
    simulation = Simulation(Scenario.from_table(TABLE))
    options, _ = choose_allocator(simulation, folder.name)
    spec, simulated = meta.replica_spec(), simulation.replica_spec(options)
    assert replace(spec, layout=simulated.layout, max_steps=None) == simulated
    assert spec.layout.bytes_per_token == simulated.layout.bytes_per_token
    assert meta.model_identity() == ModelIdentity.of(simulation.model)


def test_observed_run_with_swapping_is_replayed_with_swapping(tmp_path, calibration):
    scheduler = {**TABLE["scheduler"], "preemption_mode": "swap", "swap_space_gib": 1}
    allocator = {"kind": "paged", "enable_prefix_caching": False}
    memory = {"kv_cache_tokens": 1200}
    tables = TABLE | {"scheduler": scheduler, "allocator": [allocator], "memory": memory}
    folder = record(tmp_path / "swap", "paged", calibration, tables=tables)
    run = ObservedRun.read(folder)
    assert isinstance(run.meta.replica_spec().build().preemption, Swap)
    assert sum(step.preempted for step in run.steps) > 0
    assert lock_step(run).difference is None
    # Who comes back from host memory computes nothing again, and here nothing is shared.
    computed = sum(step.prefill_tokens for step in run.steps)
    assert computed == sum(request.prompt_tokens for request in run.requests)


def edited(folder: Path, out: Path, name: str, edit) -> Path:
    out.mkdir()
    for path in folder.iterdir():
        text = path.read_text()
        (out / path.name).write_text(edit(text) if path.name == name else text)
    return out


def test_first_step_with_another_decision_is_reported(folder, calibration, tmp_path):
    def more_waiting(text: str) -> str:
        lines = text.splitlines()
        cells = lines[8].split(",")
        cells[lines[0].split(",").index("waiting")] = "77"
        return "\n".join([*lines[:8], ",".join(cells), *lines[9:]]) + "\n"

    out = edited(folder, tmp_path / "other", "steps.csv", more_waiting)
    again = compare_run(out, calibration).summary()["lock_step"]
    assert again["equal"] == 7
    difference = again["first_difference"]
    assert (difference["step"], difference["figure"]) == (7, "waiting")
    assert difference["recorded"] == 77 != difference["simulated"]


@pytest.mark.parametrize(
    ("name", "edit", "fault"),
    [
        ("steps.csv", lambda text: text.split("\n")[0] + "\n", "steps.csv: no rows"),
        (
            "steps.csv",
            lambda text: text.replace("running", "ran", 1),
            r"steps.csv:2.(ran: unknown key|running: required key is missing)",
        ),
        ("requests.csv", lambda text: text.replace("0+64", "0+63", 1), "prompt_runs are not as"),
        ("requests.csv", lambda text: text.replace("0+64", "0-64", 1), "requests.csv:"),
        (
            "meta.json",
            lambda text: text.replace('"capacity_bytes"', '"capacity"'),
            "meta.json.capacity_bytes: required key is missing",
        ),
        (
            "meta.json",
            lambda text: json.dumps(json.loads(text) | {"allocator": {"kind": "pages"}}),
            "allocator.kind: unknown allocator",
        ),
    ],
)
def test_damaged_folder_with_steps_is_a_one_line_error(folder, tmp_path, name, edit, fault):
    with pytest.raises(InputError, match=fault) as error:
        ObservedRun.read(edited(folder, tmp_path / "spoilt", name, edit))
    assert "\n" not in str(error.value)


def test_pool_usage_over_time_is_compared_by_exact_integrals():
    s = PS_PER_S
    recorded = [Held(0, 0.5), Held(2 * s, 0.0)]
    simulated = (Held(0, 0.5), Held(s, 0.25), Held(4 * s, 0.0))
    found = memory_errors(recorded, simulated)
    assert found.mean_absolute == pytest.approx((0.25 + 2 * 0.25) / 4)
    assert found.largest == 0.25
    assert found.recorded_mean == pytest.approx(0.25)
    assert found.simulated_mean == pytest.approx((0.5 + 3 * 0.25) / 4)


def test_bootstrap_interval_contains_the_mean_and_narrows_with_samples():
    few = [0.0, 1.0] * 8
    low, high = mean_interval(few)
    assert low < 0.5 < high
    # Four standard errors, a little less for so few.
    assert high - low == pytest.approx(2 * 1.96 * 0.5 / 16**0.5, rel=0.15)
    assert mean_interval(few) == (low, high)
    more_low, more_high = mean_interval(few * 16)
    assert more_high - more_low == pytest.approx((high - low) / 4, rel=0.2)


# --- recorded runs -----------------------------------------------------------------------------

RECORDED = Path(__file__).parents[3] / "reports" / "observed"


@pytest.mark.parametrize(
    ("label", "steps"), [("paged", 1956), ("doubling", 2780), ("max-buffer", 6874)]
)
def test_real_runs_have_equal_decisions_and_latencies_within_ten_percent(label, steps):
    step_time = "served-paged" if label == "paged" else "served-contiguous"
    calibration = read_calibration(RECORDED / f"{step_time}.json")
    summary = compare_run(RECORDED / label, calibration).summary()
    assert summary["lock_step"] == {"steps": steps, "equal": steps, "first_difference": None}
    assert abs(summary["errors"]["e2e_s"]["mean"]) < 0.1
    assert abs(summary["errors"]["makespan_s"]) < 0.1
    assert summary["run"]["clock"] == "wall clock"


@pytest.mark.parametrize("load", ["saturated", "multi-turn"])
@pytest.mark.parametrize("label", ["paged", "doubling", "max-buffer"])
def test_runs_on_a_busy_machine_are_reproduced_with_a_paced_calibration(load, label):
    name = "xeon-small-llama" if label == "paged" else "xeon-small-llama-contiguous"
    folder = RECORDED / "busy" / f"{load}-{label}"
    calibration = at_pace_of(ObservedRun.read(folder), find_calibration(name, ""))
    summary = compare_run(folder, calibration).summary()
    assert summary["lock_step"]["first_difference"] is None
    told = json.loads((folder / "comparison.json").read_text())[1]
    assert told["errors"]["e2e_s"]["mean"] == pytest.approx(
        summary["errors"]["e2e_s"]["mean"], abs=0.02
    )
    # What reports/observed/README.md says has been reached.
    assert abs(summary["errors"]["makespan_s"]) < 0.08
    worst = 0.16 if folder.name == "multi-turn-max-buffer" else 0.10
    assert abs(summary["errors"]["e2e_s"]["mean"]) < worst
