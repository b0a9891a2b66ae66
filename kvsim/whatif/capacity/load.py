"""The load of a scenario: its key in the tables, and how to change it."""

import copy
import math
from typing import Any

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.keys import put
from kvsim.scenario import no_workload
from kvsim.workload.arrivals import ARRIVALS

RATE, SCALE = "rate_per_s", "rate_scale"
MOST_REQUESTS = 10_000  # of a run, unless the scenario itself has more
SIZES = ("num_requests", "num_sessions")  # of a workload that is generated


def with_rate(table: dict[str, Any], rate_per_s: float) -> dict[str, Any]:
    """The tables with this mean rate of requests (or conversations); InputError if their arrivals
    have no rate.
    """
    table = copy.deepcopy(table)
    workload = table.get("workload")
    if not isinstance(workload, dict):
        raise no_workload()
    arrivals = workload.get("arrivals")
    if arrivals is None and workload.get("kind") == "trace":
        workload.pop(SCALE, None)
        workload[RATE] = rate_per_s
        return table
    if isinstance(arrivals, str):
        workload["arrivals"] = arrivals = {"kind": arrivals}
    table_of = arrivals if isinstance(arrivals, dict) else {}
    kind = str(table_of.get("kind"))
    if kind not in ARRIVALS or RATE not in ARRIVALS.get(kind).model_fields:
        raise InputError(
            "these arrivals have no rate to change",
            where="workload.arrivals.kind",
            value=kind,
            remedy="use poisson, gamma, weibull or constant, or a trace's own times; of users that "
            "wait for answers, kvsim capacity --find num_users",
        )
    table_of[RATE] = rate_per_s
    return table


def rate_key(table: dict[str, Any]) -> str:
    """The key that `with_rate` sets."""
    workload = table["workload"]
    own = workload.get("arrivals") is None and workload.get("kind") == "trace"
    return f"workload.{RATE}" if own else f"workload.arrivals.{RATE}"


def faster(table: dict[str, Any], factor: float) -> dict[str, Any]:
    """The tables with arrivals `factor` times as fast; InputError if their arrivals have no
    rate.
    """
    rate, workload = rate_of(table), table.get("workload")
    if not isinstance(workload, dict):
        return with_rate(table, factor)  # says what is missing
    if rate is None and workload.get("kind") == "trace" and workload.get("arrivals") is None:
        scale = float(workload.get(SCALE) or 1.0)
        return {**table, "workload": {**workload, SCALE: scale * factor}}
    return with_rate(table, (rate or 1.0) * factor)  # without a rate, it says why


def users_key(table: dict[str, Any]) -> str | None:
    """The key of the number of closed-loop users; None if the arrivals have a rate."""
    workload = table.get("workload")
    if not isinstance(workload, dict):
        return None
    arrivals = workload.get("arrivals")
    kind = arrivals.get("kind") if isinstance(arrivals, dict) else arrivals
    if kind == "closed-loop":
        return "workload.arrivals.num_users"
    if workload.get("max_concurrency") and not _has_rate(table):
        return "workload.max_concurrency"
    return None


def users_of(table: dict[str, Any]) -> int:
    """The number of closed-loop users; InputError if the arrivals have a rate instead."""
    key = users_key(table)
    if key is None:
        raise InputError(
            "no users to count: these arrivals do not wait for answers",
            where="--find",
            value="num_users",
            remedy="leave --find out; it looks for the rate",
        )
    place: Any = table
    for part in key.split("."):
        place = place[part]
    return int(place)


def with_users(table: dict[str, Any], users: int) -> dict[str, Any]:
    """The tables with `users` users, each with as many requests (or conversations) as before, up to
    MOST_REQUESTS in all; a trace has a fixed number.
    """
    before, key = users_of(table), users_key(table)
    table = copy.deepcopy(table)
    put(table, str(key), users, "--find")
    workload = table["workload"]
    for size in SIZES:
        if isinstance(workload.get(size), int):
            own = workload[size]
            workload[size] = max(own, min(math.ceil(own * users / before), MOST_REQUESTS))
    return table


def most_users(table: dict[str, Any], requests: int) -> int:
    """The most users for which the stream has as many requests for each as now; for a fixed stream,
    its number of requests.
    """
    before, workload = users_of(table), table["workload"]
    own = next((workload[size] for size in SIZES if isinstance(workload.get(size), int)), None)
    if own is None:
        return max(before, requests)
    return int(max(before, MOST_REQUESTS * before // max(own, before)))


def rate_of(table: dict[str, Any]) -> float | None:
    """The arrival rate in the tables; None if none is set (a trace at its recorded speed)."""
    workload = table.get("workload")
    if not isinstance(workload, dict):
        return None
    arrivals = workload.get("arrivals")
    places = (arrivals if isinstance(arrivals, dict) else {}, workload)
    found = next((place[RATE] for place in places if RATE in place), None)
    return float(found) if isinstance(found, int | float) else None


def unit(table: dict[str, Any]) -> str:
    """The unit of the load: requests/s, conversations/s or users."""
    if users_key(table) is not None:
        return "users"
    workload = table.get("workload")
    kind = workload.get("kind") if isinstance(workload, dict) else None
    return "conversations/s" if kind == "sessions" else "requests/s"


def _has_rate(table: dict[str, Any]) -> bool:
    try:
        with_rate(table, 1.0)
    except InputError:
        return False
    return True
