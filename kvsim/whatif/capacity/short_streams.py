"""Streams too short for a steady state: a growing queue cannot be distinguished from a stable one.

By Little's law a rate times the mean time of a request in the server is the number of requests that
are there at once. While a server fills, every queue grows; a stream that ends by then, or soon
after, says nothing about the rate.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kvsim.plumbing.errors import InputError
from kvsim.plumbing.units import PS_PER_S
from kvsim.report.numbers import count
from kvsim.request import Stream
from kvsim.scenario import Scenario
from kvsim.simulation import Simulation
from kvsim.whatif.capacity.load import MOST_REQUESTS, SIZES, with_rate
from kvsim.whatif.runner import Row
from kvsim.whatif.scenario_tables import Table

# A server whose requests stay for times of about an exponential distribution is 95 % full after
# three mean times; of ten, most of the stream then meets a full server.
LEAST_LASTS = 10
MARGIN = 2  # requests stay longer where the stream is long: so much more is asked for


class ShortStream(NamedTuple):
    """A stream shorter than LEAST_LASTS times the mean time of a request in the server. requests:
    of the stream; at_once: of them in the server, by Little's law. key, needed: the key of the
    workload that makes it long enough, and its value; None: a trace has no such key.
    """

    requests: int
    at_once: int
    key: str | None
    needed: int


def long_enough(table: Table, folder: Path, row: Row | None, rate_per_s: float) -> int:
    """The requests (or conversations) that make a stream at this rate long enough, by the row of a
    run of these tables.
    """
    stream = Simulation(Scenario.from_table(table, folder)).stream
    return max(1, math.ceil(MARGIN * LEAST_LASTS * rate_per_s * _stay_s(stream, row)))


def longer_for(short: ShortStream | None, least: int) -> int | None:
    """The number of requests to try instead of `least`, which was too few; None if it was enough,
    or if the workload cannot have more.
    """
    if short is None or short.key is None:
        return None
    needed = min(short.needed, MOST_REQUESTS)
    return needed if needed > max(least, short.requests) else None


def _stay_s(stream: Stream, row: Row | None) -> float:
    """The mean time in the server in seconds of an arrival: a request, or all turns of a
    conversation.
    """
    mean = None if row is None else row.get("e2e_s.mean")
    begins = sum(each.after is None for each in stream.requests)
    return float(mean or 0.0) * len(stream.requests) / max(1, begins)


def short_stream(table: Table, folder: Path, row: Row | None) -> ShortStream | None:
    """The description of a stream that is too short, judged by the row of its run; None if it is
    long enough, or is a closed loop.
    """
    if row is None or not row.get("e2e_s.mean"):
        return None
    try:
        with_rate(table, 1.0)
    except InputError:
        return None
    stream = Simulation(Scenario.from_table(table, folder)).stream
    begins = [each.arrival_ps for each in stream.requests if each.after is None]
    if len(begins) < 2 or stream.max_concurrency is not None:
        return None
    lasts_s = (max(begins) - min(begins)) / PS_PER_S
    there_s = _stay_s(stream, row)
    if lasts_s >= LEAST_LASTS * there_s:
        return None
    key = next((name for name in SIZES if name in table.get("workload", {})), None)
    rate = len(begins) / lasts_s if lasts_s else math.inf
    at_once = min(rate * there_s, len(begins))
    needed = MARGIN * LEAST_LASTS * (rate * there_s if lasts_s else len(begins))
    step = 10 ** max(0, len(str(math.ceil(needed))) - 2)
    return ShortStream(
        len(begins), math.ceil(at_once), key and f"workload.{key}", math.ceil(needed / step) * step
    )


def short_sentences(found: Sequence[ShortStream | None], at: str = "that rate") -> list[str]:
    """Sentences on the shortest of these streams; empty if all are long enough. at: the rate, in
    words.
    """
    short = [each for each in found if each is not None]
    if not short:
        return []
    worst = max(short, key=lambda each: each.needed)
    what = "conversations" if worst.key == "workload.num_sessions" else "requests"
    remedy = (
        f"It takes a trace of some {count(worst.needed)} {what}."
        if worst.key is None
        else f"Add --set {worst.key}={worst.needed}."
    )
    return [
        f"This cannot be told from {count(worst.requests)} {what}: at {at} some "
        f"{count(worst.at_once)} of them are in the server at once, and they end before a queue "
        f"shows. {remedy}"
    ]
