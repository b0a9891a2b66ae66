"""Differences between recorders that are accepted: rows of a stalled queue, unused step numbers."""

import json
from pathlib import Path
from typing import Any

import pytest

from evidence.schedule.engines import parse_case, read_case
from evidence.schedule.replay import simulate_rows
from evidence.schedule.verdict import validate_case
from kvsim.plumbing.errors import InputError

ENGINE = {
    "num_gpu_blocks": 6, "block_size": 4, "max_num_seqs": 4, "max_num_batched_tokens": 64,
    "max_model_len": 64,
}  # fmt: skip
COST = {"a": 5, "b": 1, "c": 2}


def case(*requests: dict[str, Any]) -> dict[str, Any]:
    return {"name": "small", "engine": ENGINE, "cost": COST, "requests": list(requests)}


STUCK = case(
    {"id": "fits", "arrival": 0, "prompt_len": 6, "out": 2},
    {"id": "giant", "arrival": 1, "prompt_len": 40, "out": 2},
    {"id": "later", "arrival": 500, "prompt_len": 4, "out": 2},
    {"id": "last", "arrival": 900, "prompt_len": 4, "out": 2},
)


def written(folder: Path, table: dict[str, Any], rows: list[dict[str, Any]]) -> Path:
    (folder / "c.json").write_text(json.dumps(table))
    (folder / "c.expected.json").write_text(json.dumps({"steps": rows}))
    return folder / "c.json"


@pytest.mark.parametrize("once", [True, False])
def test_stalled_queue_is_recorded_once_or_once_per_arrival(tmp_path: Path, once: bool) -> None:
    rows = simulate_rows(parse_case(STUCK, ""), stall_once=once)
    stalled = [(row["t0"], row["waiting"]) for row in rows if "stall" in row]
    end = next(row["t0"] for row in rows if "stall" in row)
    assert stalled == ([(end, 1)] if once else [(end, 1), (500, 2), (900, 3)])
    assert validate_case(written(tmp_path, STUCK, rows)).equal
    rows[-1]["waiting"] += 1
    assert not validate_case(written(tmp_path, STUCK, rows)).equal


def test_schedule_row_missing_on_one_side_is_printed_in_full(tmp_path: Path) -> None:
    rows = simulate_rows(parse_case(STUCK, ""))
    verdict = validate_case(written(tmp_path, STUCK, rows[:-1]))
    found = verdict.first_difference
    assert found is not None
    assert (found["field"], found["recorded"], found["simulated"]) == ("row", None, rows[-1])
    *_, recorded, simulated = verdict.text().splitlines()
    assert recorded == "  recorded   no such row"
    assert simulated == f"  simulated  {json.dumps(rows[-1])}"
    one_more = validate_case(written(tmp_path, STUCK, [*rows, rows[-1]])).text().splitlines()
    assert one_more[-2:] == [f"  recorded   {json.dumps(rows[-1])}", "  simulated  no such row"]


def test_recorded_step_index_advances_while_idle(tmp_path: Path) -> None:
    table = case(
        {"id": "a", "arrival_step": 0, "prompt_len": 6, "out": 1},
        {"id": "b", "arrival_step": 7, "prompt_len": 6, "out": 2},
        {"id": "c", "arrival_step": 8, "prompt_len": 6, "out": 1},
    )
    rows = simulate_rows(parse_case(table, ""))
    assert [row["step"] for row in rows] == [0, 7, 8]
    assert [row["waiting"] + row["running"] for row in rows] == [1, 1, 2]
    assert rows[1]["t0"] == rows[0]["t1"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"requests": [{"id": "a", "arrival": 0, "prompt_len": 6, "out": 1}] * 2}, "named 'a'"),
        ({"requests": [{"id": "a", "arrival": -1, "prompt_len": 6, "out": 1}]}, "arrival"),
        ({"requests": [{"id": "a", "arrival": 0, "prompt": [], "out": 1}]}, "prompt"),
        ({"requests": [{"id": "a", "arrival": 0, "prompt_len": 10**9, "out": 1}]}, "prompt_len"),
        ({"requests": [{"id": "a", "arrival": 10**18, "prompt_len": 6, "out": 1}]}, "arrival"),
        ({"cost": {"a": 10**25, "b": 0, "c": 0}}, "JSON"),
        ({"engine": ENGINE | {"num_gpu_blocks": 10**15}}, "num_gpu_blocks"),
        ({"engine": None}, "engine"),
    ],
)
def test_invalid_schedule_case_is_a_one_line_error(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    path = written(tmp_path, STUCK | change, [])
    with pytest.raises(InputError, match=words) as caught:
        read_case(path)
    assert "\n" not in str(caught.value)


def test_unknown_engine_case_error_lists_each_key_once() -> None:
    with pytest.raises(InputError, match="no recorded engine's settings") as caught:
        parse_case({"name": "none"}, "case")
    assert caught.value.remedy is not None
    names = caught.value.remedy.partition(": ")[2].split(", ")
    assert len(names) == len(set(names)) > 5
