"""Align a benchmark with a server's gauges. Their clocks differ, and the gauges may cover a whole
day.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from statistics import fmean, median
from typing import NamedTuple

import numpy as np

from kvsim.readers.description import NS_PER_S, GaugeSample

_ZONE_NS = 15 * 60 * NS_PER_S  # time zones are whole quarters of an hour apart
_ZONES = range(-14 * 4, 14 * 4 + 1)
_MOST_OFF = 0.5  # of the requests in flight, on average: more is another load
_NO_YEAR = 2000  # of a log without years
_SAME_LENGTH = 2  # gaps between samples, by which a busy stretch may differ from the benchmark


class Client(NamedTuple):
    """A benchmark to align with gauges; times in ns on the benchmark's clock.

    spans has start and end of each request; empty if single requests were not timed. Then in_flight
    is the number of concurrent requests, if known. zero_ns is the start and duration_ns the length
    of the whole benchmark. ended_local_ns is its end by a wall clock in an unknown time zone; None:
    not recorded.
    """

    zero_ns: int
    duration_ns: int
    spans: Sequence[tuple[int, int]] = ()
    in_flight: int | None = None
    ended_local_ns: int | None = None

    def expected(self, times: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> Sequence[float]:
        """The number of requests in flight at each of these times (ns)."""
        if not self.spans:
            return [float(self.in_flight or 0)] * len(times)
        starts, ends = (np.sort(np.array([each[at] for each in self.spans])) for at in (0, 1))
        before, gone = np.searchsorted(starts, times), np.searchsorted(ends, times)
        return [float(count) for count in before - gone]


class Placed(NamedTuple):
    """A possible alignment. shift_ns is added to a gauge's time to get the client's.

    off is the mean difference between running sequences and the client's requests in flight,
    divided by the larger of both means; None: unknown.
    """

    shift_ns: int
    off: float | None


def place(samples: Sequence[GaugeSample], client: Client, *, zones: bool) -> Placed | str:
    """Find the shift at which the gauges fit the client's requests best; else the reason for
    leaving the gauges out.

    zones: the clocks differ only by a time zone.
    """
    if not samples:
        return "there are none"
    gap = _gap(samples)
    shifts = _zones(samples, client, gap) if zones else _starts(samples, client, gap)
    judged = [
        found for shift in dict.fromkeys(shifts) if (found := _judged(samples, client, shift, gap))
    ]
    if not judged:
        return (
            "no part of them is of the same length as the benchmark"
            if not zones
            else "they are of another time than the requests"
        )
    known = [each for each in judged if each.off is not None]
    if not known:
        if len(judged) > 1:
            return f"{len(judged)} busy stretches are as long as the benchmark"
        return judged[0]
    best = min(known, key=lambda each: each.off or 0.0)
    if best.off is not None and best.off > _MOST_OFF:
        return _differ(best.off)
    return best


def _differ(off: float) -> str:
    return f"at best their running sequences differ by {off:.0%} from the requests in flight"


def as_they_are(samples: Sequence[GaugeSample], client: Client) -> Placed | str:
    """Use gauges that are on the client's own clock; else the reason for leaving the gauges out, if
    they are of another run.
    """
    if not inside(samples, client, 0):
        return "they are of another time than the requests"
    found = _judged(samples, client, 0, _gap(samples))
    if found is not None and found.off is not None and found.off > _MOST_OFF:
        return _differ(found.off)
    return found or Placed(0, None)


def inside(
    samples: Sequence[GaugeSample], client: Client, shift_ns: int
) -> list[tuple[int, GaugeSample]]:
    """(time from the client's start, sample) for the samples from the start to one gap after the
    end.
    """
    end = client.duration_ns + _gap(samples)
    timed = ((each.time_ns + shift_ns - client.zero_ns, each) for each in samples)
    return [(after, each) for after, each in timed if 0 <= after <= end]


def _gap(samples: Sequence[GaugeSample]) -> int:
    return round(median([b.time_ns - a.time_ns for a, b in pairwise(samples)] or [0]))


def _zones(samples: Sequence[GaugeSample], client: Client, gap: int) -> Iterator[int]:
    """Candidate shifts between the clocks: time zones, in quarters of an hour.

    Gauges from a log without years are put in the client's year.
    """
    base = 0
    if datetime.fromtimestamp(samples[0].time_ns / NS_PER_S, UTC).year == _NO_YEAR:
        moment = datetime.fromtimestamp(client.zero_ns / NS_PER_S, UTC)
        try:
            same = moment.replace(year=_NO_YEAR)
        except ValueError:
            same = moment
        base = round(moment.timestamp() - same.timestamp()) * NS_PER_S
    first, last = samples[0].time_ns + base, samples[-1].time_ns + base
    for quarter in _ZONES:
        shift = quarter * _ZONE_NS
        if first + shift <= client.zero_ns + client.duration_ns + gap and (
            last + shift >= client.zero_ns
        ):
            yield base + shift


def _starts(samples: Sequence[GaugeSample], client: Client, gap: int) -> Iterable[int]:
    """Candidate shifts: from the end time that the benchmark recorded, else from each period in
    which the server was busy for about the benchmark's length.
    """
    if client.ended_local_ns is not None:
        ended = client.ended_local_ns
        if datetime.fromtimestamp(samples[0].time_ns / NS_PER_S, UTC).year == _NO_YEAR:
            moment = datetime.fromtimestamp(ended / NS_PER_S, UTC)
            ended = round(moment.replace(year=_NO_YEAR).timestamp()) * NS_PER_S
        yield from (
            client.zero_ns + client.duration_ns - ended + quarter * _ZONE_NS
            for quarter in sorted(_ZONES, key=abs)
        )
        return
    for start, end in _busy(samples, gap):
        if abs((end - start) - client.duration_ns) <= _SAME_LENGTH * gap:
            yield client.zero_ns - start


def _busy(samples: Sequence[GaugeSample], gap: int) -> Iterator[tuple[int, int]]:
    """(start, end) in ns of each busy period. It starts half a gap before the first sample with
    running sequences.
    """
    start: int | None = None
    before = samples[0].time_ns - gap // 2
    for each in samples:
        if each.running:
            start = before if start is None else start
        elif start is not None:
            yield start, each.time_ns
            start = None
        before = each.time_ns - gap // 2
    if start is not None:
        yield start, samples[-1].time_ns + gap // 2


def _judged(samples: Sequence[GaugeSample], client: Client, shift: int, gap: int) -> Placed | None:
    """The alignment at this shift; None if too few samples fall within the benchmark, or none has a
    running sequence.
    """
    kept = inside(samples, client, shift)
    if not any(each.running for _, each in kept):
        return None
    if gap and len(kept) < min(client.duration_ns / gap / 2, 2):
        return None
    if not client.spans and client.in_flight is None:
        return Placed(shift, None)
    timed = [(after, each.running) for after, each in kept if each.running is not None]
    if not timed:
        return Placed(shift, None)
    times = np.array([client.zero_ns + after for after, _ in timed])
    expected = client.expected(times)
    if not any(expected):
        return None
    mean = max(fmean(expected), fmean(running for _, running in timed))
    off = fmean(abs(running - there) for (_, running), there in zip(timed, expected, strict=True))
    return Placed(shift, off / mean)
