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
    """One point of a sweep under one allocator: its runs, one a seed.

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
        """One value a seed; None unless every seed has one."""
        found = [measure.value(row) for row in self.rows]
        known = [value for value in found if value is not None]
        return known if len(known) == len(found) else None

    def interval(self, measure: Measure) -> SeedMean | None:
        """The mean over the seeds; None where a seed has no value."""
        values = self.values(measure)
        return None if values is None else mean_interval(values, times=measure.is_time)

    def text(self, measure: Measure) -> str:
        """The mean as people read it, with its interval: `12 ± 0.4`, `1.23 s (1.1 s to 1.4 s)`."""
        return interval_text(measure, self.interval(measure))

    @property
    def refused(self) -> int:
        """Refused requests, over all seeds."""
        return sum(int(row["requests"]["rejected"]) for row in self.rows)

    @property
    def load(self) -> str:
        """The load in words: `saturated`, or for how many of the seeds, and the requests refused;
        empty where neither is so.
        """
        texts = []
        if self.saturated:
            some = f" in {self.saturated} of {len(self.seeds)}"
            texts.append("saturated" + ("" if self.saturated == len(self.seeds) else some))
        if self.refused:
            texts.append(f"refuses {numbers.count(self.refused)}")
        return ", ".join(texts)


def load_keys(keys: Sequence[str]) -> list[str]:
    """The keys that change the requests instead of how they are served."""
    return [key for key in keys if key.partition(".")[0] == "workload"]


def by_load(
    settings: Sequence[SweepSetting], keys: Sequence[str]
) -> list[tuple[Load, list[SweepSetting]]]:
    """The settings in groups of equal load, in the order of the sweep; one group without a key of
    the workload.
    """
    loads = load_keys(keys)
    groups: dict[str, tuple[Load, list[SweepSetting]]] = {}
    for setting in settings:
        load = {key: setting.settings[key] for key in loads}
        groups.setdefault(repr(load), (load, []))[1].append(setting)
    return list(groups.values())


def interval_text(measure: Measure, interval: SeedMean | None) -> str:
    """A mean with its interval, in the measure's own form."""
    if interval is None:
        return numbers.NOTHING
    text = measure.form(interval.mean)
    if interval.by_factors and interval.half_width:
        return f"{text} ({measure.form(interval.low)} to {measure.form(interval.high)})"
    return f"{text} ± {measure.form(interval.half_width)}" if interval.half_width else text


def settings_of(frame: "pd.DataFrame", keys: Sequence[str]) -> list[SweepSetting]:
    """The settings for which all seeds have finished, in order of the points and allocators."""
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
    """A row with dotted keys as nested tables; what is missing is None."""
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
    """A cell as Python's own; None for an empty one."""
    import pandas as pd

    return None if pd.isna(value) else plain(value)


def plain(value: Any) -> Any:
    """A scalar of pandas as Python's own."""
    return value.item() if hasattr(value, "item") else value


def measure_named(name: str) -> Measure:
    """The measure of this name, or any number of summary.json by its dotted key; InputError lists
    those that can rank settings.
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
    """InputError where no finished run of a sweep's table has this number."""
    done = frame.loc[frame[STATUS] == DONE].to_dict("records")
    if all(measure.value(nested({str(k): v for k, v in row.items()})) is None for row in done):
        raise InputError("no run has this number", where="--by", value=measure.title)


@dataclass(frozen=True)
class RankedSetting:
    """A setting in the order of one measure. behind: its distance from the best, in words."""

    setting: SweepSetting
    behind: str


def best(settings: Sequence[SweepSetting], measure: Measure, count: int) -> list[RankedSetting]:
    """The `count` settings with the best mean, each compared with the first of them.

    Those that refuse more requests than others come after these, since serving fewer is quicker.
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
    """`other` against the best, in words."""
    first, second = top.values(measure) or [], other.values(measure) or []
    return "the same" if first == second else difference_text(first, second, times=measure.is_time)


def pareto(settings: Sequence[SweepSetting], latency: Measure) -> list[tuple[SweepSetting, int]]:
    """The Pareto-optimal settings in memory, latency, throughput and refusals, by their means;
    least memory first. Where settings differ in GPUs, these are what they take in place of memory.
    Of several that are equal in all four, the first and how many more.
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
    """Whether anything differs between seeds; a trace with its own arrivals has nothing random."""
    return any(len({repr(row.get("e2e_s")) for row in setting.rows}) > 1 for setting in settings)


def _taken(run: Mapping[str, Any]) -> float | None:
    memory = run["memory"]
    return float(memory["peak_allocated"]) * int(memory["capacity_bytes"])
