"""Digests of the summaries of all recipes, as commit f7bfbc5 made them: golden.json.

`PYTHONPATH=tests python -m support.golden NAME...` writes those of the recipes that it names anew.
That is only right where a result was meant to change: CHANGELOG.md then says why.
"""

import json
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import kvsim

FILE = Path(__file__).parents[1] / "golden.json"
DIGESTS: dict[str, dict[str, str]] = json.loads(FILE.read_text())


def digest(summary: dict[str, Any]) -> str:
    """Of all figures of a run as summary.json has them, floats by their repr. wall_s and notes,
    whose words may change, are left out.
    """
    kept = {name: figure for name, figure in summary.items() if name not in ("wall_s", "notes")}
    return sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:16]


def digests(recipe: str) -> dict[str, str]:
    """Of every run of a recipe, by its label."""
    result = json.loads(json.dumps(kvsim.simulate(recipe).summary()))
    return {run["label"]: digest(run) for run in result["runs"]}


if __name__ == "__main__":
    for name in sys.argv[1:]:
        DIGESTS[name] = digests(name)
    FILE.write_text(json.dumps(DIGESTS, indent=1, sort_keys=True) + "\n")
