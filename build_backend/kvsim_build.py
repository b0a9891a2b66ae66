"""The build backend: setuptools' own, which asks for mypy only where modules are compiled.

mypy brings mypyc, which setup.py compiles with. An installation in place compiles nothing unless
KVSIM_COMPILE is 1, and so is ready some ten seconds earlier.
"""

import os
import shutil
import sys
import sysconfig

from setuptools.build_meta import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

MYPYC = ["mypy>=2.0"]


def compiles() -> bool:
    """Whether a wheel that is built now holds compiled modules."""
    wish = os.environ.get("KVSIM_COMPILE", "")
    if wish == "0" or sys.implementation.name != "cpython":
        return False
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    return wish == "1" or os.name != "posix" or shutil.which(compiler) is not None


def get_requires_for_build_wheel(config_settings: dict[str, str] | None = None) -> list[str]:
    """Names of the packages that building a wheel needs."""
    return MYPYC * compiles()


def get_requires_for_build_editable(config_settings: dict[str, str] | None = None) -> list[str]:
    """Names of the packages that an installation in place needs."""
    return MYPYC * (os.environ.get("KVSIM_COMPILE") == "1")
