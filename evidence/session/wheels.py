"""`python -m evidence.session.wheels`: the wheels that a machine with only torch needs for a
session.

Prints a line `name==version` for each package that a session's stages need besides HERE, and their
dependencies, in the versions installed here. With --download DIR pip downloads their wheels for
that machine's Python to DIR. `python -m evidence.session --wheels DIR` then uses them without pip.
"""

import argparse
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from evidence.session.archive import SITE
from kvsim.plumbing.errors import InputError

ROOTS = ("simpy", "pydantic", "scipy", "pandas", "pyarrow", "typer", "rich", "plotly", "jinja2",
         "mypy_extensions")  # fmt: skip
# What an image for training has by itself.
HERE = ("torch", "triton", "numpy", "scipy", "pandas", "pyarrow", "typer", "rich", "jinja2",
        "packaging", "typing_extensions")  # fmt: skip
PYTHON = "3.12"
PLATFORM = "manylinux_2_28_x86_64"


def wheels(have: tuple[str, ...] = HERE) -> list[str]:
    """Lines `name==version`, with the versions installed here; InputError for a missing one."""
    known = {_canonical(name) for name in have}
    found: dict[str, str] = {}
    todo = list(ROOTS)
    while todo:
        name = _canonical(todo.pop())
        if name in known or name in found:
            continue
        try:
            package = distribution(name)
        except PackageNotFoundError:
            if name not in map(_canonical, ROOTS):  # for another Python, or another system
                continue
            raise InputError("not installed here", where="wheels", value=name) from None
        found[name] = package.version
        needed = (line for line in package.requires or () if "extra ==" not in line)
        todo += [re.split(r"[^\w.-]", line)[0] for line in needed]
    return [f"{name}=={version}" for name, version in sorted(found.items())]


def _canonical(name: str) -> str:
    """A package's name in the normalised form of a package index."""
    return re.sub(r"[-_.]+", "-", name).lower()


def use_wheels(folder: Path, out: Path) -> Path:
    """Unpack all wheels of a folder into a session's folder; returns the folder to import from."""
    site = out / SITE
    found = sorted(folder.glob("*.whl"))
    if not found:
        raise InputError("no wheels", where=str(folder), remedy="python -m evidence.session.wheels")
    for path in found:
        try:
            with ZipFile(path) as wheel:
                wheel.extractall(site)
        except (OSError, BadZipFile) as error:
            raise InputError("no wheel", where=str(path), value=error) from None
    return site


def main(arguments: list[str] | None = None) -> int:
    """List or download the wheels. Exit code 0; 1 if pip fails; 2 if a package is not installed."""
    parser = argparse.ArgumentParser(prog="python -m evidence.session.wheels", description=__doc__)
    parser.add_argument("--download", type=Path, metavar="DIR", help="bring them to DIR, by pip")
    parser.add_argument("--python", default=PYTHON, help="of the machine that they are for")
    parser.add_argument("--have", help=f"what is there, by commas; {','.join(HERE)}")
    given = parser.parse_args(arguments)
    try:
        lines = wheels(tuple(given.have.split(",")) if given.have else HERE)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - this is a command
        return 2
    print("\n".join(lines))  # noqa: T201
    if given.download is None:
        return 0
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--python-version", given.python]
    command += ["--platform", PLATFORM, "--platform", "manylinux2014_x86_64"]
    command += ["--dest", str(given.download), *lines]
    done = subprocess.run(command, check=False)  # noqa: S603 - of names installed here
    if done.returncode == 0:
        size = sum(path.stat().st_size for path in given.download.glob("*.whl"))
        print(f"{size / 2**20:.1f} MiB in {given.download}", file=sys.stderr)  # noqa: T201
    return min(done.returncode, 1)


if __name__ == "__main__":
    sys.exit(main())
