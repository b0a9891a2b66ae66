"""`kvsim calibrate fit`, as a user runs it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvsim.cli import app
from kvsim.plumbing.errors import InputError
from kvsim.step_time.calibrated.file import read_calibration
from kvsim.step_time.calibrated.fit import fit, held_out_errors
from kvsim.step_time.calibrated.samples import KINDS, read_samples


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    """Steps of 5 ms and 10 us a token, with a ripple no form knows."""
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


def test_a_file_a_plot_and_words(steps: Path, tmp_path: Path) -> None:
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


def test_json_alone(steps: Path) -> None:
    arguments = ["calibrate", "fit", str(steps), "--form", "hinge", "--form", "table", "--json"]
    result = CliRunner().invoke(app, arguments)
    table = json.loads(result.stdout)
    assert {tried["form"] for tried in table["fit"]["tried"]} == {"hinge", "table"}
    assert "model" not in table
    assert len(table["samples"]["embedded"]) == 19


def test_an_unknown_form_lists_the_known(steps: Path) -> None:
    result = CliRunner().invoke(app, ["calibrate", "fit", str(steps), "--form", "spline"])
    assert isinstance(result.exception, InputError)
    assert "--form: unknown token-cost form; got 'spline'" in str(result.exception)


def test_the_plotted_errors_are_those_summed_up(steps: Path) -> None:
    samples = read_samples(steps).samples()
    found = fit(samples, resamples=2)
    errors = held_out_errors(found, samples)
    worst = max(summary.max for summary in found.held_out.values())
    assert max(abs(error) for error in errors) == pytest.approx(worst, abs=1e-6)
    assert len(errors) == len(samples)
