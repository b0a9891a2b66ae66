"""Compiles the modules that run hot with mypyc, where there is a C compiler; everything else about
the package stands in pyproject.toml. The same files run as they are where nothing is compiled.

KVSIM_COMPILE=0 compiles nothing. KVSIM_COMPILE=1 compiles, and fails where that cannot be done.
Without it a wheel is compiled where a compiler is found, and an installation in place is not.
"""

import os
import re
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from hashlib import sha256
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).parent / "build_backend"))
import kvsim_build
import kvsim_editable
import kvsim_index

LIST = Path("kvsim", "compiled.txt")
# What mypyc would take for classes of its own and is not: pydantic's, and simpy's events.
FOREIGN = re.compile(r"^from pydantic import|^class \w+\((simpy\.|.*Options\))", re.MULTILINE)
# Calls from one file to another go straight, not by a table that others could change: runs take a
# sixth less. Linkers of other systems do so unasked.
BOUND = "-Wl,-Bsymbolic"
SHIPPED = (
    *("workloads/*.toml", "calibration/*.json", "calibration/models/*.json"),
    *(f"calibration/kernels/{each}" for each in ("*.npz", "*.json", "NOTICE")),
)
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
    must = os.environ.get("KVSIM_COMPILE") == "1"
    if not kvsim_build.compiles():
        return []
    try:
        from mypyc.build import mypycify
    except ImportError:
        if must:
            raise
        return []
    # One C file a module: they compile side by side, each in little memory.
    made: list[Extension] = mypycify(
        ["--config-file", "mypyc.ini", *sources()],
        opt_level="1",
        multi_file=True,
        group_name="kvsim",
    )
    for extension in made:
        extension.optional = not must
        if sys.platform.startswith("linux"):
            extension.extra_link_args.append(BOUND)
    return made


class BuildCompiled(build_ext):
    """Compiles on all processors, and writes down what was compiled, so that whoever edits a source
    runs the edited source. Nothing stays behind that was not finished, or is compiled no longer.
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

    def build_extension(self, ext: Extension) -> None:
        """As setuptools does, but many sources of one extension are compiled side by side."""
        if len(ext.sources) > 1:
            one_by_one = self.compiler.compile
            self.compiler.compile = lambda sources, **options: side_by_side(
                one_by_one, sources, options
            )
            try:
                super().build_extension(ext)
            finally:
                self.compiler.compile = one_by_one
        else:
            super().build_extension(ext)


def side_by_side(compile_: Any, sources: list[str], options: dict[str, Any]) -> list[str]:
    """Object files of the sources, in their order, compiled on all processors; tells how far it is.

    compile_: setuptools' own function, of a list of sources. The first source goes alone: it makes
    the folders that the others write to.
    """
    began, number = time.monotonic(), len(sources)
    objects = {sources[0]: compile_([sources[0]], **options)}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = {pool.submit(compile_, [each], **options): each for each in sources[1:]}
        try:
            for job in as_completed(jobs):
                objects[jobs[job]] = job.result()
                done = len(objects)
                if done % max(number // 10, 1) == 0 or done == number:
                    passed = time.monotonic() - began
                    print(f"compiled {done} of {number} files, {passed:.0f} s", file=sys.stderr)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [path for each in sources for path in objects[each]]


class BuildWithShipped(build_py):
    """Puts the files of SHIPPED, which lie at the top of the checkout, into kvsim/shipped/."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for source, target in self._shipped():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """What is installed, for the record of the wheel."""
        found: list[str] = super().get_outputs(include_bytecode)
        return found + [str(target) for _, target in self._shipped()]

    def _shipped(self) -> list[tuple[Path, Path]]:
        found = sorted(path for pattern in SHIPPED for path in Path().glob(pattern))
        return [(path, Path(self.build_lib, "kvsim", "shipped", path)) for path in found]


def builds() -> bool:
    """Whether this call of setup.py makes extensions: not one that writes metadata or sources, nor
    an installation in place that nobody asked to be compiled.
    """
    if "editable_wheel" in sys.argv and os.environ.get("KVSIM_COMPILE") != "1":
        return False
    return not {"dist_info", "egg_info", "sdist"}.intersection(sys.argv)


setup(
    ext_modules=extensions() if builds() else [],
    **kvsim_index.shown(kvsim_editable.project()["version"]),
    cmdclass={"build_ext": BuildCompiled, "build_py": BuildWithShipped},
)
