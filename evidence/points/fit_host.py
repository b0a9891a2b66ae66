"""Fit calibration/kernels/host.json on the fitting half of a table of measured points.

    python -m evidence.points.fit_host FILE.csv [OUT.json]

TPOT = scale * kernels + step + layer * layers + experts * layers of experts / GPUs + workers (of
several GPUs) + sequence * clients + prompts * steps with prompts meanwhile. Where all points have
as many GPUs, nothing tells the time of experts from the layers', and it is theirs. Where none or
all have several GPUs, nothing tells that of workers from a step's. The sum of absolute relative
errors is least (linear programming), constants are not negative, and a scale other than 1 costs
PRIOR a point. Entries for weights or architectures of any kind must hold for servers that were not
measured. So they have a scale of 1 and no time of prompts, experts or workers. Each server's points
are weighted by their number, so that one measured often counts no more than another. vLLM's entries
for an architecture are those of fit_sequences. Rows that are judged are never read.
"""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.optimize import linprog

from evidence.points.estimate import Estimate, estimates
from evidence.points.fit_sequences import ENGINE, sequence_entries
from evidence.points.host_file import write
from kvsim.step_time.kernels.host import HOST_FILE

PRIOR = 0.15  # of relative error: what a scale of 0 would cost
SCALES = (0.4, 1.8)
Names = tuple[str, ...]
Key = tuple[str | int, ...]
KIND: Names = ("engine", "kind")
# From the particular to the general: fields of an entry, and how many points one needs.
LEVELS: tuple[tuple[Names, int], ...] = (
    (("engine", "since", "kind", "layers", "method", "device"), 6),
    (("engine", "since", "kind", "layers", "method"), 6),
    (("engine", "since", "kind", "method"), 6),
    (("engine", "kind", "method"), 6),
    (KIND, 6),
    (("engine", "device"), 12),
    (("engine",), 12),
)


def fitted(points: Sequence[Estimate], weights: Sequence[float], own: bool) -> dict[str, float]:
    """The constants fitted to these points, in us, and the median and mean remaining error.

    own: whether the points are of one architecture and kind of weights. If all models have equally
    many layers, the constant per step cannot be distinguished from the one per layer, and is
    included in it.
    """
    measured = np.array([each.point.silicon_tpot_ms for each in points])
    kernels = np.array([each.kernels_ms for each in points])
    layers = [each.layers for each in points]
    several = float(len(set(layers)) > 1)
    shares = {each.experts for each in points}
    spread = own and len(shares) > 1
    host = np.array([
        [several, each.layers, each.clients, each.prompts, each.experts, each.shared]
        for each in points
    ]) / 1000  # fmt: skip
    parts = np.column_stack([kernels, -kernels, host]) / measured[:, None]
    left = 1 - kernels / measured
    count = len(points)
    each_costs = np.array(weights) * count / sum(weights)
    cost = np.r_[PRIOR * count, PRIOR * count, np.zeros(6), each_costs]
    rows = np.block([[parts, -np.eye(count)], [-parts, -np.eye(count)]])
    low, high = SCALES
    scales = [(0, own * (high - 1)), (0, own * (1 - low))]
    prompts = (0, None if own else 0)
    experts = (0, None if spread else 0)
    workers = (0, None if own and len({each.shared for each in points}) > 1 else 0)
    bounds = [*scales, *[(0, None)] * 3, prompts, experts, workers, *[(0, None)] * count]
    answer = linprog(cost, A_ub=rows, b_ub=np.r_[left, -left], bounds=bounds, method="highs")
    found = np.asarray(answer.x)
    errors = np.abs(parts @ found[:8] - left)
    names = ("step_us", "layer_us", "sequence_us", "prompts_us", "experts_us", "workers_us")
    return {
        "scale": round(1 + found[0] - found[1], 4),
        **{name: round(float(us), 2) for name, us in zip(names, found[2:8], strict=True)},
        "points": count,
        "median_error": round(float(np.median(errors)), 4),
        "mean_error": round(float(np.mean(errors)), 4),
    }


def entries(
    points: Sequence[Estimate],
    levels: Sequence[tuple[Names, int]] = LEVELS,
    like: Sequence[Estimate] | None = None,
) -> list[dict[str, object]]:
    """An entry of host.json for every level and group with enough points. like: fit only entries
    that one of these points could use.
    """
    found: list[dict[str, object]] = []
    for fields, least in levels:
        if fields == KIND:
            found += sequence_entries(points)
        labels_of = [name for name in fields if name != "since"]
        wanted = None if like is None else {_key(each, labels_of) for each in like}
        groups: dict[Key, list[Estimate]] = {}
        for each in points:
            if fields == KIND and each.engine == ENGINE:
                continue
            if wanted is None or _key(each, labels_of) in wanted:
                groups.setdefault(_key(each, fields), []).append(each)
        for key, group in sorted(groups.items()):
            if len(group) >= least:
                sizes = Counter(_key(each, LEVELS[0][0]) for each in group)
                own = "method" in fields
                weights = [
                    1.0 if own else 1 / max(least, sizes[_key(each, LEVELS[0][0])])
                    for each in group
                ]
                labels = dict(zip(fields, key, strict=True))
                found.append({**labels, **fitted(group, weights, own)})
    return found


def _key(each: Estimate, fields: Sequence[str]) -> Key:
    return tuple(getattr(each, "version" if name == "since" else name) for name in fields)


def main(path: Path, out: Path) -> None:
    """Fit all entries on the table's fitting half, and write them."""
    points = estimates(path)
    source = (
        "TPOT of closed loops that InferenceX (github.com/SemiAnalysisAI/InferenceX) and the "
        "authors of AISimulate measured, as AISimulate 0.13's accuracy set has them "
        "(silicon_sample.csv, Apache-2.0): rows whose id's SHA-256 begins with 8 to f; made by "
        "evidence/points/fit_host.py"
    )
    written = json.loads(HOST_FILE.read_text("utf-8")) if HOST_FILE.exists() else {}
    write({**written, "source": source, "entries": entries(points)}, out)
    sys.stdout.write(f"{len(points)} points, written to {out}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else HOST_FILE)
