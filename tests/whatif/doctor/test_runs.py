"""`kvsim doctor` on recorded runs: measurements next to the simulation, and their differences."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kvsim.cli import app
from kvsim.interchange.imported import import_sources, write_imported
from kvsim.observed.folder import ObservedRun
from kvsim.observed.rows import ObservedRequest
from kvsim.observed.writing import Recording, write_recording
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_S
from kvsim.request import Request
from kvsim.step_time.correction import NONE
from kvsim.validate.run.replay import replay
from kvsim.validate.run.step_times import step_times_of
from kvsim.whatif.doctor.real import Beside

META = {
    "model": "llama-3.1-8b",
    "gpu": "l40s",
    "vllm_version": "0.33.0",
    "max_model_len": 4096,
    "block_size": 16,
    "num_gpu_blocks": 4000,
    "max_num_seqs": 2,
    "max_num_batched_tokens": 2048,
    "enable_prefix_caching": True,
    "async_scheduling": False,
}
QUICK = ["--repeat", "3", "--jobs", "1", "--json"]


def requests() -> list[Request]:
    """Three requests per second, each with one of two system prompts of 320 tokens."""
    return [
        Request(
            f"r{at}",
            at * PS_PER_S // 3,
            400,
            60,
            prompt_runs=((at % 2 * 1000, 320), (10_000 + 100 * at, 80)),
        )
        for at in range(120)
    ]


def record(folder: Path, slower: float = 1.0) -> Path:
    """Write a recorded run of a server that took `slower` times the simulated time, with the same
    hits.
    """
    rows = [
        ObservedRequest(
            id=one.id,
            arrival_s=one.arrival_ps / PS_PER_S,
            prompt_tokens=one.prompt_tokens,
            output_tokens=one.output_tokens,
            first_token_s=one.arrival_ps / PS_PER_S + 1,
            last_token_s=one.arrival_ps / PS_PER_S + 2,
        )
        for one in requests()
    ]
    write_recording(folder, Recording(META, list(zip(rows, requests(), strict=True))))
    run = ObservedRun.read(folder)
    done = replay(run, step_times_of(run, "auto").corrected(NONE))
    found = [
        row.model_copy(
            update={
                "first_token_s": row.arrival_s + slower * (first / PS_PER_S - row.arrival_s),
                "last_token_s": row.arrival_s + slower * (last / PS_PER_S - row.arrival_s),
                "cached_tokens": cached,
            }
        )
        for row, first, last, cached in zip(
            rows, done.first_token_ps, done.last_token_ps, done.cached_tokens, strict=True
        )
    ]
    write_recording(folder, Recording(META, list(zip(found, requests(), strict=True))))
    return folder


def examined(*arguments: str) -> Any:
    result = CliRunner().invoke(app, ["doctor", *arguments, *QUICK], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_doctor_reproduces_a_simulated_run_and_names_its_cause(tmp_path: Path) -> None:
    answer = examined(str(record(tmp_path / "served")))
    beside = {each["name"]: each for each in answer["real"]}
    for name in ("prompt tokens found", "TTFT, mean", "TPOT, mean", "E2E, mean", "makespan"):
        assert beside[name]["difference"] == pytest.approx(0.0, abs=1e-6), name
    found = beside["prompt tokens found"]
    assert found["real"] == pytest.approx(118 * 320 / (120 * 400))
    assert found["low"] <= 0 <= found["high"]
    assert answer["causes"] == ["too-few-sequences"]
    assert answer["run"] == "served"


def test_doctor_does_not_explain_a_server_much_slower_than_simulated(tmp_path: Path) -> None:
    answer = examined(str(record(tmp_path / "served", slower=4.0)))
    said = " ".join(answer["words"])
    assert "the real server's TPOT, mean is 4.0 times that of the simulated one" in said
    assert "something outside of what is simulated" in said


def test_doctor_pairs_a_scenario_with_its_imported_run(tmp_path: Path) -> None:
    """For NAME.toml it finds NAME.run in the same folder, and for NAME.run NAME.toml."""
    served = record(tmp_path / "served")
    scenario = tmp_path / "server.toml"
    write_imported(import_sources([str(served)], {}, scenario), scenario)
    by_scenario, by_run = (examined(str(scenario.with_suffix(each))) for each in (".toml", ".run"))
    assert by_scenario == by_run
    assert by_scenario["run"] == "server.run"
    assert by_scenario["causes"] == ["too-few-sequences"]
    assert {each["name"] for each in by_scenario["real"]} >= {"TTFT, mean", "E2E, mean"}


def test_measured_differences_are_relative_except_for_shares() -> None:
    assert Beside("", "s", 2.0, 3.0).difference == 0.5
    assert Beside("", "share", 0.5, 0.25).difference == -0.25
    assert Beside("", "count", None, 7.0).difference is None
    assert Beside("", "count", 0.0, 7.0).difference is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["RUN", "--allocator", "paged"], r"--allocator"),
        (["RUN", "--set", "seed=1"], r"a real run is what it was"),
        (["RUN", "--only", "x"], r"--only.*collection|collection.*--only"),
        (["RUN", "--step-time", "no-such"], r"--step-time.*no-such"),
        (["EMPTY"], r"no recorded runs"),
    ],
)
def test_bad_input_is_a_one_line_error(tmp_path: Path, arguments: list[str], said: str) -> None:
    (tmp_path / "EMPTY").mkdir()
    record(tmp_path / "RUN")
    place, *rest = arguments
    with pytest.raises(InputError) as caught:
        examined(str(tmp_path / place), *rest)
    assert re.search(said, str(caught.value)), caught.value
    assert "\n" not in str(caught.value)


def test_doctor_blames_the_small_pool_of_the_rtx_4090_run() -> None:
    root = os.environ.get("KVSIM_REAL_RUNS_DIR")
    path = Path(root or "") / "rtx4090_llama-3.1-8b"
    if root is None or not path.is_dir():
        pytest.skip("KVSIM_REAL_RUNS_DIR has no recorded run of an RTX 4090")
    answer = examined(str(path))
    assert answer["causes"][0] == "small-pool"
    usage = next(each for each in answer["real"] if each["name"].startswith("KV cache"))
    assert abs(usage["difference"]) < 0.05
