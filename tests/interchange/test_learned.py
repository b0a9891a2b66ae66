"""A benchmark imported with a command fits the step times of its server, and says so."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.import_samples import vllm_command
from typer.testing import CliRunner

from kvsim.cli import app
from kvsim.plumbing.reading.toml_text import loads
from kvsim.report.remarks import remarks
from kvsim.simulation import simulate

USERS = 4


def invoke(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return " ".join(result.stdout.split())


def benchmark(tpot_ms: float, ttft_ms: float) -> dict[str, Any]:
    return {
        "backend": "vllm",
        "model_id": "facebook/opt-125m",
        "num_prompts": 40,
        "completed": 40,
        "date": "20001002-120100",
        "request_rate": "inf",
        "max_concurrency": USERS,
        "duration": 10.0,
        "total_input_tokens": 4000,
        "total_output_tokens": 2000,
        "request_throughput": 4.0,
        "mean_tpot_ms": tpot_ms,
        "mean_ttft_ms": ttft_ms,
    }


def imported(folder: Path, result: dict[str, Any], *more: object) -> tuple[Path, str]:
    bench, out = folder / "bench.json", folder / "mine.toml"
    bench.write_text(json.dumps(result))
    words = ("import", vllm_command(folder), bench, *more, "--device", "h100", "--out", out)
    return out, invoke(*words)


def tpot_ms(scenario: Path) -> float:
    mean = simulate(str(scenario)).runs[0].summary.tpot_s.mean
    assert mean is not None
    return 1e3 * mean


def test_import_fits_step_times_to_the_benchmark_unless_disabled(tmp_path: Path) -> None:
    plain, said = imported(tmp_path, benchmark(1.0, 20.0), "--no-fit")
    assert "fitted on your run" not in said
    assert "fitted_on" not in plain.read_text()
    before = tpot_ms(plain)
    measured = 1.5 * before
    fitted, said = imported(tmp_path, benchmark(measured, 20.0))
    assert f"fitted on your run ({USERS} users; holds for 1 to 12)" in said
    assert f"TPOT {measured:.3g} ms measured, " in said
    assert before < tpot_ms(fitted) < 1.1 * measured
    assert tpot_ms(fitted) == pytest.approx(measured, rel=0.08)


def test_result_with_fitted_step_times_says_so_in_a_remark(tmp_path: Path) -> None:
    fitted, _ = imported(tmp_path, benchmark(2.0, 20.0))
    said = " ".join(remarks(simulate(str(fitted))))
    assert "Step times were fitted on a run of this server" in said


def test_several_benchmarks_of_a_server_are_fitted_together(tmp_path: Path) -> None:
    plain, _ = imported(tmp_path, benchmark(1.0, 20.0), "--no-fit")
    before = tpot_ms(plain)
    folder = tmp_path / "results"
    folder.mkdir()
    for users, factor in ((1, 1.4), (USERS, 1.6)):
        result = {**benchmark(factor * before, 20.0), "max_concurrency": users}
        (folder / f"users-{users}.json").write_text(json.dumps(result))
    out = tmp_path / "both.toml"
    words = ("import", vllm_command(tmp_path), folder, "--device", "h100", "--out", out)
    said = invoke(*words)
    assert f"fitted on your runs (1 and {USERS} users; holds for 1 to 12)" in said
    one, four = (tmp_path / "both" / f"users-{users}.toml" for users in (1, USERS))
    fit = [loads(each.read_text())["step_time"] for each in (one, four)]
    assert fit[0] == fit[1]
    assert tpot_ms(four) == pytest.approx(1.6 * before, rel=0.1)


def test_benchmarks_of_several_servers_have_a_fit_each(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    for at, (name, tpot_ms) in enumerate((("facebook/opt-125m", 2.0), ("Qwen/Qwen3-8B", 9.0))):
        result = {**benchmark(tpot_ms, 20.0), "model_id": name}
        (folder / f"{at}.json").write_text(json.dumps(result))
    said = invoke("import", folder, "--device", "h100", "--out", tmp_path / "both.toml")
    assert said.count(f"fitted on your run ({USERS} users") == 2
    fits = [loads(each.read_text())["step_time"] for each in (tmp_path / "both").glob("*.toml")]
    assert fits[0] != fits[1]
