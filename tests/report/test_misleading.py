"""Answers that users once misread. Those of sweeps are in tests/whatif/sweep/test_sweep.py."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kvsim.cli import app
from kvsim.memory.ledger import CLASSES
from kvsim.report.classes import LOOKS
from kvsim.report.words import WASTE_WORDS
from kvsim.scenario import Scenario, recipes
from kvsim.simulation import Simulation
from kvsim.workload.cuts import clip
from kvsim.workload.traces.record import TraceRow

# A pool given in blocks, which is too small for its requests.
SMALL_POOL = """
model = { name = "opt-125m" }
device = { name = "a100-40gb" }
memory = { num_gpu_blocks = 150 }
allocator = [{ kind = "paged", enable_prefix_caching = false }]
scheduler = { kind = "continuous", max_num_seqs = 64 }
step_time = { kind = "linear", base_us = 20000 }

[workload]
kind = "synthetic"
num_requests = 30
arrivals = { kind = "poisson", rate_per_s = 12.0 }
prompt = { kind = "uniform", min_tokens = 20, max_tokens = 300 }
output = { kind = "uniform", max_tokens = 300 }
"""


def answered(*arguments: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, [*arguments, "--json", "--jobs=1"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", WASTE_WORDS)
def test_words_for_a_ledger_class_contain_no_other_class_name(name: str) -> None:
    """The words for overprovisioned were once "was reserved for tokens that never came"."""
    others = {other for other in CLASSES if other != name}
    assert not others & set(WASTE_WORDS[name].split())


def test_explanation_of_overprovisioned_does_not_say_reserved() -> None:
    (meaning,) = (look.meaning for look in LOOKS if look.name == "overprovisioned")
    assert "reserved" not in meaning


@pytest.mark.parametrize("command", ["advise", "doctor"])
def test_choosing_a_flag_by_two_seeds_is_refused(command: str) -> None:
    done = CliRunner().invoke(app, [command, "chat", "--repeat", "2"])
    assert done.exit_code == 2
    assert "greater than or equal to 3" in " ".join(done.output.split())


def test_advise_keeps_the_pool_in_bytes_and_doctor_has_the_same_figure(tmp_path: Path) -> None:
    """The best setting was once fp8 with equally many blocks, which frees half of the pool and does
    not use it. The doctor printed -34 % for the flag, and advise -20 %.
    """
    path = tmp_path / "server.toml"
    path.write_text(SMALL_POOL)
    advice = answered("advise", str(path), "--repeat=3")
    pool = Simulation(Scenario.load(path), []).pool
    assert advice["taken"]["model.kv_cache_dtype"] == "fp8"
    served = advice["vllm_serve"]
    assert "--num-gpu-blocks-override 150 " in served["today"]  # as the scenario says it
    assert f"--kv-cache-memory-bytes {pool.capacity_bytes} " in served["best"]
    assert "--num-gpu-blocks-override" not in served["best"]
    (change,) = (each for each in advice["changes"] if each["value"] == "fp8")
    diagnosis = answered("doctor", str(path), "--repeat=3")
    (cure,) = (each for each in diagnosis["findings"] if each["name"] == "small-pool")
    assert cure["flags"] == "--kv-cache-dtype fp8"
    assert diagnosis["replicates"] == advice["replicates"]
    assert cure["effect"]["e2e_s.mean"]["mean"] == change["tested"]["mean"]


def test_a_sweep_of_loads_names_a_setting_and_runs_nothing_twice(tmp_path: Path) -> None:
    """The output was once "Best: doubling, rate_per_s = 1, block_size = 8", and two of three runs
    were repeats.
    """
    path = tmp_path / "server.toml"
    both = 'allocator = [{ kind = "max-buffer" }, { kind = "paged" }]'
    scenario = re.sub("allocator = .*", both, SMALL_POOL)
    path.write_text(scenario.replace("num_gpu_blocks = 150", "kv_cache_tokens = 6400"))
    axes = ["--vary=workload.arrivals.rate_per_s=2,12", "--vary=allocator.paged.block_size=8,16"]
    arguments = ["sweep", str(path), *axes, "--jobs=1", f"--out={tmp_path / 'out'}"]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    said = " ".join(done.stdout.split())
    heads = re.findall(r"Best in [^:]*: [^.;]*", said)
    assert len(heads) == 2
    assert all("rate_per_s" in head.partition(": ")[0] for head in heads)
    assert not any("rate_per_s" in head.partition(": ")[2] for head in heads)
    assert not any("max-buffer" in head and "block_size" in head for head in heads)
    settings = json.loads(
        CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False).stdout
    )["settings"]
    assert len(settings) == 2 * (1 + 2)


@pytest.mark.parametrize("name", recipes())
def test_every_recipe_has_a_question_that_its_report_answers(name: str) -> None:
    question = Scenario.load(name).question
    assert question is not None
    assert question.text.endswith(("?", ")"))
    assert question.measure


def test_recipe_output_begins_with_its_answer() -> None:
    changes = ["--set", "workload.num_requests=20"]
    done = CliRunner().invoke(app, ["run", "code-completion", *changes], catch_exceptions=False)
    first, _, _ = done.stdout.partition("\n\n")
    assert re.search(r"\d+ % of the requests were done within 300 ms", " ".join(first.split()))


def test_notes_with_a_count_of_zero_are_omitted() -> None:
    """A note was once "clipped 0 of 3,000 requests"."""
    rows = [TraceRow(1, 100, 20, 0)]
    assert clip(rows, 4096) == (rows, None)
    changes = ["--set", "workload.num_requests=20"]
    for name in ("chat", "code-completion"):
        done = CliRunner().invoke(app, ["run", name, *changes], catch_exceptions=False)
        assert not re.search(r"\b(clipped|resampled|drew) 0 of|\b0 of [\d,]+ requests", done.output)
