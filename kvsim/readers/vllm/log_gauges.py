"""The gauges that vLLM logs every ten seconds, as a series."""

import re
from datetime import UTC, datetime

from kvsim.readers.description import NS_PER_S, GaugeSample

_CLOCK = re.compile(r"(?:(\d{4})-)?(\d{2})-(\d{2})[ T](\d{2}):(\d{2}):(\d{2})")
_GAUGES = {
    "prompt": re.compile(r"Avg prompt throughput: ([\d.]+) tokens/s"),
    "generation": re.compile(r"Avg generation throughput: ([\d.]+) tokens/s"),
    "running": re.compile(r"Running: (\d+) reqs"),
    "waiting": re.compile(r"(?:Waiting|Pending): (\d+) reqs"),
    "usage": re.compile(r"(?:GPU KV cache usage|GPU cache usage): ([\d.]+)%"),
}
_ENGINE = re.compile(r"Engine (\d+): Avg")
_NO_YEAR = 2000  # a leap year: all days have a place in it


def gauge_lines(lines: list[str], notes: list[str]) -> tuple[GaugeSample, ...]:
    """The gauges of the first engine in order of local time; empty if no line has a time.

    A note is added for each kind of line that was left out.
    """
    samples: list[GaugeSample] = []
    first: str | None = None
    others, timeless = 0, 0
    for line in lines:
        if "Avg generation throughput" not in line:
            continue
        engine = _ENGINE.search(line)
        name = engine[1] if engine else ""
        first = name if first is None else first
        clock = _CLOCK.search(line)
        if name != first:
            others += 1
        elif clock is None:
            timeless += 1
        else:
            sample = _sample(line, clock)
            if sample is not None and (not samples or sample.time_ns >= samples[-1].time_ns):
                samples.append(sample)
    if others:
        notes.append(f"{others:,} lines of further engines: only engine {first} is taken")
    if timeless:
        notes.append(f"{timeless:,} lines of gauges without a time")
    return tuple(samples)


def clock_ns(line: str) -> int | None:
    """The time of a log line in ns, read as if it were UTC; None if it has none.

    A line without a year gets the year 2000, which has a 29 February.
    """
    clock = _CLOCK.search(line)
    return None if clock is None else _moment_ns(clock)


def _moment_ns(clock: re.Match[str]) -> int | None:
    year, *rest = clock.groups()
    try:
        month, day, hour, minute, second = map(int, rest)
        moment = datetime(int(year or _NO_YEAR), month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    return round(moment.timestamp()) * NS_PER_S


def _sample(line: str, clock: re.Match[str]) -> GaugeSample | None:
    time_ns = _moment_ns(clock)
    if time_ns is None:
        return None
    found = {name: pattern.search(line) for name, pattern in _GAUGES.items()}
    if len(max((match[1] for match in found.values() if match), key=len, default="")) > 18:
        return None
    value = {name: float(match[1]) if match else None for name, match in found.items()}
    return GaugeSample(
        time_ns,
        None if value["running"] is None else int(value["running"]),
        None if value["waiting"] is None else int(value["waiting"]),
        None if value["usage"] is None else min(value["usage"] / 100, 1.0),
        value["prompt"],
        value["generation"],
    )
