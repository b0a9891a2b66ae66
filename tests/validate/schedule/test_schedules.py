"""Every row of schedules recorded from the unmodified schedulers of vLLM 0.33.0 and 0.11.2.

01 to 19 cover rule after rule, 21 to 40 and 51 to 55 combine them under pressure, and 41 to 46, 56
and 57 are the smallest cases of corners that a simulator got wrong.
"""

from pathlib import Path

import pytest

from kvsim.validate.schedule.case import read_case, read_expectation
from kvsim.validate.schedule.rows import simulate_rows
from kvsim.validate.schedule.verdict import compare

CASES = sorted((Path(__file__).parent / "schedules").glob("*.json"))
# As `vllm serve` 0.33.0 plans and runs them, from a config.json and its flags.
SERVED = sorted((Path(__file__).parent / "served").glob("*.json"))


@pytest.mark.parametrize("path", [*CASES, *SERVED], ids=lambda path: path.stem)
def test_schedule_is_equal_row_for_row(path: Path) -> None:
    case = read_case(path)
    verdict = compare(path.stem, read_expectation(path), simulate_rows(case))
    assert verdict.equal, verdict.text()
    assert verdict.steps >= len(case.requests)


def test_all_recordings_are_there() -> None:
    assert (len(CASES), len(SERVED)) == (49, 8)
    for cases in CASES, SERVED:
        recorded = {path.name.removesuffix(".json") for path in cases}
        beside = {path.name for path in cases[0].parent.glob("*.expected.json.gz")}
        assert beside == {f"{name}.expected.json.gz" for name in recorded}
