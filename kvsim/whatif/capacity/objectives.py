"""Objectives of a service, as `--slo` writes them: a number of the summary and its limit.

Two more objectives always apply. No request is refused (unless `requests.rejected` has an objective
of its own). The run is not saturated: if the queue only grows, latencies depend on the length of
the run.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kvsim.plumbing.errors import InputError
from kvsim.results.latency import QUANTILES

LATENCIES = ("ttft_s", "tpot_s", "itl_s", "e2e_s", "queue_s")
STATISTICS = ("mean", *QUANTILES)
COUNTS = ("preemptions", "recomputed_tokens", "requests.rejected")
RATES = ("requests_per_s", "output_tokens_per_s")
REFUSED = "requests.rejected"


class Objective(NamedTuple):
    """A limit on one number. name: dotted name in the summary. It must be at most `limit`, or at
    least `limit` if `least`.
    """

    name: str
    limit: float
    least: bool

    def holds(self, row: Mapping[str, Any]) -> bool:
        """Whether a run's flat summary meets the objective. A missing number meets it: no request
        had that latency.
        """
        value = row.get(self.name)
        if value is None:
            return True
        return bool(value >= self.limit if self.least else value <= self.limit)

    def __str__(self) -> str:
        return f"{self.name} {'>=' if self.least else '<='} {self.limit:g}"


def parse_objective(text: str) -> Objective:
    """Parse one `--slo`, such as `ttft_s.p99=2`. The InputError for an unknown name lists all."""
    name, equals, value = text.partition("=")
    name = name.rstrip("<>").strip()
    check_number(name, "--slo")
    try:
        limit = float(value)
    except ValueError:
        limit = math.nan
    if not equals or not math.isfinite(limit) or limit < 0:
        raise InputError("needs a limit, as in ttft_s.p99=2", where="--slo", value=text)
    return Objective(name, limit, name in RATES)


def check_number(name: str, where: str) -> None:
    """Raise InputError unless a summary has a number with this dotted name that is better in one
    direction.
    """
    known = [f"{each}.{statistic}" for each in LATENCIES for statistic in STATISTICS]
    if name not in (*known, *COUNTS, *RATES):
        raise InputError(
            "unknown number",
            where=where,
            value=name,
            remedy=f"one of {', '.join(LATENCIES)} with .mean, .p50, .p90, .p95 or .p99, "
            f"or {', '.join((*COUNTS, *RATES))}",
        )


def complete(objectives: Sequence[Objective]) -> tuple[Objective, ...]:
    """The objectives plus the default one on refused requests; InputError for a number with two
    limits.
    """
    names = [objective.name for objective in objectives]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError("two objectives on one number", where="--slo", value=twice)
    refused = () if REFUSED in names else (Objective(REFUSED, 0, least=False),)
    return (*objectives, *refused)


def kept(row: Mapping[str, Any], objectives: Sequence[Objective]) -> bool:
    """Whether a run meets all objectives and is not saturated."""
    return not row["saturated"] and all(objective.holds(row) for objective in objectives)


def broken(row: Mapping[str, Any], objectives: Sequence[Objective]) -> list[str]:
    """Objectives that a run breaks, in words."""
    broken_ones = [
        f"{objective.name} {float(row[objective.name]):.4g}"
        for objective in objectives
        if not objective.holds(row)
    ]
    return [*broken_ones, "saturated"] if row["saturated"] else broken_ones


def request_limits_s(objectives: Sequence[Objective]) -> dict[str, float]:
    """Latency limits of single requests for goodput: the strictest limit for each latency, whatever
    its statistic.

    Gaps between single tokens are not a request's own latency, so they are left out.
    """
    limits: dict[str, float] = {}
    for objective in objectives:
        latency = objective.name.partition(".")[0]
        if latency in LATENCIES and latency != "itl_s":
            limits[latency] = min(objective.limit, limits.get(latency, math.inf))
    return limits
