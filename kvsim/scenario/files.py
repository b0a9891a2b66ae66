"""Load a scenario's tables from a TOML file, the folder of a run, or a shipped recipe."""

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.keys import assignment, put
from kvsim.plumbing.reading.toml_text import read_table
from kvsim.plumbing.shipped import shipped_folder


def load_tables(source: str | Path, overrides: Iterable[str] = ()) -> tuple[dict[str, Any], Path]:
    """(unchecked tables of a scenario file or recipe with `overrides` applied, its folder)."""
    path = find_scenario(source)
    try:
        table = read_table(path)
    except InputError as error:
        if path.suffix in (".toml", ""):
            raise
        remedy = f'requests go into a scenario: [workload] kind = "trace", path = "{path.name}"'
        raise InputError(error.what, where=error.where, remedy=remedy) from None
    for override in overrides:
        put(table, *assignment(override, "--set"), "--set")
    return table, path.parent


def find_scenario(source: str | Path) -> Path:
    """The path of a scenario file, or of the shipped recipe with that name."""
    path = Path(source)
    if path.is_dir() and str(source) not in recipes():
        if (path / "scenario.toml").is_file():
            return path / "scenario.toml"
        raise InputError(
            "a folder without a scenario.toml",
            where=str(source),
            remedy="give a scenario file, or a folder written by kvsim run --out",
        )
    if path.suffix == ".toml" or path.is_file():
        if path.exists():
            return path
        raise InputError("no such scenario file", where=str(source))
    return find_recipe(str(source))


def find_recipe(name: str) -> Path:
    """The file of a shipped recipe; the InputError for an unknown name lists all."""
    if name in recipes():
        return recipes()[name]
    close = get_close_matches(name, recipes(), n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise InputError(
        "no such scenario",
        where=name,
        remedy=f"{hint}give a .toml file or one of the recipes: {', '.join(recipes())}",
    )


def recipes() -> dict[str, Path]:
    """The scenarios that ship with kvsim, by name."""
    return {path.stem: path for path in sorted(shipped_folder("workloads").glob("*.toml"))}
