"""Scenarios that are sound TOML and wrong in their structure: two recipes merged, values and tables
exchanged between keys, types swapped, keys under other tables.
"""

import copy
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from kvsim.plumbing.toml import to_toml

RECIPES = Path(__file__).parents[3] / "workloads"
COUNTS = {"num_requests": 20, "num_sessions": 4}  # a case takes a moment
Place = tuple[Any, Any]  # a table or a list, and a key or an index of it


@cache
def recipes() -> list[bytes]:
    """The recipes that need no file, of a few requests each."""
    found = []
    for path in sorted(RECIPES.glob("*.toml")):
        table = tomllib.loads(path.read_text())
        if table["workload"]["kind"] == "trace":
            continue
        table["workload"] |= {key: n for key, n in COUNTS.items() if key in table["workload"]}
        found.append(to_toml(table).encode())
    return found


def restructured(random: Random, data: bytes) -> bytes:
    """`data`, a scenario, with one change of its structure; as it is where it is no scenario."""
    try:
        table = tomllib.loads(data.decode())
        random.choice(WAYS)(random, table)
        return to_toml(table).encode()
    except (ValueError, TypeError, RecursionError):
        return data


def _other(random: Random) -> dict[str, Any]:
    return tomllib.loads(random.choice(recipes()).decode())


def _places(value: Any) -> Iterator[Place]:
    pairs = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        pairs = enumerate(value)
    for key, inner in list(pairs):
        yield value, key
        yield from _places(inner)


def _place(random: Random, table: Any) -> Place:
    return random.choice(list(_places(table)))


def _merge(random: Random, table: dict[str, Any]) -> None:
    """Replace some tables by those of another recipe."""
    other = _other(random)
    for key in random.sample(sorted(other), random.randint(1, len(other))):
        table[key] = other[key]


def _join(random: Random, table: dict[str, Any]) -> None:
    """A table of another recipe joins its namesake, key by key."""
    other = _other(random)
    for key in other.keys() & table.keys():
        if isinstance(other[key], dict) and isinstance(table[key], dict):
            table[key] = other[key] | table[key]
        elif isinstance(other[key], list) and isinstance(table[key], list):
            table[key] = table[key] + other[key]


def _exchange(random: Random, table: dict[str, Any]) -> None:
    """Two values, or tables, take each other's place."""
    (a, at), (b, to) = _place(random, table), _place(random, table)
    a[at], b[to] = copy.deepcopy(b[to]), copy.deepcopy(a[at])


def _graft(random: Random, table: dict[str, Any]) -> None:
    """Put a value of another recipe in a random place, under the key there or under its own."""
    (a, at), (b, to) = _place(random, table), _place(random, _other(random))
    if isinstance(a, dict) and isinstance(to, str) and random.random() < 0.5:
        at = to
    a[at] = b[to]


def _turn(random: Random, table: dict[str, Any]) -> None:
    """A value becomes one of another type."""
    a, at = _place(random, table)
    value = a[at]
    turned = [str(value), [value], {"kind": value}, {"name": value}, True, 0, -1, 0.5, "", [], {}]
    if isinstance(value, int | float):
        turned += [float(value), int(value), -value, [value, value]]
    if isinstance(value, list) and value:
        turned += [value[0], value * 2, value[::-1]]
    if isinstance(value, dict):
        turned += [list(value), list(value.values()), value.get("kind", 1)]
    a[at] = random.choice(turned)


def _drop(random: Random, table: dict[str, Any]) -> None:
    a, at = _place(random, table)
    del a[at]


WAYS: tuple[Callable[[Random, dict[str, Any]], None], ...] = (
    _merge, _merge, _join, _exchange, _graft, _graft, _turn, _turn, _drop,
)  # fmt: skip
