"""The starting points of the page: the given scenario, the recipes, the stops of the tour."""

from pathlib import Path
from typing import Any, NamedTuple

from kvsim.explore.tour import STOPS, stop_tables
from kvsim.scenario import load_tables, recipes

TOUR = "tour:"


class StartingPoint(NamedTuple):
    """One starting point. name: its name in the address. table: a scenario's tables. folder: where
    its relative paths start. asked: its name for `kvsim run`; None without one.
    """

    name: str
    table: dict[str, Any]
    folder: Path
    asked: str | None


def normal(table: dict[str, Any]) -> dict[str, Any]:
    """A copy of the tables with the allocators as a list of tables; short forms are expanded."""
    held = table.get("allocator")
    some = held if isinstance(held, list) else [held]
    plain = [{"kind": each} if isinstance(each, str) else each for each in some]
    return {**table, "allocator": plain}


def find_starting_points(given: str | None) -> dict[str, StartingPoint]:
    """All starting points by name, the given scenario first; InputError if it is not valid. An
    address can only name these and no other file.
    """
    found = {}
    if given is not None:
        table, folder = load_tables(given)
        name = Path(given).stem if Path(given).exists() else given
        found[name] = StartingPoint(name, normal(table), folder, given)
    for name in recipes():
        if name not in found:
            table, folder = load_tables(name)
            found[name] = StartingPoint(name, normal(table), folder, name)
    for stop in STOPS:
        name = f"{TOUR}{stop}"
        found[name] = StartingPoint(name, normal(stop_tables(stop)), Path(), None)
    return found
