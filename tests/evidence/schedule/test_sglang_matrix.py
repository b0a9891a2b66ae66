"""Regression test: digests of rows for each setting of SGLang's memory and schedulers."""

import pytest
from support.sglang_matrix import CELLS, digest, recorded, rows

RECORDED = recorded()


@pytest.mark.parametrize("label", CELLS)
def test_sglang_matrix_cell_rows_match_their_digest(label: str) -> None:
    found = rows(label)
    assert len(found) > 20
    assert digest(found) == RECORDED[label]


def test_every_sglang_matrix_cell_has_a_digest() -> None:
    assert RECORDED.keys() == CELLS.keys()


def test_matrix_streams_exercise_every_rule() -> None:
    """The streams retract requests, hit prefixes, exhaust second pools, and load from the host."""
    labels = ("plain, pages of 1, fcfs", "windows, pages of 1, fcfs, overlap")
    labels += ("write_back, pages of 16, no storage", "write_through, pages of 16, timeout")
    found = [row for label in labels for row in rows(label)]
    assert any(row["retracted"] for row in found)
    assert any(hits for row in found for _, hits, *_ in row["admitted"])
    assert any(row.get("evicted2") for row in found)
    assert any(row.get("loads") for row in found)
    assert any(operation == "get" for row in found for operation, *_ in row.get("l3", ()))
