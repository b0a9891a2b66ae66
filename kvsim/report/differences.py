"""Differences between scenarios, by key."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple


class Difference(NamedTuple):
    """A key with different values in the scenarios, and its value in each (None if missing)."""

    key: str
    values: tuple[Any, ...]


def differences(scenarios: Sequence[Mapping[str, Any]]) -> list[Difference]:
    """The dotted keys in which the scenarios differ; items of a list by index (`allocator.0`).

    Keys are in the order of the first scenario; a key that it lacks follows the others of its
    table.
    """
    flat = [dict(_leaves(scenario)) for scenario in scenarios]
    keys = _by_table(dict.fromkeys(key for leaves in flat for key in leaves))
    rows = [(key, tuple(leaves.get(key) for leaves in flat)) for key in keys]
    # Above the keys of a table, that it is empty elsewhere says nothing more.
    tables = {key[:at] for key in keys for at, char in enumerate(key) if char == "."}
    rows = [(key, values) for key, values in rows if key not in tables or any(values)]
    return [
        Difference(key, values)
        for key, values in rows
        if any(value != values[0] for value in values[1:])
    ]


def _by_table(keys: Iterable[str]) -> list[str]:
    """The keys in order, with all keys of a table at the place of its first one."""
    stands: dict[str, int] = {}  # a key or table: where it was first seen
    paths = []
    for key in keys:
        parts = key.split(".")
        path = [".".join(parts[: depth + 1]) for depth in range(len(parts))]
        paths.append([stands.setdefault(part, len(stands)) for part in path])
    names = list(stands)
    return [names[path[-1]] for path in sorted(paths)]


def _leaves(value: object, path: str = "") -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        parts = [(str(key), inner) for key, inner in value.items()]
    elif isinstance(value, list | tuple) and any(isinstance(inner, Mapping) for inner in value):
        parts = [(str(index), inner) for index, inner in enumerate(value)]
    else:
        return [(path, value)]
    return [leaf for key, inner in parts for leaf in _leaves(inner, f"{path}.{key}".strip("."))]
