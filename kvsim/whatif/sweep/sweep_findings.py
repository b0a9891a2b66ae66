"""The findings of a sweep: the best settings, the Pareto-optimal ones, and the curves."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kvsim.report import numbers
from kvsim.report.intervals import NARROW
from kvsim.report.measures import MEASURES, Measure
from kvsim.report.numbers import count, plural
from kvsim.whatif.findings import (
    Findings,
    FindingsColumn,
    FindingsFigure,
    FindingsGrids,
    FindingsTable,
    Section,
)
from kvsim.whatif.intervals import INDISTINCT, UNSEEN, more_seeds
from kvsim.whatif.notes import noted
from kvsim.whatif.sweep import sweep_figures
from kvsim.whatif.sweep.ranking import (
    TAKEN,
    Load,
    SweepSetting,
    best,
    by_load,
    differ_in_gpus,
    interval_text,
    pareto,
    seeds_matter,
    settings_of,
)
from kvsim.whatif.sweep.sweep import DONE, FAILED, STATUS, Sweep
from kvsim.whatif.sweep.sweep_gpus import with_gpus
from kvsim.whatif.sweep.sweep_leads import (
    MOST_LOADS,
    assigned,
    lead,
    question,
    run_again,
    short_names,
)

if TYPE_CHECKING:
    import pandas as pd

SHOWN = ("tokens_per_s", "ttft_p99", "tpot_p99", "e2e_p50", "running")
ON_TERMINAL = ("ttft_p99", "tokens_per_s")  # of SHOWN, what eighty columns have room for
_MOST_FAILURES = 20


def sweep_findings(
    sweep: Sweep, frame: "pd.DataFrame", by: Measure, top: int, run: str = ""
) -> Findings:
    """The findings of the sweep's table.

    by: the measure that ranks settings. top: number of settings to show. run: the command that runs
    the unchanged scenario.
    """
    settings = with_gpus(settings_of(frame, sweep.keys), sweep)
    groups = by_load(settings, sweep.keys)
    latency = by if by.title.startswith(("Time", "End")) else MEASURES["ttft_p99"]
    sections: list[Section] = [
        FindingsFigure(*lead(settings, sweep.keys, by), lead=True),
        *run_again(groups, by, run),
        _best_table(settings, sweep.keys, by, top),
        _pareto_table(settings, sweep.keys, latency),
        FindingsFigure(
            "Curves",
            "Means over the seeds, of times geometric ones, with their 95 % intervals; a cross "
            "marks a saturated setting, whose latencies tell how long the run was. An arrow names "
            "the end of an interval that is longer than its panel. Where there are many settings, "
            "the keys not shown stand as in the best one.",
            lambda: sweep_figures.curves(settings, sweep.keys, by) if settings else None,
        ),
    ]
    if grids := sweep_figures.heat_grids(settings, sweep.keys, by):
        note = "A deeper shade is worse. Keys not shown stand as in the best setting."
        sections.append(FindingsGrids(f"{by.title} over two keys", note, grids))
    if (frame[STATUS] == FAILED).any():
        sections.append(_failures(frame, sweep.keys))
    words = sweep_sentences(settings, sweep.keys, frame, by)
    return Findings(
        question(sweep.keys),
        [
            ("settings", count(len(settings))),
            ("seeds", count(len(sweep.seeds))),
            ("runs", count(len(frame))),
        ],
        words,
        sections,
        sweep.table,
        _data(sweep, frame, settings, by, top),
        num_verdict=max(1, sum(line.startswith("Best in") for line in words)),
    )


def sweep_sentences(
    settings: Sequence[SweepSetting], keys: Sequence[str], frame: "pd.DataFrame", by: Measure
) -> list[str]:
    """Sentences on the best setting at each load, and on limits of the answer: failures,
    saturation, number of seeds, notes.
    """
    sentences = []
    failed = int((frame[STATUS] == FAILED).sum())
    if failed:
        sentences.append(f"{plural(failed, 'point')} failed; they are listed with their errors.")
    if settings:
        sentences += _best_sentences(by_load(settings, keys), by)
        sentences += _load_sentences(settings)
        if len(settings[0].seeds) == 1:
            sentences.append("One seed gives no intervals: add --repeat 5.")
        elif not seeds_matter(settings):
            sentences.append(
                "The seed changes nothing in this scenario, so repeating it says nothing more."
            )
        done = frame.loc[frame[STATUS] == DONE]
        sentences += noted(done.to_dict("records"))
    return sentences


def _best_sentences(groups: Sequence[tuple[Load, list[SweepSetting]]], by: Measure) -> list[str]:
    """Sentences on the best setting at each load; with many loads, one that refers to the table."""
    if all(len(members) == 1 for _, members in groups) and len(groups) > 1:
        return ["Only the load varies, and a load is not a setting to rank: see the curves."]
    if len(groups) > MOST_LOADS:
        return [f"The table lists the best settings at each of {len(groups)} loads."]
    sentences = []
    for load, members in groups:
        for top in best(members, by, 1):
            setting = top.setting
            own = {k: v for k, v in setting.settings.items() if k not in load and v is not None}
            at = f" at {assigned(load)}" if load else ""
            name = ", ".join(filter(None, (setting.label, assigned(own))))
            behind = [each.behind for each in best(members, by, len(members))]
            equal = sum(each in ("the same", UNSEEN) for each in behind)
            untold = sum(each.startswith(INDISTINCT) for each in behind)
            same = f"{plural(equal, 'other setting')} {'is' if equal == 1 else 'are'} as good"
            within = ", within the intervals" if len(setting.seeds) > 1 else ""
            others = f" {same}{within}." if equal else ""
            if more := more_seeds(behind, len(setting.seeds)):
                seeds = plural(len(setting.seeds), "seed")
                others += f" {seeds} cannot tell {plural(untold, 'other setting')} from it. {more}"
            sentences.append(f"Best in {by.title.lower()}{at}: {name}: {setting.text(by)}.{others}")
    return sentences


def _load_sentences(settings: Sequence[SweepSetting]) -> list[str]:
    """Sentences on how many settings are saturated, and how many refuse requests."""
    sentences = []
    always = sum(setting.saturated == len(setting.seeds) for setting in settings)
    sometimes = sum(bool(setting.saturated) for setting in settings) - always
    if always or sometimes:
        of = plural(len(settings), "setting")
        often = " at every seed" if len(settings[0].seeds) > 1 else ""
        some = f", and {count(sometimes)} at some seeds" if sometimes else ""
        sentences.append(
            f"Saturated: {count(always)} of {of}{often}{some}. The queue grew until the last "
            "arrival, so waits depend on the length of the run."
        )
    least = min(setting.refused for setting in settings)
    more = sum(setting.refused > least for setting in settings)
    if least:
        sentences.append(f"Every setting refuses requests, {count(least)} of them at least.")
    if more:
        sentences.append(
            f"{plural(more, 'setting')} refuse more requests than others, and rank behind those: "
            "a setting that serves fewer requests is faster."
        )
    return sentences


def _best_table(
    settings: Sequence[SweepSetting], keys: Sequence[str], by: Measure, top: int
) -> FindingsTable:
    """The best settings by one measure at each load, and their other measures."""
    others = [name for name in SHOWN if MEASURES[name] is not by]
    measures = [by, *map(MEASURES.__getitem__, others)]
    groups = by_load(settings, keys)
    each_load = top if len(groups) == 1 else 1 if len(groups) > MOST_LOADS else min(top, 3)
    ranked = [each for _, members in groups for each in best(members, by, each_load)]
    title = f"The best {plural(len(ranked), 'setting')} by {by.title.lower()}"
    return FindingsTable(
        title if len(groups) == 1 else f"The best settings at each load by {by.title.lower()}",
        _best_note(settings),
        (
            *("", *short_names(keys), "against the best"),
            _measure_column(by),
            *(_measure_column(MEASURES[name], name not in ON_TERMINAL) for name in others),
            "",
        ),
        [
            (
                *(each.setting.label, *_cells(each.setting), each.behind),
                *(each.setting.interval(measure) for measure in measures),
                each.setting.load,
            )
            for each in ranked
        ],
    )


def _best_note(settings: Sequence[SweepSetting]) -> str:
    if not settings or len(settings[0].seeds) == 1:
        return "Settings are compared with the best at the same load."
    return (
        f"Means over the seeds ± half of the 95 % interval. {NARROW} Settings are compared with "
        "the best at the same load on the same seeds, pair by pair."
    )


def _pareto_table(
    settings: Sequence[SweepSetting], keys: Sequence[str], latency: Measure
) -> FindingsTable:
    """The Pareto-optimal settings in memory (or GPUs), latency, throughput and refusals, at each
    load.
    """
    measures, gpus = [latency, MEASURES["tokens_per_s"]], differ_in_gpus(settings)
    taken = FindingsColumn("GPUs", numbers.figures) if gpus else _measure_column(TAKEN)
    what = "fewer GPUs" if gpus else "less memory"
    return FindingsTable(
        "Pareto-optimal settings",
        f"Each of these takes {what}, waits less, serves more or refuses fewer than any other "
        "at the same load (means). Of several equal ones only the first is listed.",
        ("", *short_names(keys), taken, *map(_measure_column, measures), ""),
        [
            (
                *(setting.label, *_cells(setting)),
                setting.gpus if gpus else setting.interval(TAKEN),
                *(setting.interval(measure) for measure in measures),
                ", ".join(filter(None, [setting.load, f"and {equal} equal ones" * bool(equal)])),
            )
            for _, members in by_load(settings, keys)
            for setting, equal in pareto(members, latency)
        ],
    )


def _cells(setting: SweepSetting) -> list[Any]:
    """The varied keys' values; a dash for a key of another allocator."""
    return [numbers.NOTHING if value is None else value for value in setting.settings.values()]


