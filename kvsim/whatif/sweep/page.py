"""The page of a sweep: what varied, the best settings, those nothing beats, and the curves."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvsim.plumbing.toml import to_toml
from kvsim.report import numbers
from kvsim.report.measures import MEASURES, Measure
from kvsim.report.numbers import count, plural
from kvsim.whatif import page
from kvsim.whatif.notes import noted
from kvsim.whatif.sweep import figures
from kvsim.whatif.sweep.ranking import (
    SHOWN,
    TAKEN,
    SweepSetting,
    best,
    pareto,
    seeds_matter,
    settings_of,
)
from kvsim.whatif.sweep.sweep import DONE, FAILED, STATUS, Sweep

if TYPE_CHECKING:
    import pandas as pd

_MOST_FAILURES = 20


def make_page(sweep: Sweep, frame: "pd.DataFrame", by: Measure, top: int) -> str:
    """The page as HTML."""
    settings = settings_of(frame, sweep.keys)
    latency = by if by.title.startswith(("Time", "End")) else MEASURES["ttft_p99"]
    sections: list[page.Section] = [
        best_table(settings, sweep.keys, by, top),
        pareto_table(settings, sweep.keys, latency),
        page.Drawing(
            "Curves",
            "Means over the seeds with their 95 % intervals; a cross marks a saturated setting, "
            "whose latencies tell how long the run was. Where there are many settings, the keys "
            "not shown stand as in the best one.",
            figures.curves(settings, sweep.keys, by) if settings else None,
        ),
    ]
    maps = figures.heat_maps(settings, sweep.keys, by) if settings else None
    if maps is not None:
        sections.append(
            page.Drawing(
                f"{by.title} over two keys",
                "Darker is worse. Keys not shown stand as in the best setting.",
                maps,
            )
        )
    if (frame[STATUS] == FAILED).any():
        sections.append(_failures(frame, sweep.keys))
    return page.make_page(
        f"What varies with {', '.join(sweep.keys) or 'the seed'}",
        [
            ("settings", count(len(sweep.settings))),
            ("seeds", count(len(sweep.seeds))),
            ("runs", count(len(frame))),
        ],
        words(settings, frame, by),
        sections,
        to_toml(sweep.table),
    )


def words(settings: Sequence[SweepSetting], frame: "pd.DataFrame", by: Measure) -> list[str]:
    """What a reader must know before the tables."""
    said = []
    failed = int((frame[STATUS] == FAILED).sum())
    if failed:
        said.append(f"{plural(failed, 'point')} failed; they are listed with their errors.")
    if settings:
        for top in best(settings, by, 1):
            setting = top.setting
            name = ", ".join([setting.label, *(f"{k} = {v}" for k, v in setting.settings.items())])
            said.append(f"Best in {by.title.lower()}: {name}: {setting.text(by)}.")
        said += _load_words(settings)
        if len(settings[0].seeds) > 1 and not seeds_matter(settings):
            said.append(
                "The seed changes nothing in this scenario, so repeating it says nothing more."
            )
        elif len(settings[0].seeds) == 1:
            said.append("One seed: no intervals. Give --repeat for them.")
        done = frame.loc[frame[STATUS] == DONE]
        said += noted(
            [{str(key): cell for key, cell in row.items()} for row in done.to_dict("records")]
        )
    return said


def _load_words(settings: Sequence[SweepSetting]) -> list[str]:
    """Which settings cannot be taken at their word: saturated ones, and those that refuse."""
    said = []
    always = sum(setting.saturated == len(setting.seeds) for setting in settings)
    sometimes = sum(bool(setting.saturated) for setting in settings) - always
    if always or sometimes:
        parts = [f"{count(always)} at every seed" if len(settings[0].seeds) > 1 else count(always)]
        parts += [f"{count(sometimes)} at some"] if sometimes else []
        said.append(
            f"Of {plural(len(settings), 'setting')} {numbers.listed(parts)} could not keep up with "
            "the arrivals (saturated): their waits grow with the length of the run."
        )
    least = min(setting.refused for setting in settings)
    more = sum(setting.refused > least for setting in settings)
    if least:
        said.append(f"Every setting refuses requests, {count(least)} of them at least.")
    if more:
        said.append(
            f"{plural(more, 'setting')} refuse more requests than others, and stand behind those: "
            "whoever serves fewer is quicker."
        )
    return said


def best_table(
    settings: Sequence[SweepSetting],
    keys: Sequence[str],
    by: Measure,
    top: int,
    shown: Sequence[str] = SHOWN,
) -> page.Cells:
    """The best settings by one measure, and what else they read; shown: names of measures."""
    measures = [by, *(MEASURES[name] for name in shown if MEASURES[name] is not by)]
    rows = tuple(
        (
            *_named(ranked.setting, keys),
            ranked.behind,
            *(ranked.setting.text(measure) for measure in measures),
            ranked.setting.load,
        )
        for ranked in best(settings, by, top)
    )
    return page.Cells(
        f"The best {plural(len(rows), 'setting')} by {by.title.lower()}",
        "Means over the seeds ± half of the 95 % interval. Settings are compared with the best on "
        "the same seeds, pair by pair.",
        ("", *short_names(keys), "against the best", *(measure.short for measure in measures), ""),
        rows,
    )


def pareto_table(
    settings: Sequence[SweepSetting], keys: Sequence[str], latency: Measure
) -> page.Cells:
    """The settings that no other beats at once in memory, latency and throughput."""
    measures = (TAKEN, latency, MEASURES["tokens_per_s"])
    rows = tuple(
        (
            *_named(setting, keys),
            *(setting.text(measure) for measure in measures),
            ", ".join(filter(None, [setting.load, f"and {alike} more alike" if alike else ""])),
        )
        for setting, alike in pareto(settings, latency)
    )
    return page.Cells(
        "What nothing beats",
        "Each of these takes less memory, waits less, serves more or refuses fewer than any other "
        "(means); of those that do all alike the first stands here.",
        ("", *short_names(keys), *(measure.short for measure in measures), ""),
        rows,
    )


def short_names(keys: Sequence[str]) -> list[str]:
    """The last parts of the keys, where they tell them apart; else the keys."""
    lasts = [key.rpartition(".")[2] for key in keys]
    return lasts if len(set(lasts)) == len(keys) else list(keys)


def _named(setting: SweepSetting, keys: Sequence[str]) -> tuple[str, ...]:
    return setting.label, *(str(setting.settings[key]) for key in keys)


def _failures(frame: "pd.DataFrame", keys: Sequence[str]) -> page.Cells:
    failed = frame.loc[frame[STATUS] == FAILED]
    rows = tuple(
        (", ".join([*(f"{key} = {row[key]}" for key in keys), f"seed {row['seed']}"]), row["error"])
        for _, row in failed.head(_MOST_FAILURES).iterrows()
    )
    more = len(failed) - len(rows)
    note = f"And {plural(more, 'more point')}, in the table." if more else ""
    return page.Cells("Points that failed", note, ("", "error"), rows)
