"""Errors of many points as a few numbers: of all points, and by each property of the points."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from evidence.points.labels import named_split, split_of
from evidence.points.outcome import PointOutcome
from kvsim.step_time.kernels.expected import regime_of

LATENCIES = ("ttft", "tpot")


class PointErrors(NamedTuple):
    """Errors simulated / measured - 1 of n points. median_abs, mean_abs: of |error|. bias: median
    error. p90_abs: 90th percentile of |error|.
    """

    n: int
    median_abs: float
    mean_abs: float
    bias: float
    p90_abs: float

    @classmethod
    def of(cls, errors: Sequence[float]) -> "PointErrors | None":
        """Summarise errors; None for an empty sequence."""
        if not errors:
            return None
        sizes = np.abs(errors)
        return cls(
            len(errors),
            float(np.median(sizes)),
            float(np.mean(sizes)),
            float(np.median(errors)),
            float(np.quantile(sizes, 0.9)),
        )


class Totals(NamedTuple):
    """Errors of one group of points.

    rows: number of points. ran: number of points with an answer. tool: name of the tool; "" for
    kvsim.
    """

    group: str
    tool: str
    rows: int
    ran: int
    ttft: PointErrors | None
    tpot: PointErrors | None


def regime(outcome: PointOutcome) -> str:
    """Name of a point's regime: the part that dominates its time, and a class of batch size."""
    row = outcome.row
    copies = split_of(row).copies
    clients = row.clients(copies) / copies
    return regime_of(row.isl, row.osl, clients)


GROUPINGS: dict[str, Callable[[PointOutcome], str]] = {
    "engine": lambda outcome: outcome.row.backend,
    "device": lambda outcome: outcome.row.system,
    "model": lambda outcome: outcome.row.model_path.rpartition("/")[2],
    "split": lambda outcome: named_split(outcome.row),
    "precision": lambda outcome: outcome.row.precision or "not said",
    "regime": regime,
    "servers": lambda outcome: outcome.row.servers,
}


def totals(outcomes: Sequence[PointOutcome], group: str = "all", tool: str = "") -> Totals:
    """The errors of these points, by kvsim (tool "") or by another tool's estimates."""
    errors = [each for outcome in outcomes if (each := outcome.errors(tool)) is not None]
    return Totals(
        group,
        tool or "kvsim",
        len(outcomes),
        len(errors),
        PointErrors.of([ttft for ttft, _ in errors]),
        PointErrors.of([tpot for _, tpot in errors]),
    )


def grouped(outcomes: Sequence[PointOutcome], by: str) -> list[Totals]:
    """Errors by group, the largest group first."""
    found: dict[str, list[PointOutcome]] = {}
    for outcome in outcomes:
        found.setdefault(GROUPINGS[by](outcome), []).append(outcome)
    ranked = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    return [totals(each, name) for name, each in ranked]


def beside(outcomes: Sequence[PointOutcome]) -> list[Totals]:
    """Errors of kvsim and of each other tool, in pairs, over the points that both answer."""
    found = []
    for tool in dict.fromkeys(name for outcome in outcomes for name in outcome.row.estimates):
        both = [each for each in outcomes if each.simulated and tool in each.row.estimates]
        found += [totals(both, f"both kvsim and {tool}", name) for name in ("", tool)]
    return found


def refusals(outcomes: Sequence[PointOutcome]) -> list[tuple[str, int]]:
    """(reason, number of rows) for each reason of refusal, the most frequent first."""
    counts: dict[str, int] = {}
    for outcome in outcomes:
        if outcome.refused:
            counts[outcome.refused] = counts.get(outcome.refused, 0) + 1
    return sorted(counts.items(), key=lambda item: -item[1])
