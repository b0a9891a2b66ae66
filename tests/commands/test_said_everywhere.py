"""Names of choices in the option reference, drafters given by path, and progress lines."""

import json
import re
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvsim.cli import app
from kvsim.commands import progress
from kvsim.engine.policies.victims import VICTIMS
from kvsim.scenario import Scenario, load_tables
from kvsim.simulation import Simulation

DRAFTER = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256,
    "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 1000, "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}  # fmt: skip


def told(*arguments: str) -> str:
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_options_reference_lists_every_preemption_victim() -> None:
    page = told("options", "--markdown")
    for name in VICTIMS:
        assert f'"{name}"' in page
    assert not re.search(r"\| `victim` \| table \|", page)


@pytest.mark.parametrize("form", ["file", "folder"])
def test_drafter_is_found_by_its_path(tmp_path: Path, form: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(DRAFTER))
    path = tmp_path / "config.json" if form == "file" else tmp_path
    asked = ("memory", "qwen3-8b", "--device", "h100", "--json")
    with_it = json.loads(told(*asked, "--drafter", str(path), "--num-speculative-tokens", "2"))
    assert with_it["drafter"]["bytes_per_token"] == 2 * 2 * 2 * 64 * 2  # K and V


@pytest.mark.parametrize("drafter", ["config.json", "mtp"])
def test_drafter_path_is_relative_to_the_scenario_file(tmp_path: Path, drafter: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(DRAFTER))
    (tmp_path / "mtp").mkdir()
    table = load_tables("chat")[0]
    table["model"] = {"name": "qwen3-8b", "max_model_len": 4096}
    table["memory"] = {"drafter": drafter, "num_speculative_tokens": 2}
    first = Simulation(Scenario.from_table(table, tmp_path), [])
    stored = first.resolved()
    assert Path(stored["memory"]["drafter"]).is_absolute() == (drafter != "mtp")
    again = Simulation(Scenario.from_table(stored, Path("/")), [])
    assert again.pool == first.pool
    plain = Simulation(Scenario.from_table(table | {"memory": {}}, tmp_path), [])
    assert first.pool.capacity_bytes < plain.pool.capacity_bytes


def test_long_command_prints_progress_lines_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.002)
    with progress.progress(["paged", "radix"]) as moved:
        moved("paged", 24, 1000)
        time.sleep(0.05)  # one long step, and the lines go on
    said = capsys.readouterr().err.splitlines()
    assert len(said) > 2
    assert said[-1] == "paged (1 of 2): 24 of 1,000 requests (2 %), 0 s"
    with progress.bar("points") as advance:
        advance(3, 40)
        time.sleep(0.05)
    assert capsys.readouterr().err.splitlines()[-1] == "points: 3 of 40, 0 s"
    time.sleep(0.01)
    assert capsys.readouterr().err == ""  # the end of the block is the last of the lines
    words = ["cache", "chat", "--policies", "--set", "workload.num_requests=40", "--json"]
    found = []
    for jobs, said in (
        ("1", r"policy \d of \d+, under \w+: \d+ of 40 requests, \d+ s"),
        ("2", r"\d of \d+ eviction"),
    ):
        done = CliRunner().invoke(app, [*words, "--jobs", jobs])
        assert done.exit_code == 0, done.output
        assert re.search(said, done.stderr)
        found.append(json.loads(done.stdout))
    assert found[0] == found[1]
