"""The ranking of a sweep: means over seeds, the best settings, and the Pareto-optimal ones.

Settings are compared on the same seeds, pair by pair. "no difference seen": the interval of the
differences contains zero and is narrow. "cannot be distinguished": it contains zero and is wide.
They are compared at equal load alone: a key of the workload is no setting to choose, and the least
load would win every ranking.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvsim.plumbing.errors import InputError
from kvsim.report import numbers
from kvsim.report.measures import MEASURES, Measure
from kvsim.whatif.intervals import SeedMean, difference_text, mean_interval
from kvsim.whatif.sweep.summary_measures import summary_measure
from kvsim.whatif.sweep.sweep import DONE, STATUS

if TYPE_CHECKING:
    import pandas as pd

Load = dict[str, Any]
TAKEN = Measure(
    "Memory taken, peak", "memory", lambda run: _taken(run), numbers.size,
    "lower", "The most bytes of the pool that were ever handed out.", always=True,
)  # fmt: skip


@dataclass(frozen=True)
class SweepSetting:
    """One point of a sweep under one allocator, with one run per seed.

    rows: its rows of the sweep's table, each shaped like a run's summary. saturated: number of
    seeds with a saturated run. gpus: GPUs of all replicas; None if no swept key changes it.
    """

    point: int
    label: str
    settings: dict[str, Any]
    seeds: tuple[int, ...]
    rows: tuple[dict[str, Any], ...]
    saturated: int
    gpus: float | None = None

    def values(self, measure: Measure) -> list[float] | None:
        """The measure's value for each seed; None unless every seed has one."""
        found = [measure.value(row) for row in self.rows]
        known = [value for value in found if value is not None]
        return known if len(known) == len(found) else None

    def interval(self, measure: Measure) -> SeedMean | None:
        """Mean and interval over the seeds; None if a seed has no value."""
        values = self.values(measure)
        return None if values is None else mean_interval(values, times=measure.is_time)

    def text(self, measure: Measure) -> str:
        """The mean with its interval as text: `12 ± 0.4`, `1.23 s (1.1 s to 1.4 s)`."""
        return interval_text(measure, self.interval(measure))

    @property
    def refused(self) -> int:
        """Number of refused requests over all seeds."""
        return sum(int(row["requests"]["rejected"]) for row in self.rows)

    @property
    def load(self) -> str:
        """A text on overload: `saturated` (or in how many of the seeds), and the refused requests;
        empty if there is neither.
        """
        texts = []
        if self.saturated:
            some = f" in {self.saturated} of {len(self.seeds)}"
            texts.append("saturated" + ("" if self.saturated == len(self.seeds) else some))
        if self.refused:
            texts.append(f"refuses {numbers.count(self.refused)}")
        return ", ".join(texts)


def load_keys(keys: Sequence[str]) -> list[str]:
    """The keys that change the requests, not the server."""
    return [key for key in keys if key.partition(".")[0] == "workload"]


def by_load(
    settings: Sequence[SweepSetting], keys: Sequence[str]
) -> list[tuple[Load, list[SweepSetting]]]:
    """The settings grouped by equal load, in the order of the sweep; a single group if no key
    changes the load.
    """
    loads = load_keys(keys)
    groups: dict[str, tuple[Load, list[SweepSetting]]] = {}
    for setting in settings:
        load = {key: setting.settings[key] for key in loads}
        groups.setdefault(repr(load), (load, []))[1].append(setting)
    return list(groups.values())


def interval_text(measure: Measure, interval: SeedMean | None) -> str:
    """A mean with its interval, formatted as the measure is."""
    if interval is None:
        return numbers.NOTHING
    text = measure.form(interval.mean)
    if interval.by_factors and interval.half_width:
        return f"{text} ({measure.form(interval.low)} to {measure.form(interval.high)})"
    return f"{text} ± {measure.form(interval.half_width)}" if interval.half_width else text


def settings_of(frame: "pd.DataFrame", keys: Sequence[str]) -> list[SweepSetting]:
    """The settings for which all seeds have finished, ordered by point and allocator."""
    found = []
    done = frame.loc[frame[STATUS] == DONE]
    if done.empty:
        return []
    num_seeds = frame["seed"].nunique()
    for (_, label), rows in done.groupby(["point", "label"], sort=False):
        records = [{str(key): cell for key, cell in row.items()} for row in rows.to_dict("records")]
        if len(records) == num_seeds:
            first = records[0]
            found.append(
                SweepSetting(
                    int(first["point"]),
                    str(label),
                    {key: _known(first[key]) for key in keys},
                    tuple(int(record["seed"]) for record in records),
                    tuple(nested(record) for record in records),
                    sum(bool(record["saturated"]) for record in records),
                )
            )
    return found


