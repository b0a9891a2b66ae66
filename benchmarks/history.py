"""What was measured when: one JSON object a line; and how time grows with requests."""

import json
import os
import platform
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from math import log
from pathlib import Path

from case import HERE, Case


def remember(path: Path, found: dict[Case, dict[str, float]]) -> None:
    """Append what was found to the history at `path`."""
    where = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _git("describe", "--always", "--dirty", "--abbrev=12"),
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        for case, columns in found.items():
            file.write(json.dumps({**where, "case": case.name, **columns}) + "\n")


def _git(*arguments: str) -> str:
    answer = subprocess.run(["git", *arguments], cwd=HERE, capture_output=True, text=True)
    return answer.stdout.strip() or "unknown"


def growth(found: dict[Case, dict[str, float]]) -> Iterator[str]:
    """For cases that differ in their number of requests alone: the power of it that the engine's
    time grows with, from one to the next; 1 is linear.
    """
    alike = defaultdict(list)
    for case, columns in found.items():
        rest = tuple(each for each in case.set if not each.startswith("workload.num_requests="))
        alike[case.scenario, rest].append((columns["requests"], columns["engine"]))
    for sizes in alike.values():
        for (few, quick), (many, slow) in pairwise(sorted(sizes)):
            power = log(slow / quick) / log(many / few)
            yield f"{few:,} to {many:,} requests: engine time grows with the power {power:.2f}"
