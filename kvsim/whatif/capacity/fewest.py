"""The fewest GPUs that serve a rate within the objectives: the number of replicas of each kind.

The search only relies on one fact: more replicas of a kind never serve worse.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from kvsim.plumbing.errors import InputError
from kvsim.simulation import Simulation
from kvsim.whatif.capacity.bisection import Bounds, answered, bisect
from kvsim.whatif.capacity.questions import SPLIT_KEYS, prepared
from kvsim.whatif.scenario_tables import Table, with_value

MOST_REPLICAS = 256  # of each kind
FLEET_KEY = "fleet.replicas"
Keeps = Callable[[tuple[int, ...]], bool]


class ReplicaKey(NamedTuple):
    """The key that sets the number of replicas of one kind. key: dotted key in the tables. gpus: of
    one replica. start: the scenario's own number.
    """

    key: str
    gpus: int
    start: int


def replica_keys(table: Table, folder: Path) -> tuple[ReplicaKey, ...]:
    """The keys of prefill and decode replicas under [disaggregation], else of [fleet]'s replicas.

    InputError for a fleet of groups.
    """
    simulation: Simulation = prepared(table, folder)
    fleet, apart = simulation.scenario.fleet, simulation.scenario.disaggregation
    if apart is not None:
        assert simulation.apart is not None
        each = simulation.apart.side_gpus
        times = 1 if fleet is None else fleet.replicas or 1
        starts = apart.prefill.replicas, apart.decode.replicas
        return tuple(
            ReplicaKey(key, gpus * times, start)
            for key, gpus, start in zip(SPLIT_KEYS, each, starts, strict=True)
        )
    if fleet is not None and fleet.group:
        raise InputError(
            "replicas of several groups are not searched",
            where="--find",
            value="gpus",
            remedy="give the scenario fleet.replicas in place of fleet.group",
        )
    start = 1 if fleet is None else fleet.replicas or 1
    return (ReplicaKey(FLEET_KEY, simulation.num_gpus, start),)


def with_counts(table: Table, keys: Sequence[ReplicaKey], counts: Sequence[int]) -> Table:
    """The tables with counts[i] replicas of kind keys[i]."""
    for each, count in zip(keys, counts, strict=True):
        table = with_value(table, each.key, count, "--find")
    return table


def num_gpus(keys: Sequence[ReplicaKey], counts: Sequence[int]) -> int:
    """Total GPUs of counts[i] replicas of each kind keys[i]."""
    return sum(each.gpus * count for each, count in zip(keys, counts, strict=True))


def fewest(keys: Sequence[ReplicaKey], keeps: Keeps) -> tuple[int, ...] | None:
    """The number of replicas of each kind with the fewest GPUs in total that meet the objectives;
    None: 256 of each do not.
    """
    start = max(each.start for each in keys)
    equal = _least(lambda count: keeps((count,) * len(keys)), start, 1, MOST_REPLICAS)
    if equal is None or len(keys) == 1:
        return None if equal is None else (equal,)
    first, second = keys
    best = equal, equal
    for ones in range(1, MOST_REPLICAS + 1):
        room = num_gpus(keys, best) - 1 - ones * first.gpus
        most = min(room // second.gpus, MOST_REPLICAS)  # with which there were fewer
        if most < 1:
            break
        least = _least(partial(_keeps_both, keeps, ones), most, 1, most)
        best = best if least is None else (ones, least)
    return best


def _keeps_both(keeps: Keeps, first: int, second: int) -> bool:
    return keeps((first, second))


def _least(keeps: Callable[[int], bool], start: int, least: int, most: int) -> int | None:
    bounds = Bounds(start, least, most, largest=False, whole=True, tolerance=0.0)
    found = answered(bisect(bounds), lambda count: keeps(int(count))).kept
    return None if found is None else int(found)
