"""Compiles the rooms that run hot, by mypyc, where there is a C compiler; all else about the
package stands in pyproject.toml. The same files serve as they are where nothing is compiled.

KVSIM_COMPILE=0 leaves it out; KVSIM_COMPILE=1 fails where it cannot be done.
"""

import os
import re
import shutil
import sys
import sysconfig
from hashlib import sha256
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

LIST = Path("kvsim", "compiled.txt")
# What mypyc would take for classes of its own and is not: pydantic's, and simpy's events.
FOREIGN = re.compile(r"^from pydantic import|^class \w+\((simpy\.|.*Options\))", re.MULTILINE)
DIGESTS = Path("kvsim", "compiled.sha256")


def sources() -> list[str]:
    """The files to compile: the patterns of the list, less those that begin with "!", and less
    those with classes that cannot be.
    """
    patterns = [line for line in LIST.read_text().split("\n") if line and line[0] != "#"]
    out = {path for line in patterns if line[0] == "!" for path in Path().glob(line[1:])}
    found = {path for line in patterns if line[0] != "!" for path in Path().glob(line)}
    return sorted(
        path.as_posix() for path in found - out if not FOREIGN.search(path.read_text("utf-8"))
    )


def extensions() -> list[Extension]:
    """The compiled modules, or none."""
    wish = os.environ.get("KVSIM_COMPILE", "")
    if wish == "0" or sys.implementation.name != "cpython":
        return []
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if wish != "1" and os.name == "posix" and shutil.which(compiler) is None:
        return []
    try:
        from mypyc.build import mypycify
    except ImportError:
        if wish == "1":
            raise
        return []
    made: list[Extension] = mypycify(
        ["--config-file", "mypyc.ini", *sources()], opt_level="1", group_name="kvsim"
    )
    for extension in made:
        extension.optional = wish != "1"
    return made


class BuildCompiled(build_ext):
    """Writes down what was compiled, so that whoever edits a source gets what he wrote; leaves
    nothing behind that could not be finished, or that is compiled no longer.
    """

    def run(self) -> None:
        target = DIGESTS if self.inplace else Path(self.build_lib, DIGESTS)
        target.unlink(missing_ok=True)
        super().run()
        built = [Path(self.get_ext_fullpath(each.name)).resolve() for each in self.extensions]
        done = bool(built) and all(path.exists() for path in built)
        for path in {*target.parent.resolve().rglob("*.so"), *built}:
            if not done or path not in built:
                path.unlink(missing_ok=True)
        if done:
            lines = (f"{sha256(Path(name).read_bytes()).hexdigest()}  {name}" for name in sources())
            target.write_text("\n".join(lines) + "\n")


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildCompiled})
