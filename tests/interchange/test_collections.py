"""Collections of published runs: each kind read from a folder of its own, and compared."""

import csv
import gzip
import json
import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvsim.cli import app
from kvsim.interchange.collections import COLLECTIONS
from kvsim.observed.trial import FIGURES, Trial
from kvsim.observed.vllm_meta import VllmMeta
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_MS, PS_PER_S
from kvsim.request import Request
from kvsim.step_time.linear import LinearForm
from kvsim.validate.runs.compare import read_trials
from kvsim.validate.runs.simulate import simulate_trial

STEP_MS = 10
STEPS = LinearForm(STEP_MS * PS_PER_MS, 0, 0, 0)


def write_csv(path: Path, rows: list[dict[str, object]]) -> None:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", newline="") as file:  # type: ignore[operator]
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def blis_training(folder: Path) -> None:
    answered = [
        {"id": at, "arrival_s": 2.0 * at, "prompt_tokens": 80, "output_tokens": 4 + at % 2,
         "ttft_s": 0.02, "e2e_s": 0.05, "failed": 0}
        for at in range(200)
    ]  # fmt: skip
    given_up = {"id": 200, "arrival_s": 30.5, "prompt_tokens": 0, "output_tokens": 0,
                "ttft_s": "", "e2e_s": "", "failed": 1}  # fmt: skip
    rows = sorted([*answered, given_up], key=lambda row: row["arrival_s"])
    write_csv(folder / "a.csv.gz", rows)
    run = {"file": "a.csv.gz", "model": "llama-3.1-8b", "gpu": "H100", "max_num_seqs": 8,
           "max_num_batched_tokens": 256, "max_model_len": 512, "num_gpu_blocks": 200,
           "ignore_eos": True, "data": {"shared_prefix": {
               "num_unique_system_prompts": 3, "system_prompt_len": 40, "output_len": 6,
           }}}  # fmt: skip
    (folder / "runs.json").write_text(json.dumps([run]))


def residency(folder: Path) -> None:
    write_csv(folder / "cell.csv.gz", [
        {"id": at, "scheduled_s": 0.1 * at, "send_s": 0.1 * at, "prompt_tokens": 50,
         "output_tokens": 5, "first_token_s": 0.1 * at + 0.02, "last_token_s": 0.1 * at + 0.08}
        for at in range(20)
    ])  # fmt: skip
    table = {"model": "qwen3-14b", "gpu": "H100-80GB", "vllm_version": "0.23.0",
             "max_num_seqs": "256 by a plan", "num_gpu_blocks": 500, "runs": [
                 {"file": "cell.csv.gz", "residency_token_seconds_total": 0.0}]}  # fmt: skip
    (folder / "runs.json").write_text(json.dumps(table))


def inferencex(folder: Path) -> None:
    write_csv(folder / "runs.csv", [
        {"label": f"cf_c2_b5_r{repeat}", "concurrency": 2, "num_prompts": 10,
         "mean_ttft_ms": 20 + repeat, "mean_tpot_ms": 10, "mean_e2e_ms": 100, "req_tput": 20,
         "kv_mean": 1.5, "running_mean": 2.0, "preemptions": 0}
        for repeat in (1, 2)
    ])  # fmt: skip
    lengths = {"input_lens": [60, 70, 80] * 4, "output_lens": [9, 8, 7] * 4}
    with gzip.open(folder / "gt_c2.json.gz", "wt") as file:
        json.dump(lengths, file)


def rate_stages(folder: Path) -> None:
    means = {"prompt_tokens_mean": 60, "output_tokens_mean": 5.0, "ttft_mean_s": 0.02,
             "e2e_mean_s": 0.06, "server_preemptions": 0, "requests": 30}  # fmt: skip
    write_csv(folder / "stages.csv", [
        {"variant": variant, "stage": 0, "requested_rate": 5.0, **means}
        for variant in ("vllm", "vllm+v0_engine")
    ])  # fmt: skip
    server = {"image": "vllm/vllm-openai:v0.11.0", "args": [
        "--max-num-seqs=16", "--max-model-len=512", "--no-enable-prefix-caching"]}  # fmt: skip
    (folder / "servers.json").write_text(json.dumps({"vllm": server}))


def all_at_once(folder: Path) -> None:
    row = {"id": "a1", "test": 1, "model": "Qwen2-7B-Instruct", "tp": 2,
           "gpu": "A100-80GB, two nodes", "available_kv_gib": 1.0, "kv_cache_tokens": "",
           "num_prompts": 12, "input_len": 64, "output_len": 8, "duration_s": 0.2,
           "total_input_tokens": 768, "total_output_tokens": 96, "ttft_mean_ms": 30,
           "tpot_mean_ms": 10}  # fmt: skip
    write_csv(folder / "runs.csv", [row])


