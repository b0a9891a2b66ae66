"""Fit calibration/kernels/host.json on the fitting half of a table of measured points.

    python -m evidence.points.fit_host FILE.csv [OUT.json]

TPOT = scale * kernels + step + sequence * clients + prompts * steps with prompts meanwhile. The sum
of absolute relative errors is least (linear programming), constants are not negative, and a scale
other than 1 costs PRIOR a point. Rows that are judged are never read.
"""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from scipy.optimize import linprog

from evidence.points.estimate import Estimate, Estimator
from evidence.points.host_file import write
from kvsim.plumbing.errors import InputError
from kvsim.step_time.kernels.host import HOST_FILE
from kvsim.validate.points.rows import read_points
from kvsim.validate.points.scenario import ENGINES
from kvsim.validate.points.servers import benchmark_of

PRIOR = 0.15  # of relative error: what a scale of 0 would cost
SCALES = (0.4, 1.8)
Key = tuple[str, ...]
# From the particular to the general: fields of an entry, and how many points one needs.
LEVELS: tuple[tuple[Key, int], ...] = (
    (("engine", "since", "kind", "method", "device"), 7),
    (("engine", "since", "kind", "method"), 6),
    (("engine", "kind", "method"), 6),
    (("engine", "kind"), 6),
    (("engine", "device"), 12),
    (("engine",), 12),
)


def fitted(points: Sequence[Estimate]) -> dict[str, float]:
    """The constants of these points, in us, and the median and mean error that is left."""
    measured = np.array([each.point.silicon_tpot_ms for each in points])
    kernels = np.array([each.kernels_ms for each in points])
    host = np.array([[1.0, each.clients, each.prompts] for each in points]) / 1000
    parts = np.column_stack([kernels, -kernels, host]) / measured[:, None]
    left = 1 - kernels / measured
    count = len(points)
    cost = np.r_[PRIOR * count, PRIOR * count, np.zeros(3), np.ones(count)]
    rows = np.block([[parts, -np.eye(count)], [-parts, -np.eye(count)]])
    low, high = SCALES
    bounds = [(0, high - 1), (0, 1 - low), *[(0, None)] * (3 + count)]
    answer = linprog(cost, A_ub=rows, b_ub=np.r_[left, -left], bounds=bounds, method="highs")
    found = np.asarray(answer.x)
    errors = np.abs(parts @ found[:5] - left)
    names = ("step_us", "sequence_us", "prompts_us")
    return {
        "scale": round(1 + found[0] - found[1], 4),
        **{name: round(float(us), 2) for name, us in zip(names, found[2:5], strict=True)},
        "points": count,
        "median_error": round(float(np.median(errors)), 4),
        "mean_error": round(float(np.mean(errors)), 4),
    }


def entries(points: Sequence[Estimate]) -> list[dict[str, object]]:
    """One of every level and group that has points enough."""
    found = []
    for fields, least in LEVELS:
        groups: dict[Key, list[Estimate]] = {}
        for each in points:
            groups.setdefault(tuple(map(_field(each), fields)), []).append(each)
        for key, group in sorted(groups.items()):
            if len(group) >= least:
                found.append({**dict(zip(fields, key, strict=True)), **fitted(group)})
    return found


def _field(each: Estimate) -> Callable[[str], str]:
    return lambda name: getattr(each, "version" if name == "since" else name)


def main(path: Path, out: Path) -> None:
    """Write the entries that the table's fitting half gives."""
    estimator, points = Estimator(), []
    for point in read_points(path):
        if point.half != "fit" or point.mode != "agg" or point.backend not in ENGINES:
            continue
        if benchmark_of(point).name != "inferencex":
            continue
        try:
            points.append(estimator.of(point))
        except InputError as error:
            sys.stderr.write(f"left out: {point.id}: {error}\n")
    source = (
        "TPOT of closed loops that InferenceX measured (github.com/SemiAnalysisAI/InferenceX), as "
        "AISimulate 0.13's accuracy set has them (silicon_sample.csv, Apache-2.0): rows whose id's "
        "SHA-256 begins with 8 to f; made by evidence/points/fit_host.py"
    )
    written = json.loads(HOST_FILE.read_text("utf-8")) if HOST_FILE.exists() else {}
    write({**written, "source": source, "entries": entries(points)}, out)
    sys.stdout.write(f"{len(points)} points, written to {out}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else HOST_FILE)
