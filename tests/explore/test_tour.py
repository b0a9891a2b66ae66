"""The tour's texts agree with what the simulator computes."""

import pytest

from kvsim.explore.tour import STOPS, find_stop, stop_tables
from kvsim.results.result import Result
from kvsim.simulation import simulate


@pytest.fixture(scope="module")
def results() -> dict[str, Result]:
    return {stop: simulate(stop_tables(stop)) for stop in STOPS}


def number(result: Result, label: str, *path: str) -> float:
    found = next(run.summary for run in result.runs if run.label == label)
    for key in path:
        found = found[key]
    return float(found)  # type: ignore[arg-type]


def test_tour_has_seven_stops_with_texts() -> None:
    stops = [find_stop(name) for name in STOPS]
    assert len(stops) == 7
    assert all(stop.title and stop.text and stop.look for stop in stops)


def test_tour_texts_agree_with_their_runs(results: dict[str, Result]) -> None:
    rate = "output_tokens_per_s"
    none = results["no-cache"]
    assert number(none, "no cache", "requests", "finished") > 60_000
    first = results["largest-buffer"]
    assert number(first, "max-buffer", rate) > 10 * number(none, "no cache", rate)
    assert number(first, "max-buffer", "memory", "time_mean", "overprovisioned") > 0.5
    grown = results["doubling"]
    assert number(grown, "doubling", "running_mean") > 2 * number(
        grown, "max-buffer", "running_mean"
    )
    assert number(grown, "doubling", "copied_bytes") > 0
    assert number(grown, "doubling", "preemptions") > 0
    holes = results["holes"]
    assert number(holes, "oracle", "memory", "time_mean", "overprovisioned") < 0.01
    assert number(holes, "oracle", "memory", "time_mean", "external") > 0.05
    blocks = results["blocks"]
    assert number(blocks, "paged", rate) > number(blocks, "oracle", rate)
    assert number(blocks, "paged", "memory", "time_mean", "external") == 0
    shared = results["sharing"]
    alone, together = "every copy its own", "shared prefixes"
    assert number(shared, together, "running_mean") > number(shared, alone, "running_mean")
    assert number(shared, together, "ttft_s", "p50") < number(shared, alone, "ttft_s", "p50")
    forked = results["copy-on-write"]
    alone, together = "every answer its own prompt", "copy on write"
    assert number(forked, together, "running_mean") > number(forked, alone, "running_mean")
    assert (
        0
        < number(forked, together, "copied_bytes")
        < 0.1 * number(grown, "doubling", "copied_bytes")
    )
