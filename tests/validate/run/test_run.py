"""Recorded runs against the simulator: runs recorded from the simulator, whose true step times are
known, and the real run if it is available.
"""

import csv
import json
import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.calibrations import hinge_file
from typer.testing import CliRunner

from kvsim.cli import app
from kvsim.device import named_device
from kvsim.model import named_model
from kvsim.observed.folder import ObservedRun
from kvsim.observed.vllm_meta import VllmMeta
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_S, PS_PER_US
from kvsim.step_time.calibrated.file import (
    CalibrationFile,
    find_calibration,
    write_calibration,
)
from kvsim.step_time.calibrated.fit import fit
from kvsim.step_time.calibrated.form import CalibratedTime
from kvsim.step_time.correction import NONE, Correction
from kvsim.step_time.form import StepTime
from kvsim.step_time.kernels.form import KernelOptions
from kvsim.step_time.options import Hardware
from kvsim.validate.run.comparison import compare_run
from kvsim.validate.run.curves import clock_ahead
from kvsim.validate.run.fitting.forms import FORMS
from kvsim.validate.run.replay import replay
from kvsim.vllm.versions import V0_11

META = {
    "model": "acme/Cool-1B",
    "gpu": "Abacus 9000",
    "vllm_version": "0.19.0",
    "max_num_seqs": 16,
    "max_num_batched_tokens": 256,
    "max_model_len": 2048,
    "block_size": 16,
    "num_gpu_blocks": 61,
    "enable_prefix_caching": True,
    "async_scheduling": True,
    "tick_seconds": 0.25,
    "null_means": "nothing, here",
}
LOGGER_AHEAD_S = 0.08


def calibration() -> CalibrationFile:
    """Steps of 8 ms and 20 us a token, 1 us a context token."""
    return hinge_file("abacus 9000", "acme/Cool-1B", base_s=8e-3, token_s=2e-5)


