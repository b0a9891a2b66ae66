"""Every row of schedules recorded from vLLM 0.33.0 with an offloading KV connector.

Model and flags are as served. Scheduler, both halves of the connector, host memory and engine loop
ran unmodified; copies take time on the virtual clock. Rows contain lookups, jobs, slots, flushes
and reports.
"""

from pathlib import Path

import pytest

from evidence.schedule.verdict import validate_case

CASES = sorted((Path(__file__).parent / "offload").glob("*.json"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_schedule_is_equal_row_for_row(path: Path) -> None:
    verdict = validate_case(path)
    assert verdict.equal, verdict.text()
    assert verdict.steps > 30


def test_every_recorded_case_is_present() -> None:
    recorded = {path.name.removesuffix(".json") for path in CASES}
    beside = {path.name for path in CASES[0].parent.glob("*.expected.json.gz")}
    assert beside == {f"{name}.expected.json.gz" for name in recorded}
    assert len(CASES) == 80
