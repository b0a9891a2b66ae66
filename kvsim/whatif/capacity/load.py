"""The rate of a scenario: where it stands in the tables, and how to change it."""

import copy
from typing import Any

from kvsim.plumbing.errors import InputError
from kvsim.scenario import no_workload
from kvsim.workload.arrivals import ARRIVALS

RATE, SCALE = "rate_per_s", "rate_scale"


def with_rate(table: dict[str, Any], rate_per_s: float) -> dict[str, Any]:
    """The tables with their requests (or conversations) coming at this mean rate; InputError where
    their arrivals have none.
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
            remedy="use poisson, gamma, weibull or constant, or a trace's own times",
        )
    table_of[RATE] = rate_per_s
    return table


def rate_key(table: dict[str, Any]) -> str:
    """The key that `with_rate` sets."""
    workload = table["workload"]
    own = workload.get("arrivals") is None and workload.get("kind") == "trace"
    return f"workload.{RATE}" if own else f"workload.arrivals.{RATE}"


def faster(table: dict[str, Any], factor: float) -> dict[str, Any]:
    """The tables with their arrivals so many times as fast; InputError as above."""
    rate, workload = rate_of(table), table.get("workload")
    if not isinstance(workload, dict):
        return with_rate(table, factor)  # says what is missing
    if rate is None and workload.get("kind") == "trace" and workload.get("arrivals") is None:
        scale = float(workload.get(SCALE) or 1.0)
        return {**table, "workload": {**workload, SCALE: scale * factor}}
    return with_rate(table, (rate or 1.0) * factor)  # without a rate, it says why


def rate_of(table: dict[str, Any]) -> float | None:
    """The rate that stands in the tables; None where none does (a trace at its own pace)."""
    workload = table.get("workload")
    if not isinstance(workload, dict):
        return None
    arrivals = workload.get("arrivals")
    places = (arrivals if isinstance(arrivals, dict) else {}, workload)
    found = next((place[RATE] for place in places if RATE in place), None)
    return float(found) if isinstance(found, int | float) else None


def unit(table: dict[str, Any]) -> str:
    """The unit of the rate: requests/s or conversations/s."""
    workload = table.get("workload")
    kind = workload.get("kind") if isinstance(workload, dict) else None
    return "conversations/s" if kind == "sessions" else "requests/s"
