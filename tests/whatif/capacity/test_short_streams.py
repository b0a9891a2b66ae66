"""Warnings about a stream that ends before the server is full, which cannot show its capacity."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.chats import chats
from typer.testing import CliRunner

from kvsim.cli import app
from kvsim.plumbing.toml import to_toml
from kvsim.whatif.capacity.short_streams import LEAST_LASTS, MARGIN, long_enough, short_stream
from kvsim.whatif.task import make_task, run_task

Answer = dict[str, Any]


def found(table: dict[str, Any], folder: Path, *more: str) -> Answer:
    (folder / "short.toml").write_text(to_toml(table))
    arguments = [str(folder / "short.toml"), "--slo", "ttft_s.p99=2", "--repeat", "1", "--json"]
    result = CliRunner().invoke(
        app, ["capacity", *arguments, "--jobs", "1", *more], catch_exceptions=False
    )
    answer: Answer = json.loads(result.stdout)
    return answer


def doubts(answer: Answer) -> list[str]:
    return [each for each in answer["sentences"] if each.startswith("This cannot be told")]


@pytest.fixture
def brief(tables: Any) -> dict[str, Any]:
    """Sixty chats for a server that holds hundreds, so that no rate can overload it."""
    table = chats(tables, memory={"kv_cache_tokens": 200_000})
    table["workload"]["num_requests"] = 60
    return table


def test_short_stream_warning_names_the_number_of_requests_needed(
    brief: dict[str, Any], tmp_path: Path
) -> None:
    answer = found(brief, tmp_path)
    (doubt,) = doubts(answer)
    (needed,) = re.findall(r"--set workload\.num_requests=(\d+)", doubt)
    longer = found(brief, tmp_path, "--set", f"workload.num_requests={needed}")
    assert not doubts(longer)
    assert longer["answers"][0]["mean"] < 0.7 * answer["answers"][0]["mean"]


def test_rate_of_a_long_stream_gets_no_warning(tables: Any, tmp_path: Path) -> None:
    table = chats(tables)
    table["workload"]["num_requests"] = 1000
    assert not doubts(found(table, tmp_path))


def test_fleet_answer_uses_a_long_enough_stream(brief: dict[str, Any], tmp_path: Path) -> None:
    highest = found(brief, tmp_path)["answers"][0]["mean"]
    answer = found(brief, tmp_path, "--rate", f"{0.95 * highest:.0f}")
    (doubt,) = doubts(answer)  # of the one replica, not of the fleet
    assert "at this rate" in doubt
    (fleet,) = answer["replicas"]
    assert fleet["short"] is None
    assert fleet["num"] > fleet["divided"] == 1


@pytest.mark.parametrize(
    "question", [["--find", "max_num_seqs", "--values", "64,256"], ["--find", "gpus"]]
)
def test_every_capacity_question_warns_of_short_streams(
    question: list[str], brief: dict[str, Any], tmp_path: Path
) -> None:
    if question[-1] == "gpus":
        question = [*question, "--rate", "60"]
    (doubt,) = doubts(found(brief, tmp_path, *question))
    assert "workload.num_requests=" in doubt


def test_long_enough_stream_lasts_ten_stays_by_littles_law(brief: dict[str, Any]) -> None:
    rate = float(brief["workload"]["arrivals"]["rate_per_s"])
    (row,) = run_task(make_task({**brief, "seed": 0}, Path())).rows
    enough = long_enough(brief, Path(), row, rate)
    assert enough == pytest.approx(MARGIN * LEAST_LASTS * rate * row["e2e_s.mean"], abs=1)
    for num, is_short in ((enough // 4, True), (enough, False)):
        table = {**brief, "workload": {**brief["workload"], "num_requests": num}}
        assert (short_stream(table, Path(), row) is not None) == is_short


def test_closed_loop_gets_no_short_stream_warning(brief: dict[str, Any]) -> None:
    closed = {"kind": "closed-loop", "num_users": 5, "think": {"kind": "fixed", "seconds": 0.0}}
    table = {**brief, "workload": {**brief["workload"], "arrivals": closed}}
    (row,) = run_task(make_task({**table, "seed": 0}, Path())).rows
    assert short_stream(table, Path(), row) is None
