"""An installation in place, written without setuptools: a path, a command and the metadata.

pip then neither fetches nor starts setuptools, and a first answer is some ten seconds nearer.
"""

import base64
import re
import tomllib
import zipfile
from hashlib import sha256
from pathlib import Path
from typing import Any

TAG = "py3-none-any"


def project() -> dict[str, Any]:
    """The table [project] of pyproject.toml in the current folder, with its version."""
    table: dict[str, Any] = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))["project"]
    found = re.search(r'^VERSION = "(.+)"$', Path("kvsim/version.py").read_text("utf-8"), re.M)
    assert found, "kvsim/version.py has no line VERSION"
    return table | {"version": found[1]}


def requirements(table: dict[str, Any]) -> list[str]:
    """What Requires-Dist says: the dependencies, and those of each extra with its marker."""
    found = list(table["dependencies"])
    for extra, names in table["optional-dependencies"].items():
        for name in names:
            what, _, marker = (part.strip() for part in name.partition(";"))
            when = f'({marker}) and extra == "{extra}"' if marker else f'extra == "{extra}"'
            found.append(f"{what}; {when}")
    return found


def metadata(table: dict[str, Any]) -> str:
    """The core metadata that an installer and importlib.metadata ask for."""
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {table['name']}",
        f"Version: {table['version']}",
        f"Summary: {table['description']}",
        f"License-Expression: {table['license']}",
        f"Requires-Python: {table['requires-python']}",
        *(f"Provides-Extra: {extra}" for extra in table["optional-dependencies"]),
        *(f"Requires-Dist: {each}" for each in requirements(table)),
    ]
    return "\n".join(lines) + "\n"


def info_files(table: dict[str, Any]) -> dict[str, str]:
    """The files of the .dist-info folder, by their names, without the record."""
    scripts = "".join(f"{name} = {where}\n" for name, where in table["scripts"].items())
    return {
        "METADATA": metadata(table),
        "WHEEL": f"Wheel-Version: 1.0\nGenerator: kvsim\nRoot-Is-Purelib: true\nTag: {TAG}\n",
        "entry_points.txt": f"[console_scripts]\n{scripts}",
    }


def folder_name(table: dict[str, Any]) -> str:
    """The name of the .dist-info folder."""
    return f"{table['name']}-{table['version']}.dist-info"


def write_metadata(directory: str) -> str:
    """The .dist-info folder inside `directory`; its name."""
    table = project()
    place = Path(directory, folder_name(table))
    place.mkdir()
    for name, text in info_files(table).items():
        (place / name).write_text(text, "utf-8")
    return place.name


def write_wheel(directory: str) -> str:
    """The wheel inside `directory` that puts the current folder on the path; its name."""
    table = project()
    info = folder_name(table)
    files = {f"{table['name']}.pth": f"{Path.cwd()}\n"}
    files |= {f"{info}/{name}": text for name, text in info_files(table).items()}
    rows = [f"{name},{digest(text)},{len(text.encode())}\n" for name, text in files.items()]
    files[f"{info}/RECORD"] = "".join(rows) + f"{info}/RECORD,,\n"
    name = f"{table['name']}-{table['version']}-{TAG}.whl"
    with zipfile.ZipFile(Path(directory, name), "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
    return name


def digest(text: str) -> str:
    """The digest of a file, as a RECORD spells it."""
    return "sha256=" + base64.urlsafe_b64encode(sha256(text.encode()).digest()).decode().rstrip("=")
