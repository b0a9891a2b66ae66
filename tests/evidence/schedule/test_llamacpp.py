"""Cells of the unmodified llama.cpp after each operation, and a server's slots after each call.

C01 to C24: 0c1e57098, of which C15 to C24 are ten random settings and operations in a row, with
batches that are refused or find no room in several buffers; O01 to O06: 7841fc723, which needs
neighbouring cells and moves them together now and then; S01 to S15: llama-server of 0c1e57098.
"""

from pathlib import Path

import pytest

from evidence.schedule.engines import parse_case
from evidence.schedule.verdict import validate_case
from kvsim.plumbing.errors import InputError

CASES = sorted((Path(__file__).parent / "llamacpp").glob("*.json"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_llamacpp_cells_and_slots_equal_the_recording_after_every_call(path: Path) -> None:
    verdict = validate_case(path)
    assert verdict.equal, verdict.text()
    assert verdict.steps > 5


def test_every_recorded_case_is_present() -> None:
    assert len(CASES) == 45
    assert all(path.with_suffix(".expected.json.gz").exists() for path in CASES)


@pytest.mark.parametrize(
    ("ops", "fault"),
    [
        ([["decode", [[0, 0, None]]]], "operation 0: .*no piece of a batch"),
        ([["decode", [["a", 1, None]]]], "operation 0: .*no piece of a batch"),
        ([["rm", 1]], "operation 0 is .*rm \\(3\\)"),
        ([["defrag"]], "operation 0 is"),
        ([["restore", 0, "x"]], "nothing was saved under this name"),
    ],
)
def test_invalid_cell_operation_is_refused_by_its_number(ops: list, fault: str) -> None:
    table = {"name": "x", "kind": "cells", "model": "tiny-llama", "settings": {"n_ctx": 256}}
    with pytest.raises(InputError, match=fault):
        parse_case({**table, "ops": ops}, "x.json").simulated([])
