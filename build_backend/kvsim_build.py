"""The build backend: setuptools' own, asked for where it is needed.

An installation in place needs nothing (kvsim_editable), unless KVSIM_COMPILE is 1. mypy brings
mypyc, which setup.py compiles with.
"""

import os
import shutil
import sys
import sysconfig
from typing import Any

import kvsim_editable

SETUPTOOLS = ["setuptools>=77"]
MYPYC = ["mypy>=2.0"]
Settings = dict[str, Any] | None


def compiles() -> bool:
    """Whether a wheel that is built now holds compiled modules."""
    wish = os.environ.get("KVSIM_COMPILE", "")
    if wish == "0" or sys.implementation.name != "cpython":
        return False
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    return wish == "1" or os.name != "posix" or shutil.which(compiler) is not None


def compiles_in_place() -> bool:
    """Whether an installation in place compiles: only where somebody asks for it."""
    return os.environ.get("KVSIM_COMPILE") == "1"


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """Names of the packages that building a wheel needs."""
    return SETUPTOOLS + MYPYC * compiles()


def get_requires_for_build_sdist(config_settings: Settings = None) -> list[str]:
    """Names of the packages that the archive of the sources needs."""
    return SETUPTOOLS


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    """Names of the packages that an installation in place needs."""
    return (SETUPTOOLS + MYPYC) * compiles_in_place()


def build_wheel(directory: str, config_settings: Settings = None, metadata: Any = None) -> str:
    """Setuptools' wheel."""
    from setuptools import build_meta

    return build_meta.build_wheel(directory, config_settings, metadata)


def build_sdist(directory: str, config_settings: Settings = None) -> str:
    """Setuptools' archive of the sources."""
    from setuptools import build_meta

    return build_meta.build_sdist(directory, config_settings)


def prepare_metadata_for_build_wheel(directory: str, config_settings: Settings = None) -> str:
    """Setuptools' metadata."""
    from setuptools import build_meta

    return build_meta.prepare_metadata_for_build_wheel(directory, config_settings)


def prepare_metadata_for_build_editable(directory: str, config_settings: Settings = None) -> str:
    """The metadata of an installation in place."""
    if not compiles_in_place():
        return kvsim_editable.write_metadata(directory)
    from setuptools import build_meta

    return build_meta.prepare_metadata_for_build_editable(directory, config_settings)


def build_editable(directory: str, config_settings: Settings = None, metadata: Any = None) -> str:
    """The wheel of an installation in place."""
    if not compiles_in_place():
        return kvsim_editable.write_wheel(directory)
    from setuptools import build_meta

    return build_meta.build_editable(directory, config_settings, metadata)
