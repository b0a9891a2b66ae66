"""Errors of borrowed host times: each group of points timed by the entries of all other groups.

    python -m evidence.points.left_out FILE.csv

Writes "left_out" in calibration/kernels/expected.json: the median and mean |error| of TPOT by the
closed form of the fit. The points are the fitting half of a table. "device" leaves out one device
at a time, for each engine and architecture. "model" leaves out one architecture at a time, for each
engine.
"""

import json
import sys
from pathlib import Path
from statistics import fmean, median

from evidence.points.estimate import Estimate, estimates
from evidence.points.fit_host import LEVELS, entries
from kvsim.step_time.kernels.expected import EXPECTED_FILE
from kvsim.step_time.kernels.host import best_entry

LEFT_OUT = {"device": ("engine", "kind", "device"), "model": ("engine", "kind")}


def left_out(points: list[Estimate], fields: tuple[str, ...]) -> list[float]:
    """|error| of all points, where each group with equal `fields` is timed by the entries of the
    others.
    """
    groups: dict[tuple[str, ...], list[Estimate]] = {}
    for each in points:
        groups.setdefault(tuple(getattr(each, name) for name in fields), []).append(each)
    sizes = []
    for group in groups.values():
        out = {id(each) for each in group}
        engine = [each for each in points if each.engine == group[0].engine]
        rest = [each for each in engine if id(each) not in out]
        levels = [level for level in LEVELS if not set(fields) <= set(level[0])]
        found = entries(rest, levels, like=group)
        for each in group:
            entry = best_entry(found, each.labels, each.version)
            if entry is not None:
                sizes.append(abs(each.tpot_ms(entry) / each.point.silicon_tpot_ms - 1))
    return sizes


def main(path: Path) -> None:
    """Write the median and mean errors to expected.json."""
    points = estimates(path)
    written = json.loads(EXPECTED_FILE.read_text("utf-8"))
    written["left_out"] = {}
    for name, fields in LEFT_OUT.items():
        sizes = left_out(points, fields)
        written["left_out"][name] = [round(median(sizes), 4), round(fmean(sizes), 4)]
        sys.stdout.write(f"{name}: {len(sizes)} points, {written['left_out'][name]}\n")
    EXPECTED_FILE.write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
