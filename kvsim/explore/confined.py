"""Limits on what a page may read, start and report.

Paths must be inside the base scenario's folder, work is bounded, and errors quote no content of a
file.

Any visitor of the page changes its settings, and a link changes them too. So none of it may open
another file of this machine's user, or use all of the machine's time and memory.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kvsim.explore.starting_points import StartingPoint
from kvsim.model.find import is_of_file
from kvsim.plumbing.errors import InputError
from kvsim.scenario.resolved import PATH_KEYS

# What is simulated without a click: beyond it the page asks, and Run goes on without a limit.
MOST_REQUESTS = 200_000
MOST_SECONDS = 60.0
MOST_MEMORY_BYTES = 4 << 30
ASK = "press Run, or Sweep again, to simulate it all the same"
_COUNTS = ("num_requests", "num_sessions")
_NO_FILE = ("memory", "allocator", "scheduler")  # tables whose faults come of no file's content


def check_paths(table: Mapping[str, Any], base: StartingPoint) -> None:
    """Raise InputError for a path outside the base scenario's folder, unless the base scenario has
    it. A tour stop has no folder, so no paths.
    """
    own = set(_paths(base.table))
    folder = base.folder.resolve()
    for key, path in _paths(table):
        inside = base.asked is not None and (folder / path).resolve().is_relative_to(folder)
        if (key, path) not in own and not inside:
            raise InputError(
                "the page reads files of its scenario's folder alone",
                where=key,
                value=path,
                limit="a path inside the folder of the scenario that kvsim explore was given",
                remedy=f"kvsim run reads any: kvsim run SCENARIO --set {key}=PATH",
            )


def check_amount(table: Mapping[str, Any], points: int = 1) -> None:
    """Raise InputError, with the button to press, for more requests than the page starts unless the
    user confirms.

    points: number of values of a sweep, each of which has all requests.
    """
    asked = points * _requests(table.get("workload"))
    if asked > MOST_REQUESTS:
        raise InputError(
            f"{asked:,} requests are more than the page simulates unasked",
            limit=f"{MOST_REQUESTS:,}",
            remedy=ASK,
        )


def said(error: InputError, table: Mapping[str, Any], base_table: Mapping[str, Any]) -> str:
    """An error of a simulated scenario, without parts that quote a file."""
    paths, own = set(_paths(table)), set(_paths(base_table))
    where = error.where or ""
    of_file = [key for key, path in paths if Path(path).name in where]
    if of_file or (paths - own and not where.startswith(_NO_FILE)):
        key = next(iter(of_file), "") or ", ".join(sorted(key for key, _ in paths - own))
        return f"{key}: the file cannot be read as what it should be; kvsim run says where and why"
    return str(error)


def _requests(value: Any) -> int:
    if isinstance(value, Mapping):
        own = sum(value[key] for key in _COUNTS if isinstance(value.get(key), int | float))
        return int(own) + sum(map(_requests, value.values()))
    return sum(map(_requests, value)) if isinstance(value, list) else 0


def _paths(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """File paths among the values of nested tables, each as (dotted key, path)."""
    if isinstance(value, list):
        value = {str(index): each for index, each in enumerate(value)}
    if not isinstance(value, Mapping):
        return
    for key, each in value.items():
        if isinstance(each, str) and (key in PATH_KEYS or (key == "drafter" and _is_path(each))):
            yield f"{place}{key}", each
        else:
            yield from _paths(each, f"{place}{key}.")


def _is_path(drafter: str) -> bool:
    """Whether [memory]'s drafter may be a file or a folder rather than a name."""
    return is_of_file(drafter) or drafter.startswith(("/", ".")) or ".." in drafter
