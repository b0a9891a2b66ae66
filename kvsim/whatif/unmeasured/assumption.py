"""The numbers by which a scenario describes a load or a link, and where to read them on a real
server.
"""

import copy
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kvsim.plumbing.keys import put
from kvsim.scenario import Scenario
from kvsim.scenario.build.sized import SizedScenario
from kvsim.whatif.scenario_tables import Table
from kvsim.workload import GENERATED, grids

_GB = 10**9
FACTORS = (0.5, 2.0)
# Keys that grow with what a distribution or a process describes.
SIZES = (
    *("tokens", "min_tokens", "max_tokens", "mean", "median", "quantiles"),
    *("rate_per_s", "num_users", "count", "seconds", "mean_s", "median_s"),
)
COUNTERS = "/metrics, or the log"
LENGTHS = "a benchmark's requests"
HASHES = "block hashes of a trace"
COPIES = "timed copies"
TRANSFERS = "transfers in /metrics"
SESSIONS = "sessions of a trace"


class Assumption(NamedTuple):
    """A number of the scenario that may differ on the real server.

    key: its key in the scenario. said: its value as text. changed: the scenario with the number
    halved, and with it doubled. found: where to read it on a real server.
    """

    key: str
    said: str
    changed: tuple[Table, Table]
    found: str


class _AssumedPart(NamedTuple):
    """A key of the scenario with an assumed number. now: its value. found: where to read it on a
    real server.
    """

    key: str
    now: Any
    found: str


def assumptions(scenario: Scenario, table: Table) -> list[Assumption]:
    """The numbers of a generated load and of the links, in the order of the file. A trace was
    recorded, so it has none.
    """
    found = []
    for place in (*_load(table.get("workload")), *_links(scenario, table)):
        half, double = (scaled(place.now, factor) for factor in FACTORS)
        if half == place.now or double == place.now:
            continue  # it has no sizes, or cannot be halved
        changed = _changed(table, place.key, half), _changed(table, place.key, double)
        found.append(Assumption(place.key, _said(place.now), changed, place.found))
    return found


def scaled(value: Any, factor: float) -> Any:
    """Multiply a number, or the sizes in a distribution or arrival process, by `factor`; integers
    stay integers.
    """
    if isinstance(value, Mapping):
        if value.get("kind") == "grid" and "name" in value:
            probabilities, quantiles = grids.named(str(value["name"]), "workload grid")
            own = {"probabilities": list(probabilities), "quantiles": list(quantiles)}
            return scaled({"kind": "grid", **own}, factor)
        return {key: _part(key, each, factor) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [scaled(each, factor) for each in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return max(1, round(value * factor))
    return value * factor if isinstance(value, float) else value


def _part(key: str, value: Any, factor: float) -> Any:
    """The value of one key of a distribution, multiplied if the key is a size."""
    if key == "mu":  # mean of the logarithms
        return value + math.log(factor)
    return scaled(value, factor) if key in SIZES or key == "components" else value


def _load(workload: Any) -> Iterator[_AssumedPart]:
    """The keys of a generated load that hold assumed numbers."""
    if not isinstance(workload, Mapping) or workload.get("kind") not in GENERATED:
        return
    parts = {
        "arrivals": COUNTERS,
        "turns": SESSIONS,
        "think": SESSIONS,
        "first_prompt": LENGTHS,
        "prompt": LENGTHS,
        "output": LENGTHS,
        "max_tokens": LENGTHS,
    }
    for name, found in parts.items():
        if isinstance(workload.get(name), Mapping):
            yield _AssumedPart(f"workload.{name}", workload[name], found)
    for name in ("prefixes", "items"):
        for at, pool in enumerate(workload.get(name) or ()):
            for part in ("tokens", "count"):
                if part in pool:
                    yield _AssumedPart(f"workload.{name}.{at}.{part}", pool[part], HASHES)


def _links(scenario: Scenario, table: Table) -> Iterator[_AssumedPart]:
    """The bandwidths of the link to host memory and of the link between replicas, if the scenario
    uses these links.
    """
    names = ("enable_hierarchical_cache", "host_cache_gib")
    hosts = any(getattr(each, name, None) for each in scenario.allocator for name in names)
    if scenario.tier or hosts:
        speed = SizedScenario(scenario).device.host_bytes_per_s / _GB
        yield _AssumedPart("device.host_gb_per_s", speed, COPIES)
    if scenario.disaggregation is not None:
        speed = scenario.disaggregation.link_gb_per_s
        yield _AssumedPart("disaggregation.link_gb_per_s", speed, TRANSFERS)


def _changed(table: Table, key: str, value: Any) -> Table:
    """A copy of the scenario with another value at `key`."""
    changed = copy.deepcopy(table)
    put(changed, key, value, key)
    return changed


def _said(value: Any) -> str:
    """The sizes in a distribution or arrival process, or a number, as text: `200 to 1,000`."""
    if isinstance(value, Mapping):
        if value.get("kind") == "grid":
            return str(value.get("name", "quantiles"))
        sizes = [each for key, each in value.items() if key in SIZES and key != "quantiles"]
        return " to ".join(map(_said, sizes)) or str(value.get("kind", "fitted"))
    return f"{value:,.6g}" if isinstance(value, float) else f"{value:,}"
