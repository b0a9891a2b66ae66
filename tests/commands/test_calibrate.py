"""`kvsim calibrate fit` on the command line."""

import json
import tomllib
from pathlib import Path

import pytest
from support.scenarios import steady
from typer.testing import CliRunner

from kvsim.cli import app
from kvsim.device import named_device
from kvsim.model import named_model
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_S
from kvsim.simulation import simulate
from kvsim.step import Chunk, StepShape
from kvsim.step_time import STEP_TIMES
from kvsim.step_time.calibrated.file import read_calibration
from kvsim.step_time.calibrated.fit import fit, held_out_errors
from kvsim.step_time.calibrated.samples import KINDS, read_samples
from kvsim.step_time.kernels.form import KernelOptions
from kvsim.step_time.options import Hardware


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    """Samples of 5 ms + 10 us per token, with a ripple that no form of g(T) can fit."""
    lines = ["prefill_tokens,prefill_prior_tokens,decode_seqs,decode_context_tokens,seconds"]
    for prefill in (0, 32, 100, 500):
        for seqs in (0, 1, 3, 9, 27):
            tokens = prefill + seqs
            if tokens:
                seconds = (5e-3 + 1e-5 * tokens) * (1 + 0.02 * (-1) ** (tokens % 7))
                lines.append(f"{prefill},0,{seqs},{50 * seqs},{seconds:.9f}")
    path = tmp_path / "steps.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_calibrate_fit_writes_file_plot_and_text(steps: Path, tmp_path: Path) -> None:
    out, parity = tmp_path / "my-gpu.json", tmp_path / "parity.html"
    names = ["--model", "acme/Cool-1B", "--device", "L40S"]
    files = ["--out", str(out), "--parity", str(parity)]
    result = CliRunner().invoke(app, ["calibrate", "fit", str(steps), *names, *files])
    assert result.exit_code == 0, result.output
    assert "Relative error of held-out steps" in result.stdout
    calibration = read_calibration(out)
    assert calibration.device == "l40s"
    assert calibration.model is not None
    assert calibration.model.name == "acme/Cool-1B"
    assert all(kind in parity.read_text() for kind in KINDS)


FACTS = {
    "device": {"name": "NVIDIA H100 80GB HBM3"},
    "software": {"torch": "2.11.0"},
    "backend": {"name": "kvsim", "attention": "triton"},
    "method": {"rounds": 2, "warnings": ["the clock fell"]},
    "ceilings": {"copy_bytes_per_s": 3e12},
    "sentinel": {"n": 9},
    "refused": 1,
    "model": {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "head_dim": 128,
              "intermediate": 14336, "vocab": 128256, "dtype": "bfloat16",
              "kv_bytes_per_token": 131072},
}  # fmt: skip


def test_calibrate_copies_the_facts_file_and_fits_no_held_out_rows(
    steps: Path, tmp_path: Path
) -> None:
    path, out = tmp_path / "quick.jsonl", tmp_path / "mine.json"
    rows = [row.model_dump(mode="json") for row in read_samples(steps).rows]
    slow = [row | {"seconds": 10 * row["seconds"], "source": "held-out"} for row in rows[::4]]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows + slow))
    command = ["calibrate", "fit", str(path), "--out", str(out)]
    (tmp_path / "quick.facts.json").write_text(json.dumps(FACTS))
    said = CliRunner().invoke(app, command)
    assert said.exit_code == 0, said.output
    assert "warning: the clock fell" in said.stdout
    found = read_calibration(out)
    assert found.fit == fit(read_samples(steps).samples())
    assert found.device == "h100"
    assert found.model is not None
    assert (found.model.num_layers, found.model.dtype) == (32, "bfloat16")
    assert found.measured is not None
    assert found.measured.backend == FACTS["backend"]
    held_out = found.measured.method["held_out_of_a_simulated_trace"]
    assert sum(errors["n"] for errors in held_out.values()) == len(slow)
    assert all(-0.93 < errors["bias"] < -0.87 for errors in held_out.values())
    for option in ("--model=llama-3.1-70b", "--device=l40s"):
        refused = CliRunner().invoke(app, [*command, option])
        assert isinstance(refused.exception, InputError)
    named = CliRunner().invoke(app, [*command, "--model", "llama-3.1-8b", "--device", "h100"])
    assert named.exit_code == 0, named.output
    (tmp_path / "quick.facts.json").write_text("{}")
    with pytest.raises(InputError, match="no facts of a measurement"):
        CliRunner().invoke(app, command, catch_exceptions=False)
    path.write_text("".join(json.dumps(row) + "\n" for row in slow))
    with pytest.raises(InputError, match="every sample is held out"):
        CliRunner().invoke(app, command, catch_exceptions=False)


def test_calibrate_fit_json_lists_the_tried_forms(steps: Path) -> None:
    arguments = ["calibrate", "fit", str(steps), "--form", "hinge", "--form", "table", "--json"]
    result = CliRunner().invoke(app, arguments)
    table = json.loads(result.stdout)
    assert {tried["form"] for tried in table["fit"]["tried"]} == {"hinge", "table"}
    assert "model" not in table
    assert len(table["samples"]["embedded"]) == 19


