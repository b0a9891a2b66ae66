"""The state of the page: a base scenario's tables with changes, also in the form of an address."""

import json
from collections.abc import Mapping
from copy import deepcopy
from hashlib import sha256
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

from kvsim.explore.confined import check_paths
from kvsim.explore.starting_points import StartingPoint, normal
from kvsim.plumbing.errors import InputError
from kvsim.plumbing.keys import assignment, put
from kvsim.plumbing.toml import value_text
from kvsim.scenario import Scenario

FROM, SET = "from", "set"


class ScenarioState(NamedTuple):
    """A scenario being edited. base: name of its starting point. table: its current tables."""

    base: str
    table: dict[str, Any]

    def scenario(self, starting_points: Mapping[str, StartingPoint]) -> Scenario:
        """The checked scenario; InputError if the tables are not valid."""
        check_paths(self.table, starting_points[self.base])
        return Scenario.from_table(self.table, starting_points[self.base].folder)

    def settings(self, starting_points: Mapping[str, StartingPoint]) -> list[str]:
        """The `--set` arguments that turn the base into this state."""
        return list(_settings(starting_points[self.base].table, self.table, ""))

    def query(self, starting_points: Mapping[str, StartingPoint]) -> str:
        """The state as the query part of an address (after the question mark)."""
        pairs = [(FROM, self.base), *((SET, each) for each in self.settings(starting_points))]
        return urlencode(pairs)

    @property
    def key(self) -> str:
        """A key that two equal states share. 3.0 equals 3, since a browser that stores the state
        does not distinguish them.
        """
        text = json.dumps([self.base, _whole_as_int(self.table)], sort_keys=True)
        return sha256(text.encode()).hexdigest()[:20]


def _whole_as_int(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _whole_as_int(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_whole_as_int(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def started(base: StartingPoint, settings: list[str] | None = None) -> ScenarioState:
    """The state of a base with some keys set; InputError if it is not a valid scenario."""
    table = deepcopy(base.table)
    for each in settings or []:
        put(table, *assignment(each, "address"), "address")
    state = ScenarioState(base.name, normal(table))
    state.scenario({base.name: base})
    return state


def read_query(
    query: str, starting_points: Mapping[str, StartingPoint], default: str
) -> ScenarioState:
    """Parse the state in an address; InputError for an invalid address."""
    pairs = parse_qsl(query.removeprefix("?"), keep_blank_values=True)
    name = next((value for key, value in pairs if key == FROM), default)
    if name not in starting_points:
        raise InputError(
            "the address starts from what this page does not have",
            where=FROM,
            value=name,
            remedy=f"known: {', '.join(starting_points)}",
        )
    return started(starting_points[name], [value for key, value in pairs if key == SET])


def _settings(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> list[str]:
    """The changes from `old` to `new`, key by key; a table that lost a key, or changed its kind, is
    set as a whole.
    """
    found = []
    for key, value in new.items():
        name, before = f"{path}{key}", old.get(key)
        if value == before:
            continue
        if (
            isinstance(value, Mapping)
            and isinstance(before, Mapping)
            and before.keys() <= value.keys()
            and value.get("kind") == before.get("kind")
        ):
            found += _settings(before, value, f"{name}.")
        else:
            found.append(f"{name}={value_text(value)}")
    return found
