"""Every answer in seconds comes with the error range of 8 of 10 similar servers."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvsim.cli import app
from kvsim.simulation import simulate
from kvsim.step_time.kernels.expected import interval_80, interval_in_brief, interval_words

CHANGES = {
    "workload.num_requests": 30,
    "allocator": '[{kind="paged"}]',
    "model.name": "llama-3.1-8b",
    "device.name": "h100",
    "step_time": '{kind="auto"}',
}
SETS = [word for key, value in CHANGES.items() for word in ("--set", f"{key}={value}")]
WORDS = ("chat", *SETS)


def test_run_sweep_and_capacity_print_the_same_error_interval(tmp_path: Path) -> None:
    run = CliRunner().invoke(app, ["run", *WORDS, "--json"])
    interval = json.loads(run.stdout)["interval"]
    assert interval == interval_80("kind")
    assert interval["tpot_s"][0] < 1 < interval["tpot_s"][1]
    plain = " ".join(CliRunner().invoke(app, ["run", *WORDS]).stdout.split())
    assert interval_in_brief("kind") in plain
    words = ("capacity", *WORDS, "--slo", "tpot_s.mean=1", "--repeat", "1", "--jobs", "1")
    answer = CliRunner().invoke(app, [*words, "--json"])
    assert json.loads(answer.stdout)["interval"] == interval
    said = " ".join(CliRunner().invoke(app, [*words, "--verbose"]).stdout.split())
    assert interval_words("kind") in said
    assert "with one load of it measured, 8 of 10 of its other loads" in said
    short = " ".join(CliRunner().invoke(app, words).stdout.split())
    assert interval_in_brief("kind") in short
    vary = ("--vary", "scheduler.max_num_seqs=64", "--repeat", "1", "--jobs", "1")
    swept = CliRunner().invoke(app, ["sweep", *WORDS, *vary, "--out", str(tmp_path), "--json"])
    assert json.loads(swept.stdout)["interval"] == interval


@pytest.mark.parametrize("kind", ["roofline", "linear"])
def test_step_times_without_measured_servers_have_no_error_interval(kind: str) -> None:
    table = {
        "model": {"name": "llama-3.1-8b"},
        "device": {"name": "h100"},
        "allocator": [{"kind": "paged"}],
        "step_time": {"kind": kind} | ({"base_us": 10.0} if kind == "linear" else {}),
        "workload": {
            "kind": "synthetic",
            "num_requests": 2,
            "arrivals": {"kind": "at-once"},
            "prompt": {"kind": "fixed", "tokens": 10},
            "output": {"kind": "fixed", "tokens": 3},
        },
    }
    assert "interval" not in simulate(table).summary()
