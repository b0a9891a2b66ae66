"""Files that ship beside the code: recipes (workloads/) and calibrations (calibration/)."""

import site
import sys
from pathlib import Path


def shipped_folder(name: str) -> Path:
    """The folder `name`: of the source checkout kvsim runs from, else of the installation, be it
    for all (sys.prefix), for one user, or into a folder of its own (`pip install --target`).
    """
    beside = Path(__file__).parents[2] / name
    if (beside.parent / "pyproject.toml").exists() and beside.is_dir():
        return beside
    places = [Path(sys.prefix), Path(site.getuserbase()), Path(__file__).parents[2]]
    folders = [place / "share" / "kvsim" / name for place in places]
    return next((folder for folder in folders if folder.is_dir()), folders[0])
