"""Measurements of a real server, with the keys of a simulated run, and their differences from the
simulation.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from pydantic import ValidationError

from kvsim.plumbing.options import input_error
from kvsim.results.summary import LatencySummary
from kvsim.results.summary_part import Count, Measured, Share, SummaryPart

LATENCIES = ("ttft_s", "tpot_s", "itl_s", "e2e_s")
STATISTICS = ("mean", "p50", "p90", "p95", "p99")
_PLAIN = ("makespan_s", "requests_per_s", "output_tokens_per_s", "running_mean", "waiting_mean")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MeasuredRequests(SummaryPart):
    """Numbers of completed and failed requests of a real server."""

    finished: Count


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class KVUsage(SummaryPart):
    """The share of the pool that live requests held: mean over time and highest sample; None if
    unknown.
    """

    mean: Share | None
    peak: Share | None


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MeasuredSummary(SummaryPart):
    """A real server's run with the keys of `RunSummary`, for the numbers that its sources contain.

    source: a description of the files it is from. makespan_s: the benchmark's duration. kv_usage:
    of a simulated run, 1 - cached, free and idle shares (`kv_usage_of`).
    """

    source: str
    requests: MeasuredRequests | None = None
    makespan_s: Measured | None = None
    requests_per_s: Measured | None = None
    output_tokens_per_s: Measured | None = None
    running_mean: Measured | None = None
    waiting_mean: Measured | None = None
    ttft_s: LatencySummary | None = None
    tpot_s: LatencySummary | None = None
    itl_s: LatencySummary | None = None
    e2e_s: LatencySummary | None = None
    kv_usage: KVUsage | None = None

    @classmethod
    def parse(cls, contents: Mapping[str, Any], where: str) -> Self:
        """The contents of a measured.json found at `where`; InputError names what is wrong."""
        from pydantic import TypeAdapter

        try:
            return TypeAdapter(cls).validate_python(contents)
        except ValidationError as error:
            raise input_error(error, where) from None


class MeasuredPair(NamedTuple):
    """One number, measured and simulated. key: its key in summary.json, joined by dots. difference:
    simulated / measured - 1; of a share (`kv_usage`) simulated - measured. None if one of the two
    is missing, or if the measured value is 0.
    """

    key: str
    measured: float
    simulated: float | None
    difference: float | None

    @property
    def is_share(self) -> bool:
        """Whether the number is a share of the pool, with its difference in percentage points."""
        return self.key.startswith("kv_usage")


def kv_usage_of(run: Mapping[str, Any]) -> dict[str, float]:
    """The share of the pool that live requests of a simulated run held: all classes but cached,
    idle, and free but unusable.
    """
    memory = run.get("memory")
    if not isinstance(memory, Mapping):
        return {}
    shares = memory["time_mean"]
    free = sum(shares[name] for name in ("cached", "idle", "external", "short", "metadata"))
    return {"mean": max(0.0, 1 - free), "peak": memory["peak_allocated"]}


def compared(measured: MeasuredSummary, run: Mapping[str, Any]) -> Iterator[MeasuredPair]:
    """Every measured number with that of a simulated run or fleet, in the order of the keys."""
    for key in _PLAIN:
        if (value := getattr(measured, key)) is not None:
            yield _pair(key, value, run.get(key))
    for key in LATENCIES:
        latency, its = getattr(measured, key), run.get(key) or {}
        for name in STATISTICS if latency is not None else ():
            if (value := latency[name]) is not None:
                yield _pair(f"{key}.{name}", value, its.get(name))
    if measured.kv_usage is not None:
        usage = kv_usage_of(run)
        for name in ("mean", "peak"):
            if (value := measured.kv_usage[name]) is not None:
                yield _pair(f"kv_usage.{name}", value, usage.get(name))


def _pair(key: str, measured: float, simulated: float | None) -> MeasuredPair:
    pair = MeasuredPair(key, measured, simulated, None)
    if simulated is None:
        return pair
    if pair.is_share:
        return pair._replace(difference=simulated - measured)
    return pair._replace(difference=simulated / measured - 1 if measured else None)


def differences(measured: MeasuredSummary, run: Mapping[str, Any]) -> dict[str, Any]:
    """The differences of `compared` by the nested keys of summary.json."""
    found: dict[str, Any] = {}
    for pair in compared(measured, run):
        if pair.difference is not None:
            key, _, name = pair.key.partition(".")
            if name:
                found.setdefault(key, {})[name] = pair.difference
            else:
                found[key] = pair.difference
    return found