def nested(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with dotted keys as nested tables; a missing value is None."""
    table: dict[str, Any] = {}
    for key, value in row.items():
        place = table
        *outer, last = str(key).split(".")
        for part in outer:
            inner = place.setdefault(part, {})
            if not isinstance(inner, dict):
                break
            place = inner
        else:
            place[last] = None if value is None or value != value else plain(value)
    return table


def _known(value: Any) -> Any:
    """A table's cell as a plain Python value; None if it is empty."""
    import pandas as pd

    return None if pd.isna(value) else plain(value)


def plain(value: Any) -> Any:
    """A scalar of pandas or numpy as a plain Python value."""
    return value.item() if hasattr(value, "item") else value


def measure_named(name: str) -> Measure:
    """The measure of this name, or any number of summary.json by its dotted key. InputError for an
    unknown name, with a list of those that can rank settings.
    """
    ranking = {key: measure for key, measure in MEASURES.items() if measure.better}
    usual = name.replace("_s.", "_")  # as `--slo` and summary.json have it
    measure = ranking.get(usual) or summary_measure(name)
    if measure is None:
        raise InputError(
            "unknown measure",
            where="--by",
            value=name,
            remedy=f"known: {', '.join(ranking)}, or a key of summary.json such as queue_s.p99, "
            "itl_s.p99, waiting_mean",
        )
    return measure


def check_measured(frame: "pd.DataFrame", measure: Measure) -> None:
    """Raise InputError if no finished run in the sweep's table has this measure."""
    done = frame.loc[frame[STATUS] == DONE].to_dict("records")
    if all(measure.value(nested({str(k): v for k, v in row.items()})) is None for row in done):
        raise InputError("no run has this number", where="--by", value=measure.title)


@dataclass(frozen=True)
class RankedSetting:
    """A setting in the ranking by one measure. behind: its distance from the best, as text."""

    setting: SweepSetting
    behind: str


def best(settings: Sequence[SweepSetting], measure: Measure, count: int) -> list[RankedSetting]:
    """The `count` settings with the best mean, each compared with the first of them.

    Settings that refuse more requests than others are ranked after these, since serving fewer
    requests is quicker.
    """
    sign = 1 if measure.better == "lower" else -1
    means = [(setting.interval(measure), setting) for setting in settings]
    order = sorted(
        ((other.refused, interval.mean * sign, at)
         for at, (interval, other) in enumerate(means) if interval),
    )  # fmt: skip
    ranked = [means[at][1] for *_, at in order]
    return [
        RankedSetting(setting, _behind(ranked[0], setting, measure) if at else "the best")
        for at, setting in enumerate(ranked[:count])
    ]


def _behind(top: SweepSetting, other: SweepSetting, measure: Measure) -> str:
    """How much worse `other` is than the best setting `top`, as text."""
    first, second = top.values(measure) or [], other.values(measure) or []
    return "the same" if first == second else difference_text(first, second, times=measure.is_time)


def pareto(settings: Sequence[SweepSetting], latency: Measure) -> list[tuple[SweepSetting, int]]:
    """The Pareto-optimal settings by mean memory, latency, throughput and refusals, least memory
    first.

    If settings differ in GPUs, the number of GPUs takes the place of memory. Of settings equal in
    all four, the first is returned with the number of the others.
    """
    by_gpus = differ_in_gpus(settings)
    measures = (TAKEN, latency, MEASURES["tokens_per_s"])
    costs = []
    for setting in settings:
        intervals = [setting.interval(measure) for measure in measures]
        if all(interval is not None for interval in intervals):
            memory, wait, rate = (interval.mean for interval in intervals if interval is not None)
            taken = (setting.gpus or 0.0) if by_gpus else memory
            costs.append(((taken, wait, -rate, float(setting.refused)), setting))
    equal: dict[tuple[float, ...], list[SweepSetting]] = {}
    for cost, setting in costs:
        if not any(_dominates(other, cost) for other, _ in costs):
            equal.setdefault(cost, []).append(setting)
    return [(equal[cost][0], len(equal[cost]) - 1) for cost in sorted(equal)]


def differ_in_gpus(settings: Sequence[SweepSetting]) -> bool:
    """Whether some of these settings take more GPUs than others."""
    found = {setting.gpus for setting in settings}
    return len(found) > 1 and None not in found


def _dominates(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


def seeds_matter(settings: Sequence[SweepSetting]) -> bool:
    """Whether runs differ between seeds; a trace with recorded arrival times has nothing random."""
    return any(len({repr(row.get("e2e_s")) for row in setting.rows}) > 1 for setting in settings)


def _taken(run: Mapping[str, Any]) -> float | None:
    memory = run["memory"]
    return float(memory["peak_allocated"]) * int(memory["capacity_bytes"])
