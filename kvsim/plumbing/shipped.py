"""Files that ship with the code: recipes (workloads/) and calibrations (calibration/).

A checkout has them at its top; an installed package holds them in kvsim/shipped/ (setup.py).
"""

import atexit
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from tempfile import TemporaryDirectory


def shipped_folder(name: str) -> Path:
    """The folder `name`, from the checkout that kvsim runs in, else from the installed package."""
    beside = Path(__file__).parents[2] / name
    if (beside.parent / "pyproject.toml").exists() and beside.is_dir():
        return beside
    return package_folder("shipped", name)


@cache
def package_folder(*names: str) -> Path:
    """Path of a folder inside the package: kvsim/a/b for the names "a", "b".

    If kvsim is imported from a zip file, the folder is copied to a temporary one, which is removed
    when the process ends.
    """
    folder = files("kvsim").joinpath(*names)
    if isinstance(folder, Path):
        return folder
    copy = TemporaryDirectory(prefix="kvsim-")
    atexit.register(copy.cleanup)
    _copy(folder, Path(copy.name))
    return Path(copy.name)


def _copy(folder: Traversable, to: Path) -> None:
    for each in folder.iterdir():
        if each.is_dir():
            (to / each.name).mkdir()
            _copy(each, to / each.name)
        else:
            (to / each.name).write_bytes(each.read_bytes())
