"""Repeated measurements of one configuration, and their spread.

A simulation that gives equal answers to equal questions cannot be closer than half this spread.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from evidence.points.labels import split_of
from evidence.points.rows import Point

SAME = 1e-6  # of a latency: the same measurement, written with fewer digits or under other labels
_ALIASES = {"DeepSeek-R1": "DeepSeek-V3"}  # one architecture


class Spread(NamedTuple):
    """Spread (largest / smallest - 1) of a latency over configurations that were measured several
    times.

    configurations: number of configurations with several rows. copies: rows that only repeat the
    measurement of another row. measured_again: configurations with different measurements.
    """

    configurations: int
    copies: int
    measured_again: int
    median: float
    mean: float
    p90: float


def repeats(rows: Iterable[Point]) -> list[list[Point]]:
    """Groups of rows with equal configuration, for configurations with several rows."""
    found: dict[tuple[object, ...], list[Point]] = {}
    for row in rows:
        split, model = split_of(row), row.model_path.rpartition("/")[2]
        key = (
            *(_ALIASES.get(model, model), row.backend, row.backend_version, row.system),
            *(row.precision, row.mode, row.isl, row.osl, split.tensor_parallel, split.copies),
            *(split.whole_experts, row.clients(split.copies), row.prefill, row.decode),
        )
        found.setdefault(key, []).append(row)
    return [each for each in found.values() if len(each) > 1]


def spread(groups: Sequence[Sequence[Point]], latency: str) -> Spread:
    """The spread of "ttft" or "tpot" over these groups."""
    copies, apart = 0, list[float]()
    for rows in groups:
        values = sorted(getattr(row, f"silicon_{latency}_ms") for row in rows)
        steps = [high / low - 1 for low, high in pairwise(values)]
        copies += sum(step <= SAME for step in steps)
        if values[-1] / values[0] - 1 > SAME:
            apart.append(values[-1] / values[0] - 1)
    sizes = np.array(apart or [0.0])
    return Spread(
        len(groups),
        copies,
        len(apart),
        float(np.median(sizes)),
        float(sizes.mean()),
        float(np.quantile(sizes, 0.9)),
    )