def test_unknown_calibration_form_error_lists_the_known_ones(steps: Path) -> None:
    result = CliRunner().invoke(app, ["calibrate", "fit", str(steps), "--form", "spline"])
    assert isinstance(result.exception, InputError)
    assert "--form: unknown token-cost form; got 'spline'" in str(result.exception)


def test_plotted_held_out_errors_match_the_summary(steps: Path) -> None:
    samples = read_samples(steps).samples()
    found = fit(samples, resamples=2)
    errors = held_out_errors(found, samples)
    worst = max(summary.max for summary in found.held_out.values())
    assert max(abs(error) for error in errors) == pytest.approx(worst, abs=1e-6)
    assert len(errors) == len(samples)


def measured_steps(path: Path, count: int, **numbers: float) -> Path:
    """Samples of Llama-3.1-8B on an H100, timed by kernels with these correction numbers."""
    hardware = Hardware(named_model("llama-3.1-8b"), named_device("h100"), engine="vllm")
    form = KernelOptions(**numbers).build(hardware)
    lines = ["prefill_tokens,prefill_prior_tokens,decode_seqs,decode_context_tokens,seconds"]
    for index in range(count):
        prefill, batch = (0, 40 * index + 1)[index % 3 == 0], 1 + 7 * index % 90
        chunks = (Chunk(prefill, 0),) if prefill else ()
        seconds = form.step_ps(StepShape(chunks, batch, 300 * batch)) / PS_PER_S
        lines.append(f"{prefill},0,{batch},{300 * batch},{seconds:.12f}")
    path.write_text("\n".join(lines) + "\n")
    return path


OVER = ["--step-time", "kernels", "--model", "llama-3.1-8b", "--device", "h100"]


def test_calibrate_recovers_phase_factors_and_a_constant_over_kernels(tmp_path: Path) -> None:
    numbers = {"scale": 1.3, "prompt_scale": 0.9, "overhead_us": 2000.0}
    samples = measured_steps(tmp_path / "steps.csv", 60, **numbers)
    out = tmp_path / "step_time.toml"
    run = ["calibrate", "fit", str(samples), *OVER, "--out", str(out)]
    told = CliRunner().invoke(app, [*run, "--json"])
    assert told.exit_code == 0, told.output
    answer = json.loads(told.stdout)
    assert answer["fitted"] == 30
    assert set(answer["held_out"]) == {"decode", "mixed"}
    assert all(each["mape"] < 1e-4 for each in answer["held_out"].values())
    assert all(each["bias"] < -0.1 for each in answer["before"].values())
    table = tomllib.loads(out.read_text())["step_time"]
    assert {name: table[name] for name in numbers} == pytest.approx(numbers, rel=1e-3)
    result = simulate(steady(5) | {"device": {"name": "h100"}, "step_time": table})
    assert result.scenario["step_time"]["prompt_scale"] == table["prompt_scale"]
    shown = CliRunner().invoke(app, run)
    assert "Relative error of the other steps" in shown.stdout
    assert 'kind = "kernels"' in shown.stdout


def test_fit_over_decode_steps_alone_leaves_the_time_of_prompts(tmp_path: Path) -> None:
    samples = measured_steps(tmp_path / "all.csv", 120, scale=0.5, overhead_us=9000.0)
    lines = samples.read_text().splitlines()
    decodes = [line for line in lines if line.startswith(("prefill", "0,"))]
    (tmp_path / "steps.csv").write_text("\n".join(decodes) + "\n")
    out = tmp_path / "step_time.toml"
    told = CliRunner().invoke(
        app, ["calibrate", "fit", str(tmp_path / "steps.csv"), *OVER, "--out", str(out)]
    )
    assert told.exit_code == 0, told.output
    table = tomllib.loads(out.read_text())["step_time"]
    assert "tuned" not in table
    hardware = Hardware(named_model("llama-3.1-8b"), named_device("h100"), engine="vllm")
    plain = KernelOptions().build(hardware)
    fitted = STEP_TIMES.parse(table, "step_time").build(hardware)
    prompt, decode = StepShape((Chunk(900, 0),), 4, 1200), StepShape((), 8, 2400)
    assert fitted.step_ps(prompt) == pytest.approx(plain.step_ps(prompt), rel=1e-3)
    assert fitted.step_ps(decode) == pytest.approx(plain.step_ps(decode) / 2 + 9e9, rel=1e-3)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ([*OVER, "--share", "0.01"], "--share: too few samples to fit on"),
        ([*OVER, "--share", "1"], "none to hold out"),
        ([*OVER, "--form", "hinge"], "--form: says how steps alone are fitted"),
        (["--step-time", "kernels"], "give --model and --device"),
        (["--step-time", "linear"], "not a step time that is composed of kernels; got linear"),
        (["--engine", "vllm"], "give --step-time kernels too"),
    ],
)
def test_unfittable_samples_over_kernels_are_a_one_line_error(
    tmp_path: Path, options: list[str], fault: str
) -> None:
    samples = measured_steps(tmp_path / "steps.csv", 20)
    result = CliRunner().invoke(app, ["calibrate", "fit", str(samples), *options])
    assert isinstance(result.exception, InputError)
    assert fault in str(result.exception)
