"""The bottleneck of a run, and how many of its sequences the KV pool can hold."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kvsim.report import numbers
from kvsim.report.names import called
from kvsim.results.summary import RunSummary

# Classes that grow with the number of sequences.
HELD = ("used", "reserved", "overprovisioned", "rounding", "transient")
_MOST_NAMED = 3  # runs
_ALL_SEATS = 0.9  # of max_num_seqs: a mean above it leaves no place for others


def limits(runs: Sequence[RunSummary], scenario: Mapping[str, Any]) -> Iterator[str]:
    """One sentence per distinct bottleneck, naming the runs that have it."""
    found: dict[str, list[RunSummary]] = {}
    most = scenario.get("scheduler", {}).get("max_num_seqs")
    for run in runs:
        found.setdefault(_limit(run, most), []).append(run)
    for words, those in found.items():
        names = ""
        if len(found) > 1:
            few = [called(run.label) for run in those]
            counted = f"{len(those)} runs"
            names = f" ({numbers.listed(few) if len(few) <= _MOST_NAMED else counted})"
        free = numbers.percent(1 - max(run.memory.peak_allocated for run in those))
        yield f"{words.format(free=free)}{names}"


def room(runs: Sequence[RunSummary]) -> str | None:
    """A sentence on how many sequences like those of each run its KV pool can hold at a time.

    This is the pool's size over the mean bytes of a running sequence; a block that several
    sequences share is divided among them. None if there are too many runs to list, or if nothing
    ran.
    """
    counts = [(run, sequences_that_fit(run)) for run in runs]
    known = [(run, count) for run, count in counts if count is not None]
    if not known or len(known) > _MOST_NAMED:
        return None
    if len(known) == 1:
        ((run, count),) = known
        pools = "The pools have" if getattr(run, "replicas", 1) > 1 else "The pool has"
        return (
            f"{pools} room for about {_about(count)} such sequences at a time; "
            f"{_ran(run)} ran on average."
        )
    parts = [
        f"{_about(count)} under {called(run.label)} ({_ran(run)} ran on average)"
        for run, count in known
    ]
    return f"A pool has room for about {numbers.listed(parts)} such sequences at a time."


def _ran(run: RunSummary) -> str:
    return numbers.figures(run.running_mean or 0.0, 2)


def sequences_that_fit(run: RunSummary) -> float | None:
    """Pool size over the mean bytes of a running sequence; None if no sequence held memory."""
    held = sum(run.memory.time_mean.of(name) for name in HELD)
    if not run.running_mean or not held:
        return None
    return run.running_mean * (1 - run.memory.time_mean.metadata) / held


def _about(count: float) -> str:
    """The count to two significant figures, as the estimate is no more exact."""
    return numbers.count(int(float(f"{count:.2g}")))


def _limit(run: RunSummary, most: int | None) -> str:
    memory = run.memory
    full = memory.time_mean.short + memory.time_mean.external > 0 or bool(run.preemptions)
    if run.noted("saturated"):
        if full:
            return "KV memory: the queue grows"
        seats = (most or 0) * getattr(run, "replicas", 1)
        if seats and (run.running_mean or 0.0) >= _ALL_SEATS * seats:
            return f"max_num_seqs = {most}: the queue grows, memory is left"
        return "speed: the queue grows, memory is left"
    if full:
        return "KV memory at times: requests waited for it or were preempted"
    return "none: {free} of the pool was free at every moment"
