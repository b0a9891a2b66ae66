"""Any number of summary.json as a measure by which settings can be ranked."""

import re
import typing
from typing import Any

from kvsim.report import numbers
from kvsim.report.measures import Measure, at_key
from kvsim.results.fleet import FleetSummary
from kvsim.results.summary_part import SummaryPart

# Words of names of which more is better; of all others, times, counts and bytes, less is.
_MORE = ("per_s", "hit_tokens", "finished", "within", "acceptance", "accepted", "sharing_savings")
_MORE_PARTS = ("running_mean", "used", "saved_s")
# Short names of numbers that have no place in the table of key numbers.
_SHORT = {
    "running": "running_mean",
    "waiting": "waiting_mean",
    "used": "memory.time_mean.used",
    "replicas": "changes.replicas_mean",
}
_LATENCY = re.compile(r"(ttft|tpot|itl|e2e|queue)_(mean|p\d+)")


def summary_measure(name: str) -> Measure | None:
    """The measure for a dotted or short name in summary.json; None if there is no such number.
    Parts that only some runs have (offloading, speculation) are not searched.
    """
    name = _SHORT.get(name, name)
    if found := _LATENCY.fullmatch(name):
        name = f"{found[1]}_s.{found[2]}"
    if not _known(name):
        return None
    more = any(word in name for word in _MORE) or name.rpartition(".")[2] in _MORE_PARTS
    words = "highest" if more else "lowest"
    return Measure(
        name,
        name,
        at_key(name),
        _form(name),
        "higher" if more else "lower",
        f"`{name}` of summary.json; the {words} is the best.",
    )


def _known(name: str) -> bool:
    part: Any = FleetSummary
    for key in name.split("."):
        if part is Any:
            continue  # its class is only imported by runs that have it
        hints = typing.get_type_hints(part) if _is_part(part) else {}
        if key not in hints:
            return False
        part = _plain(hints[key])
    return part is Any or part in (int, float)


def _plain(hint: Any) -> Any:
    """The type hint without its `| None`."""
    kinds = [each for each in typing.get_args(hint) if each is not type(None)]
    return kinds[0] if kinds and typing.get_origin(hint) is not dict else hint


def _is_part(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, SummaryPart)


def _form(name: str) -> Any:
    if any(part.endswith("_s") and not part.endswith("per_s") for part in name.split(".")):
        return numbers.seconds
    if name.endswith("_bytes"):
        return numbers.size
    return numbers.number
