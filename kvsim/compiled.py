"""The choice between the compiled modules and their sources.

setup.py compiles the modules listed in compiled.txt and records their digests in compiled.sha256.
The compiled modules run as long as every one of those files is unchanged, and unless KVSIM_COMPILED
is 0. Else the sources run, all of them: the two do not mix. With KVSIM_COMPILED=1 modules that are
not compiled are an error.
"""

import os
import sys
from collections.abc import Sequence
from hashlib import sha256
from importlib.machinery import EXTENSION_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

PACKAGE = Path(__file__).parent
SWITCH = "KVSIM_COMPILED"
LIBRARY = "kvsim__mypyc"


class Sources:
    """Import finder that loads kvsim's modules from their .py sources, never compiled."""

    def __init__(self) -> None:
        self._finders: dict[str, FileFinder] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("kvsim.") or path is None:
            return None
        for folder in path:
            if folder not in self._finders:
                self._finders[folder] = FileFinder(folder, (SourceFileLoader, [".py"]))
            spec = self._finders[folder].find_spec(fullname, target)
            if spec is not None and spec.loader is not None:
                return spec
        return None


class Library:
    """Import finder for the shared library of all compiled modules, next to the package. An
    editable install may not register this library.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return library() if fullname == LIBRARY else None


def library() -> ModuleSpec | None:
    """Import spec of the shared library built for this Python; None if there is none."""
    for suffix in EXTENSION_SUFFIXES:
        place = PACKAGE.parent / f"{LIBRARY}{suffix}"
        if place.exists():
            return spec_from_file_location(LIBRARY, place)
    return None


def counts(digests: Path) -> bool:
    """Whether to run the compiled modules: KVSIM_COMPILED allows them, they are built for this
    Python, and every source has its recorded digest.
    """
    if os.environ.get(SWITCH) == "0" or library() is None:
        return False
    folder = os.fspath(PACKAGE.parent)
    return all(
        _digest(f"{folder}/{name}") == digest
        for digest, name in map(str.split, digests.read_text().splitlines())
    )


def _digest(path: str) -> str:
    try:
        with open(path, "rb", buffering=0) as file:
            return sha256(file.read()).hexdigest()
    except OSError:
        return ""


def settle() -> bool:
    """Choose compiled modules or sources for this process, before any module is imported. Returns
    True for compiled.
    """
    digests = PACKAGE / "compiled.sha256"
    there = digests.exists()
    if there and counts(digests):
        sys.meta_path.append(Library())
        return True
    if os.environ.get(SWITCH) == "1":
        was = "its sources have changed since" if there else "nothing is compiled"
        raise ImportError(f"{SWITCH}=1, but {was}: install kvsim again, or leave {SWITCH} out")
    if there or library() is not None:  # without digests: what a broken compilation left behind
        sys.meta_path.insert(0, Sources())
    return False
