"""Fit the front ends of calibration/kernels/host.json on the fitting half of a table of points.

    python -m evidence.points.fit_front_end FILE.csv [EVERY]

Every EVERY-th row is simulated. The measured TTFT minus the simulated one is request + token *
prompt tokens + client * clients, by least absolute relative errors.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.optimize import linprog

from evidence.points.host_file import write
from evidence.points.outcome import PointOutcome, simulate_points, some_of
from evidence.points.rows import read_points
from evidence.points.scenario import prepare
from evidence.points.servers import benchmark_of
from kvsim.model.find import find_model
from kvsim.step_time.kernels.host import HOST_FILE

LEAST = 8  # points of an engine and architecture


def fitted(outcomes: Sequence[PointOutcome]) -> dict[str, float]:
    """The constants fitted to these points, in ms, and the remaining error."""
    measured = np.array([each.row.silicon_ttft_ms for each in outcomes])
    parts, without = [], []
    for each in outcomes:
        ready = prepare(each.row)
        load = ready.table["workload"]
        mean = each.row.isl * (1 + ready.benchmark.shortest) / 2
        parts.append([1.0, mean, load["arrivals"]["num_users"]])
        assert each.simulated is not None
        without.append(each.simulated[0] - ready.front_end_ms)
    shares, left = np.array(parts) / measured[:, None], 1 - np.array(without) / measured
    count = len(outcomes)
    rows = np.block([[shares, -np.eye(count)], [-shares, -np.eye(count)]])
    cost = np.r_[np.zeros(3), np.ones(count)]
    answer = linprog(cost, A_ub=rows, b_ub=np.r_[left, -left], bounds=(0, None), method="highs")
    found = np.asarray(answer.x)[:3]
    errors = np.abs(shares @ found - left)
    names = ("request_ms", "token_ms", "client_ms")
    return {
        **{name: round(float(ms), 5) for name, ms in zip(names, found, strict=True)},
        "points": count,
        "median_error": round(float(np.median(errors)), 4),
        "mean_error": round(float(np.mean(errors)), 4),
    }


def main(path: Path, every: int) -> None:
    """Fit the front ends, and write them to host.json."""
    rows = [
        row
        for row in read_points(path)
        if row.half == "fit" and row.mode == "agg" and benchmark_of(row).name == "inferencex"
    ]
    outcomes = [each for each in simulate_points(some_of(rows, every, 0), None) if each.simulated]
    groups: dict[tuple[str, str], list[PointOutcome]] = {}
    for each in outcomes:
        name = str(prepare(each.row).table["model"]["name"])
        kind = find_model(name, offline=True).kind
        for key in ((each.row.backend, kind), (each.row.backend, "")):
            groups.setdefault(key, []).append(each)
    found = [
        {"engine": engine, **({"kind": kind} if kind else {}), **fitted(group)}
        for (engine, kind), group in sorted(groups.items())
        if len(group) >= LEAST
    ]
    write({**json.loads(HOST_FILE.read_text("utf-8")), "front_ends": found}, HOST_FILE)
    sys.stdout.write(f"{len(outcomes)} points, written to {HOST_FILE}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 6)
