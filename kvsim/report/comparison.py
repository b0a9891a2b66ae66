"""Compare stored results: which scenario keys and which numbers differ, as data."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kvsim.memory.ledger import CLASSES
from kvsim.report.differences import Difference, differences
from kvsim.report.intervals import Interval, interval
from kvsim.report.measures import MEASURES, Measure, judged, same_work, shown
from kvsim.report.names import listed
from kvsim.results.result_summary import ResultSummary
from kvsim.results.summary import RunSummary

UNSEEN = 0.0005  # a change by less reads as 0.0 %, and is called neither better nor worse


class MeasureLine(NamedTuple):
    """One measure of the runs with one label.

    values: one per result, None if the result has no such run. better, worse: indices of the
    results that improved or got worse against the first. They are empty if neither direction is
    good or if the runs did different work (`Side.unlike`). over_seeds: mean and interval over
    results that differ only in their seed.
    """

    measure: Measure
    values: tuple[float | None, ...]
    better: frozenset[int]
    worse: frozenset[int]
    over_seeds: Interval | None


class Side(NamedTuple):
    """The runs with one label, one per result.

    runs: None where the result has no such run. same: whether all their numbers are equal. unlike:
    why changes are not called better or worse; None if they are. shares: mean share of the pool
    over time by ledger class, one per result.
    """

    label: str
    runs: tuple[RunSummary | None, ...]
    same: bool
    unlike: str | None
    lines: tuple[MeasureLine, ...]
    shares: Mapping[str, tuple[float | None, ...]]


class Comparison(NamedTuple):
    """The comparison of several stored results.

    changed: scenario keys that differ. found: provenance keys that differ. seeds_only: whether the
    results are one scenario under several seeds. sides: one per label.
    """

    changed: tuple[Difference, ...]
    found: tuple[Difference, ...]
    seeds_only: bool
    sides: tuple[Side, ...]


def compare_results(results: Sequence[ResultSummary]) -> Comparison:
    """Compare all results with the first one."""
    differing = differences([result.scenario for result in results])
    changed = tuple(each for each in differing if not each.key.startswith("provenance."))
    found = tuple(each for each in differing if each.key.startswith("provenance."))
    seeds_only = [each.key for each in changed] == ["seed"]
    found_runs = [_by_label(result) for result in results]
    labels = dict.fromkeys(label for runs in found_runs for label in runs)
    workloads = [each.key for each in changed if each.key.split(".")[0] == "workload"]
    sides = tuple(
        _side(label, [runs.get(label) for runs in found_runs], workloads, seeds_only)
        for label in labels
        if not _of_fleets(label, results) or all(label in runs for runs in found_runs)
    )
    return Comparison(changed, found, seeds_only, sides)


def _by_label(result: ResultSummary) -> dict[str, RunSummary]:
    """Runs by label: first the fleet or run that served all requests, then replicas of fleets."""
    found: dict[str, RunSummary] = {}
    for run in (*(result.fleets or ()), *result.runs):
        found.setdefault(run.label, run)
    return found


def _of_fleets(label: str, results: Sequence[ResultSummary]) -> bool:
    """Whether the label is of one replica in a fleet, such as `paged #3`: its numbers mean nothing
    next to a replica of another fleet.
    """
    return any(
        label.startswith(f"{fleet.label} #") for each in results for fleet in each.fleets or ()
    )


def _side(
    label: str,
    found: Sequence[RunSummary | None],
    workloads: Sequence[str],
    seeds_only: bool,
) -> Side:
    runs = tuple(found)
    present = [run for run in runs if run is not None]
    lines = tuple(
        _line(
            measure,
            runs,
            fair=not workloads and not seeds_only and judged(measure, present),
            seeds_only=seeds_only,
        )
        for measure in shown(list(MEASURES), present)
    )
    shares = {
        name: tuple(None if run is None else run.memory.time_mean.of(name) for run in runs)
        for name in CLASSES
    }
    simulated = [run and run.simulated() for run in runs]
    same = len(runs) > 1 and all(each == simulated[0] for each in simulated)
    unlike = None if same or seeds_only else _unlike(present, workloads)
    return Side(label, runs, same, unlike, lines, shares)


def _unlike(runs: Sequence[RunSummary], workloads: Sequence[str]) -> str | None:
    if workloads:
        what, still = f"The requests were not the same ({listed(workloads)})", ""
    elif not same_work(runs):
        what, still = "They did not finish the same requests", "beside what was served, "
    else:
        return None
    return f"{what}: {still}no change is called better or worse."


def _line(
    measure: Measure, runs: Sequence[RunSummary | None], *, fair: bool, seeds_only: bool
) -> MeasureLine:
    values = tuple(None if run is None else measure.value(run) for run in runs)
    up, down = _moved(values, 1), _moved(values, -1)
    better, worse = (up, down) if measure.better == "higher" else (down, up)
    if not fair:
        better = worse = frozenset()
    known = [value for value in values if value is not None]
    together = (
        interval(known, times=measure.is_time) if seeds_only and len(known) == len(values) else None
    )
    return MeasureLine(measure, values, better, worse, together)


def _moved(values: Sequence[float | None], sign: int) -> frozenset[int]:
    """Indices of the values above (sign 1) or below (sign -1) the first by more than 0.05 %."""
    base = values[0]
    if base is None:
        return frozenset()
    return frozenset(
        index
        for index, value in enumerate(values)
        if value is not None and sign * (value - base) > UNSEEN * abs(base)
    )


def as_json(names: Sequence[str], results: Sequence[ResultSummary]) -> dict[str, Any]:
    """The comparison as JSON data: the results, the keys that differ, and each measure's change.

    change: relative to the first result, as a fraction; None if that is 0 or missing. unlike: why
    changes are not called better or worse.
    """
    compared = compare_results(results)
    return {
        "results": [
            {"folder": name, **result.as_json()}
            for name, result in zip(names, results, strict=True)
        ],
        "differences": [
            {"key": each.key, "values": each.values}
            for each in (*compared.changed, *compared.found)
        ],
        "changes": [
            {
                "label": side.label,
                "measure": line.measure.title,
                "values": line.values,
                "change": [change(line.values[0], value) for value in line.values],
                "better": sorted(line.better),
                "worse": sorted(line.worse),
                "unlike": side.unlike,
                "over_seeds": line.over_seeds._asdict() if line.over_seeds else None,
            }
            for side in compared.sides
            for line in side.lines
        ],
    }


def change(base: float | None, value: float | None) -> float | None:
    """(value - base) / base; None if either is missing or the base is 0."""
    return None if not base or value is None else value / base - 1