def _measure_column(measure: Measure, page_only: bool = False) -> FindingsColumn:
    return FindingsColumn(measure.short, partial(interval_text, measure), page_only)


def _failures(frame: "pd.DataFrame", keys: Sequence[str]) -> FindingsTable:
    failed = frame.loc[frame[STATUS] == FAILED]
    rows = [
        (", ".join([*(f"{key} = {row[key]}" for key in keys), f"seed {row['seed']}"]), row["error"])
        for _, row in failed.head(_MOST_FAILURES).iterrows()
    ]
    more = len(failed) - len(rows)
    note = f"And {plural(more, 'more point')}, in the table." if more else ""
    return FindingsTable("Points that failed", note, ("", "error"), rows)


def _data(
    sweep: Sweep,
    frame: "pd.DataFrame",
    settings: Sequence[SweepSetting],
    by: Measure,
    top: int,
) -> dict[str, Any]:
    """The JSON answer: means of every setting, the best settings and the Pareto-optimal ones."""

    def entry(setting: SweepSetting) -> dict[str, Any]:
        means = {name: setting.interval(measure) for name, measure in MEASURES.items()}
        return {
            "point": setting.point,
            "label": setting.label,
            "settings": setting.settings,
            "saturated_seeds": setting.saturated,
            **{name: mean._asdict() for name, mean in means.items() if mean is not None},
        }

    failed = frame.loc[frame[STATUS] == FAILED]
    groups = by_load(settings, sweep.keys)
    return {
        "seeds": list(sweep.seeds),
        "points": len(sweep.points),
        "failed": [
            {"point": int(row["point"]), "seed": int(row["seed"]), "error": row["error"]}
            for _, row in failed.iterrows()
        ],
        "settings": [entry(setting) for setting in settings],
        "best": [
            {**entry(each.setting), "behind": each.behind}
            for _, members in groups
            for each in best(members, by, top)
        ],
        "pareto": [
            {**entry(setting), "alike": equal}
            for _, members in groups
            for setting, equal in pareto(members, by)
        ],
    }
