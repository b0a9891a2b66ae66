"""What a user has to find: names of a choice in the options, a drafter by its path, progress."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvsim.cli import app
from kvsim.commands import answers
from kvsim.commands.progress import TextLines
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


def test_the_options_name_every_victim() -> None:
    page = told("options", "--markdown")
    for name in VICTIMS:
        assert f'"{name}"' in page
    assert not re.search(r"\| `victim` \| table \|", page)


@pytest.mark.parametrize("form", ["file", "folder"])
def test_a_drafter_is_found_by_its_path(tmp_path: Path, form: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(DRAFTER))
    path = tmp_path / "config.json" if form == "file" else tmp_path
    asked = ("memory", "qwen3-8b", "--device", "h100", "--json")
    with_it = json.loads(told(*asked, "--drafter", str(path), "--num-speculative-tokens", "2"))
    assert with_it["drafter"]["bytes_per_token"] == 2 * 2 * 2 * 64 * 2  # K and V


@pytest.mark.parametrize("drafter", ["config.json", "mtp"])
def test_a_drafters_file_beside_a_scenario_is_found_from_anywhere(
    tmp_path: Path, drafter: str
) -> None:
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


def test_a_long_command_says_how_far_it_is_where_no_terminal_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0.0, 1.0, 6.0, 7.0, 12.0])
    lines = TextLines(5.0, lambda: next(clock))
    for text in "abcd":
        lines.show(text)
    assert capsys.readouterr().err == "b, 6 s\nd, 12 s\n"
    monkeypatch.setattr(answers, "LINE_EVERY_S", 0.0)
    words = ["cache", "chat", "--policies", "--set", "workload.num_requests=40", "--json"]
    found = []
    for jobs, said in ("1", r"under lru: \d+ of 40 requests, \d+ s"), ("2", r"2 of \d+ eviction"):
        done = CliRunner().invoke(app, [*words, "--jobs", jobs])
        assert done.exit_code == 0, done.output
        assert re.search(said, done.stderr)
        found.append(json.loads(done.stdout))
    assert found[0] == found[1]