def observed(folder: Path) -> None:
    (folder / "meta.json").write_text(json.dumps({"model": "llama-3.1-8b", "gpu": "H100"}))
    write_csv(folder / "requests.csv", [
        {"id": f"r{at}", "arrival_s": 0.1 * at, "prompt_tokens": 40, "output_tokens": 5,
         "first_token_s": 0.1 * at + 0.02, "last_token_s": 0.1 * at + 0.06}
        for at in range(9)
    ])  # fmt: skip


MAKERS: dict[str, Callable[[Path], None]] = {
    "blis-training": blis_training,
    "residency": residency,
    "inferencex": inferencex,
    "rate-stages": rate_stages,
    "all-at-once": all_at_once,
    "observed": observed,
}


@pytest.fixture(params=list(COLLECTIONS))
def made(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    MAKERS[request.param](tmp_path)
    return request.param, tmp_path


def test_a_folder_is_claimed_by_its_kind_alone(made: tuple[str, Path]) -> None:
    name, folder = made
    claims = [each for each in COLLECTIONS if COLLECTIONS.get(each).claims(folder)]
    assert claims == [name]
    assert not COLLECTIONS.get(name).claims(folder / "nothing")


def test_every_run_is_served_and_compared(made: tuple[str, Path]) -> None:
    _, folder = made
    for _, trial in read_trials([folder]):
        assert set(trial.recorded) <= set(FIGURES)
        found = simulate_trial(trial, STEPS)
        assert set(trial.recorded) <= set(found)
        assert all(math.isfinite(value) for value in found.values())
        # A step is 10 ms whatever it computes, so that is the gap between tokens but for mishaps.
        assert found["tpot_s"] == pytest.approx(STEP_MS / 1e3, rel=0.05)
        assert trial.assumed


def trial(requests: int, max_in_flight: int | None, gap_s: float = 0.0) -> Trial:
    meta = VllmMeta.parse({"model": "llama-3.1-8b", "gpu": "H100"}, "meta")
    stream = tuple(Request(f"r{at}", round(at * gap_s * PS_PER_S), 10, 5) for at in range(requests))
    return Trial("t", meta, stream, {}, max_in_flight)


@pytest.mark.parametrize("most", [1, 2, 5])
def test_a_client_keeps_so_many_in_flight(most: int) -> None:
    found = simulate_trial(trial(20, most), STEPS)
    assert found["running"] == pytest.approx(most, rel=0.1)
    alone = simulate_trial(trial(1, most), STEPS)
    # Nobody waits for memory or a slot: each takes as long as alone, `most` side by side.
    assert found["e2e_s"] == pytest.approx(alone["e2e_s"], rel=0.25)
    assert found["makespan_s"] == pytest.approx(20 / most * found["e2e_s"], rel=0.05)


def test_a_client_with_room_sends_at_its_times() -> None:
    waits = simulate_trial(trial(10, 10, gap_s=1.0), STEPS)
    free = simulate_trial(trial(10, None, gap_s=1.0), STEPS)
    assert waits == pytest.approx(free)


def test_what_came_before_the_first_gave_up_is_compared(tmp_path: Path) -> None:
    blis_training(tmp_path)
    ((_, found),) = read_trials([tmp_path])
    assert len(found.requests) == 167 == len(found.counted or ()) + 1  # until 330.5 s
    assert {request.output_tokens for request in found.requests} == {6}
    starts = {request.prompt_runs[0] for request in found.requests if request.prompt_runs}
    assert starts == {(0, 40), (10**6, 40), (2 * 10**6, 40)}
    assert any("clients gave up" in text for text in found.assumed)


def test_repeats_are_averaged_and_what_the_engine_lacks_is_left_out(tmp_path: Path) -> None:
    for maker in (inferencex, rate_stages):
        (tmp_path / maker.__name__).mkdir()
        maker(tmp_path / maker.__name__)
    names = [(collection, one.name) for collection, one in read_trials([tmp_path])]
    assert names == [("inferencex", "cf_c2_b5"), ("rate_stages", "vllm at 5/s")]
    first = next(one for _, one in read_trials([tmp_path]))
    assert first.recorded["ttft_s"] == pytest.approx(0.0215)


def test_the_command(tmp_path: Path) -> None:
    residency(tmp_path)
    run = CliRunner().invoke
    listed = run(app, ["validate", "runs", str(tmp_path), "--list"])
    assert listed.exit_code == 0
    assert "cell, 20 requests" in listed.stdout
    told = run(app, ["validate", "runs", str(tmp_path), "--json", "--set", "layer_us=0"])
    (row,) = json.loads(told.stdout)
    assert row["refused"] is None
    assert row["errors"]["tpot_s"] == pytest.approx(
        row["simulated"]["tpot_s"] / row["recorded"]["tpot_s"] - 1
    )
    slower = run(app, ["validate", "runs", str(tmp_path), "--json"])
    assert json.loads(slower.stdout)[0]["simulated"]["tpot_s"] > row["simulated"]["tpot_s"]
    shown = run(app, ["validate", "runs", str(tmp_path), "--out", str(tmp_path / "out")])
    assert shown.exit_code == 0
    assert "cell" in (tmp_path / "out" / "table.md").read_text()
    assert json.loads((tmp_path / "out" / "runs.json").read_text())[0]["name"] == "cell"


@pytest.mark.parametrize(
    ("spoil", "options", "fault"),
    [
        (lambda folder: None, ["--set", "layer_us"], "--set: not of the form KEY=VALUE"),
        (lambda folder: None, ["--set", "speed=3"], "--set.speed: unknown key"),
        (lambda folder: (folder / "runs.json").unlink(), [], "no recorded runs that kvsim reads"),
        (lambda folder: (folder / "cell.csv.gz").unlink(), [], "cell.csv.gz: cannot read it"),
        (
            lambda folder: (folder / "cell.csv.gz").write_bytes(b"no gzip"),
            [],
            "cell.csv.gz: cannot read it",
        ),
        (
            lambda folder: write_csv(folder / "cell.csv.gz", [{"scheduled_s": "soon"}]),
            [],
            "not a number",
        ),
    ],
)
def test_what_is_wrong_is_one_line(
    tmp_path: Path, spoil: Callable[[Path], object], options: list[str], fault: str
) -> None:
    residency(tmp_path)
    spoil(tmp_path)
    done = CliRunner().invoke(app, ["validate", "runs", str(tmp_path), *options])
    assert isinstance(done.exception, InputError)
    assert fault in str(done.exception)
    assert "\n" not in str(done.exception)


def test_a_run_that_cannot_be_simulated_is_named(tmp_path: Path) -> None:
    observed(tmp_path)
    (tmp_path / "meta.json").write_text(json.dumps({"model": "acme/Cool-1B", "gpu": "H100"}))
    told = CliRunner().invoke(app, ["validate", "runs", str(tmp_path), "--json"])
    (row,) = json.loads(told.stdout)
    assert row["errors"] == {}
    assert "acme/Cool-1B" in row["refused"]


# --- the public ones ------------------------------------------------------------------------------


def test_every_public_collection_is_read() -> None:
    root = os.environ.get("KVSIM_REAL_RUNS_DIR")
    if root is None:
        pytest.skip("KVSIM_REAL_RUNS_DIR names no folder of recorded runs")
    found: dict[str, int] = {}
    for collection, one in read_trials([Path(root)]):
        found[collection] = found.get(collection, 0) + 1
        assert one.requests
        assert one.recorded
    missing = {"blis-training-h100", "residency-h100-qwen3-14b"} - set(found)
    if missing:
        pytest.skip(f"no {', '.join(sorted(missing))} in KVSIM_REAL_RUNS_DIR")
    assert found["blis-training-h100"] == 8
    assert found["residency-h100-qwen3-14b"] == 5


def test_an_overloaded_h100_holds_as_many_tokens_as_it_did() -> None:
    """The pool decides that, not the step times."""
    root = os.environ.get("KVSIM_REAL_RUNS_DIR")
    folder = Path(root or "") / "residency-h100-qwen3-14b"
    if root is None or not folder.is_dir():
        pytest.skip("no residency-h100-qwen3-14b in KVSIM_REAL_RUNS_DIR")
    told = CliRunner().invoke(app, ["validate", "runs", str(folder), "--json"])
    errors = {row["name"]: row["errors"] for row in json.loads(told.stdout)}
    assert abs(errors["w7_agg18"]["resident_tokens"]) < 0.01
    assert all(abs(row["e2e_s"]) < 0.2 for row in errors.values())


def test_every_run_can_be_examined(made: tuple[str, Path]) -> None:
    """`kvsim doctor` takes a run of each kind for what it is: a server, and what it really did."""
    name, folder = made
    asked = ["doctor", str(folder), "--json", "--requests", "100", "--repeat", "2", "--jobs", "1"]
    result = CliRunner().invoke(app, asked, catch_exceptions=False)
    answer = json.loads(result.stdout)
    answers = [answer] if name == "observed" else answer
    assert answers
    for each in answers:
        assert "refused" not in each
        assert each["words"]
        assert {"TTFT, mean", "TPOT, mean"} <= {one["name"] for one in each["real"]}
