"""Find how many replicas a rate needs: the smallest fleet that meets the objectives in a
simulation.
"""

import copy

from kvsim.fleet.options import MOST_REPLICAS
from kvsim.plumbing.errors import InputError
from kvsim.whatif.capacity.bisection import Asking, Bracket
from kvsim.whatif.capacity.load import MOST_REQUESTS, SIZES
from kvsim.whatif.scenario_tables import Table


def replicas_in(table: Table) -> int:
    """Number of replicas in the unchanged scenario; InputError if it cannot be changed."""
    fleet = table.get("fleet") or {}
    for key, remedy in (
        ("group", "give fleet.replicas instead"),
        ("autoscaler", "leave it out: the answer is the number that is always enough"),
    ):
        if fleet.get(key):
            raise InputError(
                "the replicas that a rate takes are counted in fleets of one size",
                where=f"fleet.{key}",
                remedy=remedy,
            )
    return int(fleet.get("replicas") or 1)


def with_replicas(table: Table, replicas: int, least: int = 1) -> Table:
    """The tables with `replicas` replicas and the same number of requests for each replica as in
    the scenario.

    At least `least` requests in all, at most MOST_REQUESTS; a trace has a fixed number.
    """
    table, before = copy.deepcopy(table), replicas_in(table)
    table["fleet"] = {**(table.get("fleet") or {}), "replicas": replicas, "regret": False}
    workload = table.get("workload") or {}
    for key in SIZES:
        if isinstance(workload.get(key), int):
            most = max(workload[key], MOST_REQUESTS)
            workload[key] = min(most, max(least, workload[key] * replicas // before))
    return table


def smallest(start: int) -> Asking:
    """Search the smallest number that meets the objectives: from the start in doubling steps up or
    down, then by bisection.
    """
    good: int | None = None
    bad = 0  # no replica serves nobody
    value, step = min(max(start, 1), MOST_REPLICAS), 1
    while good is None or good - bad > 1:
        if (yield float(value)):
            good = value
        else:
            bad = value
        if good is None:
            if bad == MOST_REPLICAS:
                return Bracket(None, float(bad))
            value = min(bad + step, MOST_REPLICAS)
        elif bad == 0 and good > step:
            value = good - step
        else:
            value = (good + bad) // 2
        step *= 2
    return Bracket(float(good), float(bad) if bad else None)