def record(
    folder: Path,
    correction: Correction = NONE,
    meta: dict[str, object] | None = None,
    number: int = 40,
    form: StepTime | None = None,
) -> Path:
    """A run of the simulator itself, written down as an engine's would be.

    Pairs of requests share a prompt; the pool holds about six of them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "meta.json").write_text(json.dumps(META | (meta or {})))
    requests, stream = [], []
    for index in range(number):
        prompt, output = 60 + 37 * index % 200, 20 + 53 * index % 90
        first_id = 100 * (index // 2)
        blocks = list(range(first_id, first_id + -(-prompt // 16)))
        stream.append(
            {
                "timestamp": 30.0 * index,
                "input_length": prompt,
                "output_length": output,
                "hash_ids": blocks,
            }
        )
        requests.append([f"r{index}", 0.03 * index, prompt, output, 0.03 * index, 0, 1e6, 1e6])
    header = (
        "id arrival_s prompt_tokens output_tokens queued_s scheduled_s first_token_s last_token_s"
    )
    write(folder / "requests.csv", header, requests)
    (folder / "stream.jsonl").write_text("".join(json.dumps(row) + "\n" for row in stream))
    write(folder / "timeseries.csv", "t running waiting kv_cache_pct", [[1, 0, 0, 0]])
    run = ObservedRun.read(folder)
    found = replay(run, form or CalibratedTime(calibration(), correction))
    moments = zip(found.scheduled_ps, found.first_token_ps, found.last_token_ps, strict=True)
    for row, times in zip(requests, moments, strict=True):
        row[5:] = [ps / PS_PER_S for ps in times]
    write(folder / "requests.csv", header, requests)
    ticks: list[list[object]] = []
    end_s, produced = found.records[-1].time_ps / PS_PER_S, 0
    for number in range(1, int(end_s / 0.25) + 3):
        t = 0.25 * number
        past = [r for r in found.records if r.time_ps < (t - LOGGER_AHEAD_S) * PS_PER_S]
        if past:
            last, so_far = past[-1], found.generated[len(past) - 1]
            row = [t, last.running, last.waiting, 100 * last.kv_cache_usage]
            ticks.append([*row, (so_far - produced) / 0.25])
            produced = so_far
    write(folder / "timeseries.csv", "t running waiting kv_cache_pct gen_throughput", ticks)
    return folder


def write(path: Path, header: str, rows: list[list[object]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header.split())
        writer.writerows(rows)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("runs") / "own")


def test_recorded_simulation_is_replayed_without_error(folder: Path) -> None:
    summary = compare_run(folder, calibration()).summary()
    for name, errors in summary["errors"].items():
        found = errors.values() if isinstance(errors, dict) else [errors]
        assert list(found) == pytest.approx([0.0] * len(list(found)), abs=1e-9), name
    assert summary["preemptions"] > 0  # the pool was tight
    curves = summary["curves"]
    assert curves["phases"]["saturated"]["ticks"] > 3
    for name in ("running_mae", "waiting_mae", "kv_cache_usage_mae"):
        assert curves[name] < 0.02, name


def test_offset_of_the_loggers_clock_is_found_from_the_recording(folder: Path) -> None:
    assert clock_ahead(ObservedRun.read(folder)) == pytest.approx(LOGGER_AHEAD_S, abs=0.02)


HIDDEN = {
    "constant": Correction(constant_ps=900 * PS_PER_US),
    "scale": Correction(scale_ppm=1_150_000),
    "constant+token": Correction(constant_ps=-500 * PS_PER_US, token_ps=90 * PS_PER_US),
    "constant+chunk": Correction(constant_ps=400 * PS_PER_US, chunk_ps=4000 * PS_PER_US),
}


@pytest.mark.slow
@pytest.mark.parametrize("form", HIDDEN)
def test_fit_on_the_first_part_recovers_the_true_step_times(tmp_path: Path, form: str) -> None:
    hidden = HIDDEN[form]
    folder = record(tmp_path / "slow", hidden, number=160)
    blind = compare_run(folder, calibration()).summary()
    assert abs(blind["errors"]["tpot_s"]["mean"]) > 0.03
    seen = compare_run(folder, calibration(), 0.4, form)
    summary = seen.summary()
    fit = summary["fit"]
    assert fit["form"] == form
    assert fit["constant_s"] == pytest.approx(hidden.constant_ps / PS_PER_S, abs=6e-5)
    assert fit["token_s"] == pytest.approx(hidden.token_ps / PS_PER_S, abs=4e-6)
    assert fit["chunk_s"] == pytest.approx(hidden.chunk_ps / PS_PER_S, abs=3e-4)
    assert fit["scale"] == pytest.approx(hidden.scale_ppm / 1e6, abs=2e-3)
    for name, (low, high) in fit["intervals_95"].items():
        assert low - 1e-6 <= fit[name] <= high + 1e-6
    assert summary["reported_requests"] + fit["requests"] == 160
    assert fit["warnings"] == []
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        assert abs(summary["errors"][name]["mean"]) < 0.01, name


@pytest.mark.slow
def test_fit_chooses_the_true_form_by_cross_validation(tmp_path: Path) -> None:
    folder = record(tmp_path / "slow", HIDDEN["constant+token"], number=160)
    seen = compare_run(folder, calibration(), 0.4)
    assert seen.fit is not None
    assert seen.fit.form == "constant+token"
    scores = {one.form: one.score for one in seen.fit.judged}
    assert set(scores) == set(FORMS)
    assert min(scores, key=lambda form: scores[form]) == "constant+token"
    # Where one number is enough, no form of two is taken.
    plain = compare_run(record(tmp_path / "same", number=160), calibration(), 0.4)
    assert plain.fit is not None
    assert len(FORMS[plain.fit.form]) == 1


def test_large_time_per_token_is_fitted_on_few_unqueued_requests(tmp_path: Path) -> None:
    """As an all-reduce over PCIe looks: a third of the time is missing, of prefills more."""
    hidden = Correction(constant_ps=1000 * PS_PER_US, token_ps=87 * PS_PER_US)
    folder = record(tmp_path / "two", hidden, {"num_gpu_blocks": 2000}, number=60)
    blind = compare_run(folder, calibration()).summary()["errors"]
    assert blind["ttft_s"]["mean"] < -0.4
    seen = compare_run(folder, calibration(), 0.5)
    assert seen.fit is not None
    assert seen.fit.form == "constant+token"
    assert seen.fit.requests < 30
    assert seen.fit.correction.token_ps == pytest.approx(hidden.token_ps, rel=0.05)
    for errors in seen.summary()["errors"].values():
        assert abs(errors["mean"] if isinstance(errors, dict) else errors) < 0.01


def test_fit_on_few_requests_gives_a_warning(folder: Path) -> None:
    seen = compare_run(folder, calibration(), 0.4, "constant")
    assert seen.fit is not None
    (warning,) = seen.fit.warnings
    assert f"only {seen.fit.requests} requests" in warning


def test_phases_of_the_curves_follow_the_recorded_pool_and_queue(folder: Path) -> None:
    curves = compare_run(folder, calibration()).curves
    assert curves is not None
    phases = curves.phases()
    assert sum(ticks.sum() for ticks in phases.values()) == len(curves.t)
    assert (curves.recorded["kv_cache_usage"][phases["filling"]] < 0.95).all()
    assert (curves.recorded["waiting"][phases["draining"]] == 0).all()
    assert curves.recorded["waiting"][phases["saturated"]][-1] > 0


def test_simulated_engine_has_the_recorded_settings() -> None:
    def meta(**fields: object) -> dict[str, object]:
        return META | fields

    options = VllmMeta.parse(meta(long_prefill_token_threshold=64), "meta").scheduler_options()
    assert (options.max_num_seqs, options.long_prefill_token_threshold) == (16, 64)
    assert options.depth == 2
    assert options.scheduler_reserve_full_isl
    old = VllmMeta.parse(
        meta(vllm_version="v0.11.2", async_scheduling=False), "meta"
    ).scheduler_options()
    assert (old.block_rules, old.depth) == (V0_11.blocks, 1)
    with pytest.raises(InputError, match="not a version; got nightly"):
        VllmMeta.parse(meta(vllm_version="nightly"), "meta").scheduler_options()


def test_calibration_of_another_model_or_device_is_refused(folder: Path, tmp_path: Path) -> None:
    other = record(tmp_path / "other", meta={"gpu": "H100"})
    with pytest.raises(InputError, match=r"made on abacus 9000; got H100"):
        compare_run(other, calibration())
    with pytest.raises(InputError, match=r"made on rtx-4090; got Abacus 9000"):
        compare_run(folder, find_calibration("rtx4090-llama-3.1-8b", "step_time"))


def without(source: Path, folder: Path, *names: str) -> Path:
    """A copy of a recording without these files."""
    folder.mkdir()
    for path in source.iterdir():
        if path.name not in names:
            (folder / path.name).write_bytes(path.read_bytes())
    return folder


def set_columns(path: Path, value: str, *columns: str) -> None:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    write(
        path,
        " ".join(rows[0]),
        [list((row | dict.fromkeys(columns, value)).values()) for row in rows],
    )


def test_null_settings_get_the_engines_defaults(folder: Path, tmp_path: Path) -> None:
    open_settings = (
        *("max_num_seqs", "max_num_batched_tokens", "max_model_len", "block_size"),
        *("enable_prefix_caching", "async_scheduling", "num_gpu_blocks"),
    )
    copy = without(folder, tmp_path / "nulls")
    (copy / "meta.json").write_text(json.dumps(META | dict.fromkeys(open_settings)))
    run = ObservedRun.read(copy)
    assert isinstance(run.meta, VllmMeta)
    settings = run.meta.model_dump()
    assert [settings[name] for name in open_settings[:-1]] == [256, 2048, 2**20, 16, True, True]
    assert {text.split(" ")[0].rstrip(":") for text in run.assumptions} == set(open_settings)
    # A pool that was not recorded never fills, and nothing is said of the share taken of it.
    summary = compare_run(copy, calibration()).summary()
    assert summary["preemptions"] == 0
    assert "kv_cache_usage_mae" not in summary["curves"]
    assert set(summary["curves"]["phases"]) == {"queueing", "draining"}
    assert len(summary["run"]["assumed"]) == len(open_settings)


@pytest.mark.parametrize(
    ("version", "gpu", "seqs", "tokens", "caching", "asynchronous"),
    [
        ("0.19.0", "H100", 1024, 8192, True, True),
        ("0.13.0", "H100", 1024, 8192, True, False),
        ("0.10.1.1", "A100-SXM4-80GB", 256, 2048, True, False),
        ("v0.8.5", "A100-SXM4-80GB", 1024, 8192, True, False),
        ("0.7.3", "RTX 4090", 256, 2048, False, False),
        ("0.19.0", "RTX PRO 6000", 1024, 8192, True, True),
        ("0.19.0", "Abacus 9000", 256, 2048, True, True),  # of unknown memory
    ],
)
def test_defaults_depend_on_engine_version_and_device(
    version: str, gpu: str, seqs: int, tokens: int, caching: bool, asynchronous: bool
) -> None:
    table = {"model": "acme/Cool-1B", "gpu": gpu, "vllm_version": version}
    meta = VllmMeta.parse(table, "meta.json")
    found = (meta.max_num_seqs, meta.max_num_batched_tokens)
    assert found == (seqs, tokens)
    assert (meta.enable_prefix_caching, meta.async_scheduling) == (caching, asynchronous)
    assert any("not known" in text for text in meta.assumptions)  # how long such a model can go
    large = VllmMeta.parse(table | {"gpu_memory_bytes": 96 * 2**30, "gpu": "G"}, "meta.json")
    # The engine before 0.8, V0, had one default for all.
    want = (256, 2048) if version.startswith("0.7") else (1024, 8192)
    assert (large.max_num_seqs, large.max_num_batched_tokens) == want
    few = VllmMeta.parse(table | {"max_num_batched_tokens": 128}, "meta.json")
    assert few.max_num_seqs == 128  # the engine takes no more sequences than tokens


def test_recorded_column_of_zeros_is_not_compared(folder: Path, tmp_path: Path) -> None:
    copy = without(folder, tmp_path / "zeros")
    set_columns(copy / "timeseries.csv", "0", "kv_cache_pct")
    curves = compare_run(copy, calibration()).summary()["curves"]
    assert {"running_mae", "waiting_mae"} <= curves.keys()
    assert not any("kv" in key for key in curves)
    assert set(curves["phases"]) == {"queueing", "draining"}
    set_columns(copy / "timeseries.csv", "0", "waiting")  # nobody waited: that may be
    curves = compare_run(copy, calibration()).summary()["curves"]
    assert "waiting_mae" in curves
    assert list(curves["phases"]) == ["whole run"]
    set_columns(copy / "timeseries.csv", "0", "running")
    assert compare_run(copy, calibration()).curves is None


def test_missing_recorded_columns_are_noted(folder: Path, tmp_path: Path) -> None:
    bare = without(folder, tmp_path / "bare", "stream.jsonl", "timeseries.csv")
    file = tmp_path / "own.json"
    write_calibration(file, calibration())
    options = ["--step-time", str(file), "--out", str(tmp_path / "out")]
    shown = CliRunner().invoke(app, ["validate", "run", str(bare), *options])
    assert shown.exit_code == 0, shown.exception
    assert "assumed: no stream.jsonl: no two prompts share a prefix" in shown.stdout
    assert "no log of the engine was kept" in shown.stdout
    page = (tmp_path / "out" / "report.html").read_text()
    assert "no two prompts share a prefix" in page
    assert 'id="plotly"' not in page  # the library
    assert compare_run(bare, calibration()).summary()["curves"] is None
    # Without prefix caching it does not matter what prompts share.
    (bare / "meta.json").write_text(json.dumps(META | {"enable_prefix_caching": False}))
    assert ObservedRun.read(bare).assumptions == ()


def edit_csv(column: str, value: str) -> Callable[[str], str]:
    def edit(text: str) -> str:
        lines = text.splitlines()
        cells = lines[2].split(",")
        cells[lines[0].split(",").index(column)] = value
        return "\n".join([*lines[:2], ",".join(cells), *lines[3:]])

    return edit


@pytest.mark.parametrize(
    ("name", "edit", "fault"),
    [
        ("meta.json", lambda text: text[:-3], "meta.json: not JSON"),
        ("meta.json", lambda text: "[]", "meta.json: not a JSON object"),
        (
            "meta.json",
            lambda text: text.replace('"gpu"', '"gpus"'),
            "meta.json.gpu: required key is missing",
        ),
        ("requests.csv", edit_csv("arrival_s", "-1"), "requests.csv:3.arrival_s: too small"),
        ("requests.csv", edit_csv("first_token_s", "0"), "answered before it came; got r1"),
        ("requests.csv", edit_csv("prompt_tokens", "7"), "lengths differ from those in requests"),
        ("requests.csv", lambda text: text.split("\n")[0] + "\n", "requests.csv: no rows"),
        ("requests.csv", lambda text: text.rsplit("\n", 2)[0], "not the requests of requests.csv"),
        ("stream.jsonl", lambda text: "{}\n" + text, "stream.jsonl"),
        ("timeseries.csv", edit_csv("kv_cache_pct", "120"), "timeseries.csv:3.kv_cache_pct"),
        ("timeseries.csv", lambda text: text + "1,2\n", "cut short"),
    ],
)
def test_damaged_folder_is_a_one_line_error(
    folder: Path, tmp_path: Path, name: str, edit: Callable[[str], str], fault: str
) -> None:
    for path in folder.iterdir():
        text = path.read_text()
        (tmp_path / path.name).write_text(edit(text) if path.name == name else text)
    with pytest.raises(InputError) as error:
        ObservedRun.read(tmp_path)
    assert fault in str(error.value)
    assert "\n" not in str(error.value)


def test_clock_offset_is_found_without_engine_side_times(folder: Path, tmp_path: Path) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    with (folder / "requests.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    kept = [row[:4] + row[6:] for row in rows]
    write(tmp_path / "requests.csv", " ".join(kept[0]), kept[1:])
    ahead_s = clock_ahead(ObservedRun.read(tmp_path))
    assert ahead_s == pytest.approx(LOGGER_AHEAD_S, abs=0.02)


def test_recorded_pool_too_small_for_a_request_is_refused(tmp_path: Path, folder: Path) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "meta.json").write_text(json.dumps(META | {"num_gpu_blocks": 12}))
    with pytest.raises(
        InputError, match=r"request r\d+: it needs more KV blocks than the pool has"
    ):
        compare_run(tmp_path, calibration())


def test_pace_over_kernels_recovers_the_slowdown(tmp_path: Path) -> None:
    meta: dict[str, Any] = {"model": "llama-3.1-8b", "gpu": "H100", "num_gpu_blocks": 4000}
    hardware = Hardware(named_model("llama-3.1-8b"), named_device("h100"), engine="vllm")
    slower = KernelOptions(engine_version="0.19.0", scale=1.4).build(hardware)
    record(tmp_path / "run", meta=meta, number=120, form=slower)
    out = tmp_path / "step_time.toml"
    run = ["calibrate", "pace", str(tmp_path / "run"), "--calibration", "kernels"]
    told = CliRunner().invoke(app, [*run, "--out", str(out)])
    assert told.exit_code == 0, told.output
    table = tomllib.loads(out.read_text())["step_time"]
    # The fit distributes the slowdown over these numbers by their spread over servers.
    assert table["scale"] > 1.1
    assert table["overhead_us"] > 0
    assert (table["kind"], table["engine_version"]) == ("kernels", "0.19.0")
    assert "fitted on the first" in out.read_text()
    errors = {line.split()[0]: line for line in told.stdout.splitlines() if "%" in line}
    tabulated = float(errors["as"].split()[-2])
    fitted = float(errors["with"].split()[-2])
    assert tabulated < -20 < -2 < fitted < 2


def test_fit_share_that_leaves_no_requests_is_refused(folder: Path) -> None:
    for share in (0.0, 1.0):
        with pytest.raises(InputError, match=r"--fit: the part to fit on .* got"):
            compare_run(folder, calibration(), share)


def test_validate_run_command_prints_text_and_json(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "own.json"
    write_calibration(file, calibration())
    arguments = ["validate", "run", str(folder), "--step-time", str(file)]
    fitted = [*arguments, "--fit", "0.4", "--fit-form", "constant"]
    told = CliRunner().invoke(app, [*fitted, "--json"])
    assert told.exit_code == 0
    summary = json.loads(told.stdout)
    assert set(summary["errors"]) == {"ttft_s", "tpot_s", "e2e_s", "makespan_s"}
    assert set(summary["errors"]["ttft_s"]) == {"mean", "p50", "p90", "p99"}
    assert abs(summary["fit"]["constant_s"]) < 1e-5
    shown = CliRunner().invoke(app, [*fitted, "--out", str(tmp_path / "out")])
    assert shown.exit_code == 0
    assert "What was fitted on the first part" in shown.stdout
    assert "warning: only" in shown.stdout
    assert "Simulated against recorded" in shown.stdout
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "comparison.json",
        "report.html",
    ]
    page = (tmp_path / "out" / "report.html").read_text()
    assert "nothing fitted on the run" in page
    assert "What was fitted on the first part" in page
    assert "https://" not in page.split("<script>")[0]  # opens offline
    assert len(json.loads((tmp_path / "out" / "comparison.json").read_text())) == 2


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (["--fit-form", "scale"], "--fit-form: says how to fit, but nothing is fitted"),
        (["--fit", "0.4", "--fit-form", "slope"], "--fit-form: no such form; got slope"),
        (["--step-time", "roofline"], "meta.json.gpu: unknown device; got 'Abacus 9000'"),
    ],
)
def test_unfittable_run_is_a_one_line_error(
    folder: Path, tmp_path: Path, options: list[str], fault: str
) -> None:
    file = tmp_path / "own.json"
    write_calibration(file, calibration())
    arguments = ["validate", "run", str(folder), "--step-time", str(file), *options]
    done = CliRunner().invoke(app, arguments)
    assert isinstance(done.exception, InputError)
    assert fault in str(done.exception)


# --- the real run ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real() -> Path:
    root = os.environ.get("KVSIM_REAL_RUNS_DIR")
    if root is None:
        pytest.skip("KVSIM_REAL_RUNS_DIR names no folder of recorded runs")
    path = Path(root) / "rtx4090_llama-3.1-8b"
    if not path.is_dir():
        pytest.skip(f"no {path.name} in KVSIM_REAL_RUNS_DIR")
    return path


def test_rtx_4090_run_is_reproduced_without_fitting(real: Path) -> None:
    errors = compare_run(real, find_calibration("rtx4090-llama-3.1-8b", "")).summary()["errors"]
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        assert abs(errors[name]["mean"]) < 0.03, name
    assert abs(errors["makespan_s"]) < 0.02


def test_rtx_4090_run_is_reproduced_with_null_settings(real: Path, tmp_path: Path) -> None:
    calibrated = find_calibration("rtx4090-llama-3.1-8b", "")
    known = compare_run(real, calibrated).summary()
    copy = without(real, tmp_path / "nulls", "samples.csv", "samples_small.csv")
    meta = json.loads((real / "meta.json").read_text())
    defaults = (
        *("max_num_seqs", "max_num_batched_tokens", "max_model_len", "block_size"),
        *("enable_prefix_caching", "async_scheduling", "scheduler_reserve_full_isl"),
    )
    (copy / "meta.json").write_text(json.dumps(meta | dict.fromkeys(defaults)))
    found = compare_run(copy, calibrated).summary()
    assert found["errors"] == known["errors"]  # they were the defaults
    assert len(found["run"]["assumed"]) == len(defaults) - 1  # one has a default of any version
    (copy / "meta.json").write_text(json.dumps(meta | {"num_gpu_blocks": None}))
    unbounded = compare_run(copy, calibrated).summary()
    assert unbounded["preemptions"] == 0
    assert unbounded["errors"]["ttft_s"]["mean"] < -0.5  # nobody waits for memory any more


@pytest.mark.slow
@pytest.mark.parametrize("form", [None, "constant"])
def test_rtx_4090_run_is_within_bounds_with_a_fit(real: Path, form: str | None) -> None:
    summary = compare_run(real, find_calibration("rtx4090-llama-3.1-8b", ""), 0.33, form).summary()
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        errors = summary["errors"][name]
        assert abs(errors["mean"]) < 0.01, name
        assert max(abs(errors[q]) for q in ("p50", "p90", "p99")) < 0.025, name
    assert abs(summary["errors"]["makespan_s"]) < 0.01
    curves = summary["curves"]
    assert curves["running_mae"] < 1.5
    assert curves["waiting_mae"] < 2.0
    for phase in ("filling", "draining"):
        assert curves["phases"][phase]["kv_cache_usage_mae"] < 0.03, phase
    usage = curves["phases"]["saturated"]["kv_cache_usage_mean"]
    assert abs(usage["simulated"] - usage["recorded"]) < 0.01


def test_rtx_4090_run_is_within_bounds_with_the_roofline(real: Path) -> None:
    errors = compare_run(real, "roofline").summary()["errors"]
    assert abs(errors["e2e_s"]["mean"]) < 0.3


def test_shipped_rtx_4090_calibration_equals_a_refit_of_its_samples(real: Path) -> None:
    from kvsim.step_time.calibrated.samples import read_samples

    shipped = find_calibration("rtx4090-llama-3.1-8b", "")
    samples = read_samples(real / "samples.csv")
    assert shipped.samples.sha256 == samples.sha256
    again = fit(samples.samples(), resamples=2)
    assert again.label == shipped.fit.label
    for kind, errors in again.held_out.items():
        assert errors.mape == pytest.approx(shipped.fit.held_out[kind].mape, rel=1e-3)
    for tokens in (1, 128, 129, 2048):
        assert again.formula.token_cost.ps(tokens) == pytest.approx(
            shipped.fit.formula.token_cost.ps(tokens), rel=1e-5
        )
