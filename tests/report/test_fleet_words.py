"""Sentences on a fleet's price and its replicas."""

from typing import Any

import pytest

import kvsim
from kvsim.report.fleet_words import fleet_paragraphs
from kvsim.report.numbers import number, seconds
from kvsim.report.page import make_page


@pytest.mark.parametrize("output", [{"kind": "fixed", "tokens": 40}, "none"])
def test_fleet_price_is_reported_per_million_output_tokens(tables: Any, output: Any) -> None:
    workload = {
        "kind": "synthetic", "num_requests": 30, "arrivals": {"kind": "poisson", "rate_per_s": 20},
        "prompt": {"kind": "fixed", "tokens": 200}, "output": output,
    }  # fmt: skip
    fleet = {"replicas": 2, "router": "round-robin", "price_per_gpu_hour": 2.5}
    made = tables(allocator=[{"kind": "paged"}], workload=workload)
    result = kvsim.simulate({**made, "fleet": fleet})
    (summary,) = result.fleets
    first, *rest = fleet_paragraphs(result)
    assert "GPU-hours" in first
    text = " ".join((first, *rest))
    assert summary.cost == pytest.approx(2.5 * summary.gpu_hours)
    assert f"at {summary.cost:,.4g}" in text
    assert "Each replica got 15 requests." in text
    if output == "none":
        assert "per million" not in text
    else:
        assert f"{number(summary.cost / (30 * 40) * 1e6)} per million output tokens." in text


def test_fleet_report_warns_if_replica_makespans_differ(tables: Any) -> None:
    """A report once showed 248, 141 and 81.3 tokens/s for replicas and 364 for the fleet,
    unexplained.
    """
    found = []
    for rate in (2, 2000):
        workload = {
            "kind": "synthetic", "num_requests": 20, "prompt": {"kind": "fixed", "tokens": 200},
            "arrivals": {"kind": "poisson", "rate_per_s": rate},
            "output": {"kind": "fixed", "tokens": 40},
        }  # fmt: skip
        made = tables(allocator=[{"kind": "paged"}], workload=workload)
        result = kvsim.simulate({**made, "fleet": {"replicas": 2, "router": "consistent-hash"}})
        low, high = sorted(run.summary.makespan_s for run in result.runs)
        whole = result.fleets[0].makespan_s
        said = (
            f"Rates and means of each replica are over its own makespan, {seconds(low)} to "
            f"{seconds(high)}. Those of the fleet are over {seconds(whole)}, so"
        )
        found.append((low <= 0.95 * whole, said in fleet_paragraphs(result)[1]))
        assert "Each replica&#39;s numbers are over its own makespan" in make_page(result)
    assert found == [(True, True), (False, False)]
