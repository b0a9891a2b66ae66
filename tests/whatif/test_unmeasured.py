"""`kvsim measure`: the answers at half and double of each assumed number."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import kvsim
from kvsim.cli import app
from kvsim.whatif.unmeasured.assumption import scaled
from kvsim.workload.lengths import LENGTHS

LOAD = """
model = { name = "opt-125m" }
device = { name = "rtx-4090" }
memory = { kv_cache_tokens = 4096 }
allocator = [{ kind = "paged" }]
scheduler = { kind = "continuous", max_num_seqs = 8 }
step_time = { kind = "linear", base_us = 1000, decode_seq_us = 100, prefill_token_us = 20 }

[workload]
kind = "synthetic"
num_requests = 30
arrivals = { kind = "poisson", rate_per_s = 5 }
prefixes = [{ tokens = { kind = "fixed", tokens = 100 }, count = 3 }]
prompt = { kind = "uniform", min_tokens = 20, max_tokens = 60 }
output = { kind = "fixed", tokens = 40 }
"""


def asked(folder: Path, *options: str, load: str = LOAD) -> tuple[int, str]:
    (folder / "load.toml").write_text(load)
    found = CliRunner().invoke(
        app, ["measure", str(folder / "load.toml"), "--jobs", "1", *options], color=False
    )
    return found.exit_code, found.stdout + str(found.exception or "")


def data_of(folder: Path, *options: str) -> dict[str, Any]:
    code, text = asked(folder, "--json", *options)
    assert code == 0, text
    data: dict[str, Any] = json.loads(text)
    return data


@pytest.mark.parametrize(
    ("table", "double"),
    [
        ({"kind": "fixed", "tokens": 3}, 6),
        ({"kind": "uniform", "min_tokens": 10, "max_tokens": 30}, 40),
        ({"kind": "geometric", "mean": 25.0}, 50),
        ({"kind": "lognormal", "components": [{"mu": 5.0, "sigma": 0.5}]}, None),
        ({"kind": "grid", "name": "sharegpt-opt.output_tokens"}, None),
    ],
)
def test_doubled_distribution_has_twice_the_mean(table: dict[str, Any], double: float) -> None:
    import numpy as np

    of = [
        LENGTHS.parse(each, "output").draw(20_000, np.random.default_rng(0), Path()).mean()
        for each in (table, scaled(table, 2.0))
    ]
    assert of[1] / of[0] == pytest.approx(2, rel=0.02)
    if double is not None:
        assert of[1] == pytest.approx(double, rel=0.05)


def test_effect_at_half_equals_a_run_and_the_largest_is_first(
    tmp_path: Path,
) -> None:
    data = data_of(tmp_path, "--by", "e2e_p50")
    rows = {each["key"]: each for each in data["assumed"]}
    assert set(rows) == {
        *("workload.arrivals", "workload.prompt", "workload.output"),
        *("workload.prefixes.0.tokens", "workload.prefixes.0.count"),
    }
    moved = [each["moved"] for each in data["assumed"]]
    assert moved == sorted(moved, reverse=True)
    import tomllib

    table = tomllib.loads(LOAD)
    table["workload"]["output"]["tokens"] = 20
    (run,) = kvsim.simulate(table).runs
    assert rows["workload.output"]["half"] == run.summary.e2e_s.p50
    assert data["measure_first"][0] == data["assumed"][0]["key"] == "workload.output"
    assert "kvsim import mine bench.json --device GPU --out mine.toml" in data["commands"]


def test_measure_compares_two_settings_at_each_load(tmp_path: Path) -> None:
    data = data_of(tmp_path, "--by", "ttft_p99", "--vary", "scheduler.max_num_seqs=8,1")
    assert data["settings"] == ["scheduler.max_num_seqs=8", "scheduler.max_num_seqs=1"]
    rows = {each["key"]: each for each in data["assumed"]}
    assert data["described"] > 0  # max_num_seqs = 1 is slower, and less so with fewer arrivals
    assert rows["workload.arrivals"]["half"] < rows["workload.arrivals"]["double"]


@pytest.mark.parametrize(
    ("options", "load", "said"),
    [
        (("--vary", "scheduler.max_num_seqs=1,2,3"), LOAD, "needs two values"),
        (("--by", "speed"), LOAD, "unknown measure"),
        (
            (),
            LOAD[: LOAD.index("[workload]")] + '[workload]\nkind="trace"\npath="t.csv"',
            "a trace",
        ),
    ],
)
def test_invalid_measure_commands_are_refused(
    tmp_path: Path, options: tuple[str, ...], load: str, said: str
) -> None:
    (tmp_path / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,10,5\n")
    code, text = asked(tmp_path, *options, load=load)
    assert code != 0
    assert said in text


def test_run_of_a_generated_load_recommends_kvsim_measure(tmp_path: Path) -> None:
    (tmp_path / "load.toml").write_text(LOAD)
    found = CliRunner().invoke(app, ["run", str(tmp_path / "load.toml")], color=False)
    assert "kvsim measure" in found.stdout
