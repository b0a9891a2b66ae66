"""Digests of the summaries of all recipes: golden.json.

`PYTHONPATH=tests python -m support.golden NAME...` writes those of the named recipes again. That is
right only if a change intends to move results; CHANGELOG.md then says why.
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
    """Digest of all figures of a run in summary.json, floats by their repr. wall_s and notes are
    left out, as the wording of notes may change.
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
