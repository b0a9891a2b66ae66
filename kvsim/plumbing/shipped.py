"""Files that ship beside the code: recipes (workloads/) and calibrations (calibration/)."""

import sys
from pathlib import Path


def shipped_folder(name: str) -> Path:
    """The folder `name`: of the source checkout kvsim runs from, else of the installation."""
    beside = Path(__file__).parents[2] / name
    if (beside.parent / "pyproject.toml").exists() and beside.is_dir():
        return beside
    return Path(sys.prefix) / "share" / "kvsim" / name
