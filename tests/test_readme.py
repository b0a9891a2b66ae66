"""Figures of docs/accuracy.md equal those of the reports, and its commands and README's exist."""

import json
import re
import shlex
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from typer.main import get_command

from kvsim.cli import app

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
ACCURACY = (ROOT / "docs/accuracy.md").read_text()
STAND_INS = {"SCENARIO": "chat", "DIR": "out", "FILE": "kernels", "A.B=1,2,4": "seed=1,2"}


def row(claim: str) -> str:
    """The line of the evidence table for the claim that begins with this text."""
    (line,) = (line for line in ACCURACY.splitlines() if line.startswith(f"| {claim}"))
    return line


def reported(page: str, first: str) -> list[str]:
    """The cells of a row of a page in reports/."""
    text = (ROOT / "reports" / page / "README.md").read_text()
    (line,) = {line for line in text.splitlines() if line.startswith(f"| {first} |")}
    return [cell.strip().removesuffix(" %") for cell in line.strip("| ").split("|")][1:]


def read(name: str) -> Any:
    return json.loads((ROOT / "reports" / name).read_text())


PASTED = re.findall(r"`(kvsim [^`]+)`|^\$ (kvsim [^#\n]+)", README + ACCURACY, re.MULTILINE)


@pytest.mark.parametrize("line", sorted({(one or other).strip() for one, other in PASTED}))
def test_every_command_of_the_readme_can_be_pasted(line: str) -> None:
    command, words = get_command(app), shlex.split(line)[1:]
    words = [STAND_INS.get(word, word) for word in words]
    while hasattr(command, "commands") and words and words[0] in command.commands:
        command, words = command.commands[words[0]], words[1:]
    if words and words != ["--help"]:
        command.make_context(line, words)  # raises on an option or an argument that is not there


def test_readme_is_short() -> None:
    """README has at most 600 words including tables and commands, five minutes of reading."""
    assert len(README.split()) <= 600


def test_readme_figures_on_pools_equal_the_report() -> None:
    logs, middle, most, worst = reported("startup-logs", "error of the pool")
    line = row("Pool sizes equal")
    assert f"{logs} of them complete enough" in line
    assert f"median error {float(middle):.1f} %" in line
    assert f"90 % within {float(most):.1f} %, worst {worst} %" in line


def test_readme_figures_of_the_calibrated_run_equal_the_report() -> None:
    unfitted = read("real-run/comparison.json")[0]
    assert unfitted["fit"] is None
    errors = [each["mean"] for each in unfitted["errors"].values() if isinstance(each, dict)]
    line = row("A calibrated run")
    (within,) = re.findall(r"every mean within ([\d.]+) %", line)
    assert max(abs(each) for each in errors) <= float(within) / 100
    (points,) = re.findall(r"memory within (\d+) points", line)
    assert unfitted["curves"]["kv_cache_usage_mae"] <= int(points) / 100
    assert f"{unfitted['run']['requests']} requests" in line


def test_readme_figures_on_measured_points_equal_the_report() -> None:
    rows, middle, mean, _, _, first, first_mean, _, _ = reported("points", "all")
    line = row("Seconds of composed kernels")
    answered, asked = (int(number.replace(",", "")) for number in rows.split(" of "))
    assert f"{asked:,} judged points" in line
    assert f"{answered / asked:.0%}".replace("%", " %") + " run;" in line
    assert f"{middle} % (median error, mean {mean} %)" in line
    assert f"first token {float(first):.0f} % ({float(first_mean):.0f} %)" in line


def test_readme_figures_of_published_runs_equal_the_report() -> None:
    """Figures of the table by GPU; runs on several nodes have separate rows."""
    text = (ROOT / "reports/real-runs/README.md").read_text()
    band = re.findall(r"^\| ([A-Z][^|]+) \| (\d+) \| (\d+) \|[^|]+\| ([+-]\d+) %", text, re.M)
    line = row("Uncalibrated runs")
    assert f"{sum(int(runs) for _, _, runs, _ in band)} published runs" in line
    errors = sorted(int(error) for *_, error in band)
    assert f"{errors[0]:+d} to {errors[-1]:+d} % by GPU" in line
    number = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
    near = sum(abs(error) <= 10 for error in errors)
    assert f"{number[near]} of {number[len(errors)]} within 10 %" in line


def test_readme_medians_by_gpu_equal_those_of_single_node_runs() -> None:
    """Each median of the table is recomputed from the errors of its runs."""
    found: dict[tuple[str, int], list[float]] = {}
    for run in read("real-runs/runs.json"):
        error = run["errors"].get("tpot_s") if run["errors"] else None
        if error is not None and "nodes" not in run["name"]:
            found.setdefault((run["gpu"], run["tensor_parallel_size"]), []).append(error)
    text = (ROOT / "reports/real-runs/README.md").read_text()
    band = re.findall(r"^\| ([A-Z][^|]+) \| (\d+) \| (\d+) \|[^|]+\| ([+-]\d+) %", text, re.M)
    for gpu, size, runs, error in band:
        errors = found.pop((gpu, int(size)))
        assert len(errors) == int(runs)
        assert round(100 * median(errors)) == int(error)
    assert not found


def test_readme_figures_on_the_papers_trace_equal_the_report() -> None:
    (draw,) = (
        each for each in read("published/checks.json")["draws"] if each["source"].endswith("ure 2")
    )
    line = row("The PagedAttention paper")
    assert f"p = {draw['p']:.2f}" in line
    assert f"{draw['streams']} simulated traces" in line


def test_readme_hit_rates_equal_the_hit_rate_page() -> None:
    """tests/whatif/cache_curve compares the page's figures with the trace."""
    page = (ROOT / "docs/explain-a-hit-rate.md").read_text()
    (shown,) = re.findall(r"```text\ncache, tokens(.*?)\nOf ", page, re.S)
    figures = re.findall(r"([\d.]+) %", shown)
    assert f"{', '.join(figures)} % against its" in row("Prefix-cache hit rates")
