"""What a paragraph on a fleet says of its price."""

from typing import Any

import pytest

import kvsim
from kvsim.report.fleet_words import fleet_paragraphs
from kvsim.report.numbers import number


@pytest.mark.parametrize("output", [{"kind": "fixed", "tokens": 40}, "none"])
def test_a_price_is_told_per_million_output_tokens(tables: Any, output: Any) -> None:
    workload = {
        "kind": "synthetic", "num_requests": 30, "arrivals": {"kind": "poisson", "rate_per_s": 20},
        "prompt": {"kind": "fixed", "tokens": 200}, "output": output,
    }  # fmt: skip
    fleet = {"replicas": 2, "router": "round-robin", "price_per_gpu_hour": 2.5}
    made = tables(allocator=[{"kind": "paged"}], workload=workload)
    result = kvsim.simulate({**made, "fleet": fleet})
    (summary,) = result.fleets
    (text,) = fleet_paragraphs(result)
    assert summary.cost == pytest.approx(2.5 * summary.gpu_hours)
    assert f"at {summary.cost:,.4g}" in text
    assert "Each replica got 15 requests." in text
    if output == "none":
        assert "per million" not in text
    else:
        assert f"{number(summary.cost / (30 * 40) * 1e6)} per million output tokens." in text
