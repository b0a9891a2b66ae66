"""The HTML page of many points: a figure of all, tables of errors, and the rows."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from evidence.points.outcome import PointOutcome
from evidence.points.tables import PointTable, row_table
from kvsim.report.against import AgainstPanel, MeasuredPairs, against
from kvsim.report.classes import DARK
from kvsim.report.figure import DARK_INKS
from kvsim.report.numbers import plural
from kvsim.report.template import rendered
from kvsim.version import VERSION

if TYPE_CHECKING:
    import plotly.graph_objects as go


def make_page(
    title: str,
    found: Mapping[str, object],
    tables: Sequence[PointTable],
    shown: Sequence[PointOutcome],
    outcomes: Sequence[PointOutcome],
) -> str:
    """An HTML page that loads nothing from the network.

    found: the JSON answer. shown: outcomes to list as rows; empty for totals only. outcomes: all
    outcomes, for the figure.
    """
    figure = _figure(outcomes)
    facts = [(name.replace("_", " "), found[name]) for name in ("file", "half", "step_time")]
    every = [row_table(shown)] if shown else []
    return rendered(
        "points.html",
        "evidence.points",
        title=title,
        words=_verdict(found),
        facts=[(name, value or "a scenario's default") for name, value in facts],
        tables=[*tables, *every],
        figure=figure and figure.to_json(),
        height_px=figure and figure.layout.height,
        dark=json.dumps(DARK | DARK_INKS),
        version=VERSION,
    )


def _figure(outcomes: Sequence[PointOutcome]) -> "go.Figure | None":
    """Simulated against measured TTFT and TPOT of every point that ran, by engine."""
    ran = [(each, each.simulated) for each in outcomes if each.simulated is not None]
    engines = dict.fromkeys(each.row.backend for each, _ in ran)
    titles = ("Time to first token, mean, ms", "Time per output token, mean, ms")
    panels = []
    for place, title in enumerate(titles):
        groups = []
        for engine in engines:
            own = [(each, times) for each, times in ran if each.row.backend == engine]
            measured = [each.measured[place] for each, _ in own]
            groups.append(MeasuredPairs(engine, measured, [times[place] for _, times in own]))
        panels.append(AgainstPanel(title, groups))
    return against(panels)


def _verdict(found: Mapping[str, object]) -> list[str]:
    """Sentences on how many points ran, and on the median errors."""
    everything = found["all"]
    assert isinstance(everything, Mapping)
    ran = f"{everything['ran']:,} of {plural(everything['rows'], 'point')} could be simulated."
    errors = [
        f"{name} {100 * everything[key]['median_abs']:.1f}\N{NO-BREAK SPACE}%"
        for key, name in (("tpot", "time per output token"), ("ttft", "first token"))
        if everything[key] is not None
    ]
    return [f"{ran} Median error: {', '.join(errors)}." if errors else ran]
