"""First screen of a sweep's page: question, one figure, and commands to run."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kvsim.plumbing.reading.toml_text import value_of
from kvsim.plumbing.toml import value_text
from kvsim.report import numbers
from kvsim.report.measures import Measure
from kvsim.whatif.findings import CommandText
from kvsim.whatif.sweep import sweep_figures
from kvsim.whatif.sweep.ranking import Load, SweepSetting, best, load_keys
from kvsim.whatif.whiskers import Whisker, whiskers

if TYPE_CHECKING:
    import plotly.graph_objects as go

MOST_LOADS = 4  # whose best settings are sentences; those of more loads stand in the table alone
_MOST_DRAWN = 8


def assigned(settings: Mapping[str, Any]) -> str:
    """The swept keys with their values as `key=value`, with keys shortened by `short_names`."""
    names = zip(short_names([*settings]), settings.values(), strict=True)
    return ", ".join(f"{name} = {value}" for name, value in names)


def question(keys: Sequence[str]) -> str:
    """The question of the sweep as a title, with the last parts of its keys."""
    names = dict(zip(keys, short_names(keys), strict=True))
    loads = [names.pop(key) for key in load_keys(keys)]
    if not names:
        return f"What does {numbers.listed(loads) or 'the seed'} change?"
    return f"Which {numbers.listed([*names.values()])}" + (
        f", at each {numbers.listed(loads)}?" if loads else "?"
    )


def lead(
    settings: Sequence[SweepSetting], keys: Sequence[str], by: Measure
) -> tuple[str, str, "Callable[[], go.Figure | None]"]:
    """Title, note and drawing function of the leading figure: the ranking measure along a numeric
    key, or else for the best settings.
    """
    note = (
        "A cross marks a saturated setting: its times grow with the length of the run. An arrow "
        "names the end of an interval that is longer than the figure."
    )
    if sweep_figures.axis_key(settings, keys, by) is not None:
        return by.title, note, lambda: sweep_figures.curves(settings, keys, by, [by])
    ranked = [each.setting for each in best(settings, by, _MOST_DRAWN)]
    rows = []
    for at, each in enumerate(ranked):
        mean = each.interval(by)
        assert mean is not None  # it is ranked by it
        own = {key: value for key, value in each.settings.items() if value is not None}
        name = ", ".join(filter(None, (each.label, assigned(own))))
        rows.append(Whisker(name, mean.mean, mean.low, mean.high, each.text(by), at == 0))
    return by.title, "", partial(whiskers, rows, f"{by.title}, s" if by.is_time else by.title)


def run_again(
    groups: Sequence[tuple[Load, list[SweepSetting]]], by: Measure, run: str
) -> list[CommandText]:
    """Commands that run the best setting at each load; empty if there is nothing to choose, or if
    there are many loads.
    """
    choices = [members for _, members in groups if len(members) > 1]
    if not run or not choices or len(groups) > MOST_LOADS:
        return []
    lines = []
    for _, members in groups:
        for top in best(members, by, 1):
            held = {k: v for k, v in top.setting.settings.items() if v is not None}
            given = (shlex.quote(f"{key}={_typed(value)}") for key, value in held.items())
            lines.append(" ".join([run, *(f"--set {each}" for each in given)]))
    return [CommandText("Run the best setting", "", "\n".join(lines), lead=True)]


def _typed(value: Any) -> str:
    """A table's cell as text to type after `key=`; lists and tables are written as TOML."""
    is_text = isinstance(value, str) and isinstance(value_of(value), list | dict)
    return value if is_text else value_text(value)


def short_names(keys: Sequence[str]) -> list[str]:
    """The last part of each key, if these are distinct; else the whole keys."""
    lasts = [key.rpartition(".")[2] for key in keys]
    return lasts if len(set(lasts)) == len(keys) else list(keys)
